"""``python -m mscclpp`` is mscclpp-run."""

import os
import sys

from . import _errors, _files


def main() -> None:
    """Become mscclpp-run, with the arguments of this process."""
    try:
        path = _files.program("mscclpp-run")
    except _errors.Error as problem:
        sys.exit(f"mscclpp: {problem}")
    os.execv(path, ["mscclpp-run", *sys.argv[1:]])


if __name__ == "__main__":
    main()
