// Runs a program on the CPython that Pyodide's package has, compiled to WebAssembly:
//
//   node wheel-314.mjs FOLDER-OF-PYODIDE TREE PROGRAM.py
const [folder, tree, program] = process.argv.slice(2);
const { loadPyodide } = await import(`${folder}/pyodide.mjs`);
const python = await loadPyodide({ indexURL: folder });
python.mountNodeFS("/tree", tree);
process.exitCode = python.runPython(`
import runpy, sys, traceback
def main():
    sys.dont_write_bytecode = True
    sys.path[:0] = ["/tree/python", "/tree/python/tests"]
    sys.argv = ["/tree/${program}"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            print(end.code)
        return 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
main()
`);
