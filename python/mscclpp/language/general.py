"""The plan of the current program."""

from .internal.globals import get_program


def JSON() -> str:
    """Return the plan of the current program."""
    return get_program().to_json()
