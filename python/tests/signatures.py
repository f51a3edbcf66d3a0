"""Public names of modules that lack a type or a docstring: prints them, and says how many functions it has seen. Arguments are modules."""

import importlib
import inspect
import sys

SPECIAL = {"__init__", "__enter__", "__exit__", "__iter__", "__len__", "__getitem__", "__bytes__"}


def members(name, value):
    """Yield the functions of a public name: itself, or the methods and properties of a class."""
    if not inspect.isclass(value):
        yield name, value, False
        return
    for n in dir(value):
        if not n.startswith("_") or n in SPECIAL:
            member = inspect.getattr_static(value, n)
            inherited = any(getattr(getattr(base, n, None), "__doc__", None) for base in value.__mro__[1:])
            yield f"{name}.{n}", getattr(member, "fget", None) or getattr(member, "__func__", member), inherited or n in SPECIAL


def look(module):
    """Return what is missing in a module, and the number of functions."""
    names = getattr(module, "__all__", None) or [n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", None) == module.__name__]
    missing, seen = [] if module.__doc__ else [module.__name__], 0
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value) and not value.__doc__:
            missing.append(f"{name}: a docstring")
        for where, function, documented in members(name, value):
            if not inspect.isfunction(function) or not function.__module__.startswith("mscclpp"):
                continue
            seen += 1
            signature = inspect.signature(function)
            missing += [f"{where}({n})" for n, p in signature.parameters.items() if n not in ("self", "cls") and p.annotation is p.empty]
            if signature.return_annotation is signature.empty:
                missing.append(f"{where} -> ?")
            if not function.__doc__ and not documented:
                missing.append(f"{where}: a docstring")
    return missing, seen


if __name__ == "__main__":
    total = 0
    for module_name in sys.argv[1:]:
        lacks, count = look(importlib.import_module(module_name))
        total += count
        if lacks:
            sys.exit(f"{module_name} lacks {lacks}")
    print(f"{total} functions are right")
