"""Every file of the package can be used on this Python, and on those before and after that the package is for, as far as the source shows.

It compiles all files, with warnings as errors; parses them as the oldest Python does; finds whatever they name of the standard library; and
refuses control flow that leaves a finally block, of which Python 3.14 warns.
"""

import ast
import importlib
import os
import sys
import warnings

OLDEST = (3, 10)
here = os.path.dirname(os.path.abspath(__file__))
top = os.path.dirname(here)
problems = []


def modules_of(tree):
    """Return what names of modules of the standard library mean in a file, and the names that it imports from them."""
    known, taken = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.partition(".")[0] in sys.stdlib_module_names:
                    known[a.asname or a.name.partition(".")[0]] = importlib.import_module(a.name if a.asname else a.name.partition(".")[0])
                    importlib.import_module(a.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module.partition(".")[0] in sys.stdlib_module_names:
            taken += [(node.lineno, importlib.import_module(node.module), a.name) for a in node.names]
    return known, taken


def leaves(body):
    """Yield statements of a finally block that leave it."""
    for node in body:
        if isinstance(node, (ast.Return, ast.Break, ast.Continue)):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            inner = [c for c in ast.iter_child_nodes(node) if isinstance(c, (ast.stmt, ast.ExceptHandler))]
            loop = isinstance(node, (ast.For, ast.While, ast.AsyncFor))
            yield from (n for n in leaves(inner) if isinstance(n, ast.Return) or not loop)


def look(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    name = os.path.relpath(path, top)
    try:
        compile(text, path, "exec", dont_inherit=True)
        tree = ast.parse(text, path, feature_version=OLDEST)
    except (SyntaxError, Warning) as problem:
        problems.append(f"{name}: {problem}")
        return
    known, taken = modules_of(tree)
    bound = {a.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) for a in (*n.posonlyargs, *n.args, *n.kwonlyargs)}
    for line, module, wanted in taken:
        if not hasattr(module, wanted):
            problems.append(f"{name}:{line}: {module.__name__} has no {wanted}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known and node.value.id not in bound:
            if not hasattr(known[node.value.id], node.attr):
                problems.append(f"{name}:{node.lineno}: {node.value.id} has no {node.attr}")
        elif isinstance(node, ast.Try):
            problems.extend(f"{name}:{n.lineno}: {type(n).__name__} leaves a finally block" for n in leaves(node.finalbody))


if sys.argv[1:]:  # a test of this program
    look(sys.argv[1])
    print(*problems, sep="\n")
    sys.exit()
warnings.simplefilter("error")
seen = 0
for folder in ("mscclpp", "backend", "tests", os.path.join("..", "examples", "python")):
    for where, _, files in os.walk(os.path.join(top, folder)):
        for file in sorted(files):
            if file.endswith(".py"):
                seen += 1
                look(os.path.join(where, file))
if problems:
    sys.exit("\n".join(problems))
print(f"{seen} files are right")
