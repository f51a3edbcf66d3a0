"""``python -m mscclpp`` is mscclpp-run."""

import os
import sys

from . import _errors, _files


def main() -> None:
    """Become mscclpp-run, with the arguments of this process; this Python runs scripts and modules that are named by themselves."""
    try:
        path = _files.program("mscclpp-run")
    except _errors.Error as problem:
        sys.exit(f"mscclpp: {problem}")
    if sys.executable:
        os.environ.setdefault("PYTHON_EXEC", sys.executable)
    os.execv(path, ["mscclpp-run", *sys.argv[1:]])


if __name__ == "__main__":
    main()
