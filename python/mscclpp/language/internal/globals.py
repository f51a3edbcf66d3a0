"""The current program."""

_program = None


def set_program(program):
    """Make a program the current one; None for none."""
    global _program
    _program = program


def get_program():
    """Return the program whose with-statement is open."""
    if _program is None:
        raise RuntimeError("No Program in context")
    return _program
