"""The cost of a call from Python above that of the same call from C, of 1 KiB: host time, medians of runs by turns in one process.

    cc -O2 -shared -fPIC python_call.c -o libpython_call.so
    python python_call.py ./libpython_call.so                       # on the host: one rank, which waits for nobody
    mscclpp-run -n 2 -- python python_call.py ./libpython_call.so   # on GPUs, one for each rank

A run on a GPU has no more calls than the stream holds, and begins when it is empty: the host waits for nothing. The table has
nanoseconds: median and least of the calls from C, those from Python, and the difference of the medians.
"""

import ctypes
import os
import sys
import timeit

import mscclpp
from mscclpp import _buffers, _library

CALLS, RUNS, COUNT = 200, 61, 256
RANK = int(os.environ.get("RANK", "0"))
loop = ctypes.CDLL(os.path.abspath(sys.argv[1])).python_call
loop.restype = ctypes.c_double
loop.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]


def compare(comm, name, arrays, finish, options, calls):
    """Print a row for each call: its name, its arguments in Python, and those in C between the communicator and the options."""
    for function, names, arguments in calls:
        raw = (ctypes.c_long * 8)(comm.handle, *arguments, options)
        at = ctypes.cast(getattr(comm._lib, function), ctypes.c_void_p)
        theirs, ours = [], []
        timer = timeit.Timer(f"call({names})", globals={**arrays, "call": getattr(comm, function)})
        timer.timeit(3)
        finish()
        for _ in range(RUNS):
            theirs.append(loop(at, raw, CALLS))
            finish()
            ours.append(timer.timeit(CALLS) / CALLS * 1e9)
            finish()
        if min(theirs) < 0:
            sys.exit(f"{function} of {name} from C: {comm._lib.error(9)}")
        c, python = (sorted(times) for times in (theirs, ours))
        if RANK == 0:
            print(f"{name:16} {f'{function}({names})':20} C {c[RUNS // 2]:6.0f} {c[0]:6.0f}   Python {python[RUNS // 2]:6.0f} {python[0]:6.0f}   "
                  f"above {python[RUNS // 2] - c[RUNS // 2]:6.0f}", flush=True)


def measure(comm, name, make, finish=lambda: None, options=0):
    n = comm.size
    a, b, whole = make(COUNT), make(COUNT), make(COUNT * n)
    x, y, w = (_buffers.resolve(m, name).address for m in (a, b, whole))
    compare(comm, name, {"a": a, "b": b, "w": whole}, finish, options, (
        ("all_reduce", "a", (x, x, COUNT, 0, 0)), ("all_reduce", "a, b", (x, y, COUNT, 0, 0)), ("reduce_scatter", "w, b", (w, y, COUNT, 0, 0)),
        ("all_gather", "a, w", (x, w, COUNT, 0)), ("broadcast", "a", (x, x, COUNT, 0, 0)),
    ))


def host():
    """Calls of one rank on arrays of NumPy, and tensors of torch on the CPU, where they are there."""
    with mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1) as comm:
        for name in ("numpy", "torch"):
            try:
                module = __import__(name)
            except ImportError:
                continue
            measure(comm, name, lambda n: module.zeros(n, dtype=module.float32))


def gpus():
    """Calls on tensors of torch, on a stream of their own, and on arrays of CuPy."""
    with mscclpp.Communicator(device="cuda") as comm:
        import torch
        torch.cuda.set_device(comm.rank)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            kept = _library.CallOptions(ctypes.sizeof(_library.CallOptions), side.cuda_stream, None, 0.0)
            measure(comm, "torch on a GPU", lambda n: torch.zeros(n, device="cuda"), torch.cuda.synchronize, ctypes.addressof(kept))
        try:
            import cupy
        except ImportError:
            return
        cupy.cuda.Device(comm.rank).use()
        with cupy.cuda.Stream(non_blocking=True) as stream:
            kept = _library.CallOptions(ctypes.sizeof(_library.CallOptions), stream.ptr, None, 0.0)
            measure(comm, "CuPy", lambda n: cupy.zeros(n, "float32"), stream.synchronize, ctypes.addressof(kept))


if "WORLD_SIZE" in os.environ:
    gpus()
else:
    host()
