"""Every module of the package is imported, with warnings as errors, and its public names have types and docstrings; no library is needed."""

import importlib
import os
import sys
import unittest
import warnings

warnings.simplefilter("error")
import alone  # noqa: E402 - warnings come first
import mscclpp  # noqa: E402

top = os.path.dirname(mscclpp.__file__)
count = 0
for where, _, files in sorted(os.walk(top)):
    for file in sorted(files):
        name = os.path.relpath(os.path.join(where, file), os.path.dirname(top))[:-3].replace(os.sep, ".").removesuffix(".__init__")
        if file.endswith(".py") and not file.startswith("__main__") and name not in ("mscclpp.run", "mscclpp.deep_ep") and "torch" not in name:
            importlib.import_module(name)
            count += 1
tests = [alone.Interface(name) for name in ("test_all_names_exist", "test_public_names_have_types")]
result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite(tests))
if not result.wasSuccessful() or count < 30:
    sys.exit(f"{count} modules, {result}")
print(f"Python {sys.version.partition(' ')[0]}: {count} modules are right")
