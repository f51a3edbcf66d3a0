"""Files that come with the package, or lie in the source tree: headers and programs."""

from __future__ import annotations

import os
import shutil

from . import _errors
from ._library import PACKAGE

TREE = os.path.dirname(os.path.dirname(PACKAGE))


def program(name: str) -> str:
    """Return the path of a program such as mscclpp-run."""
    home = os.environ.get("MSCCLPP_HOME", "")
    for path in (os.path.join(PACKAGE, "bin", name), home and os.path.join(home, "bin", name), os.path.join(TREE, "bin", name)):
        if path and os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found is None:
        raise _errors.make(1, f"{name}: not found beside the package, in MSCCLPP_HOME/bin, or on PATH")
    return found


def include() -> str:
    """Return the folder with mscclpp.h."""
    home = os.environ.get("MSCCLPP_HOME", "")
    for path in (os.path.join(PACKAGE, "include"), home and os.path.join(home, "include"), os.path.join(TREE, "capi")):
        if path and os.path.isfile(os.path.join(path, "mscclpp.h")):
            return path
    raise _errors.make(1, "mscclpp.h: not found beside the package, or in MSCCLPP_HOME/include")
