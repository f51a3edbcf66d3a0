"""Calls that C makes with objects of Python itself, and the same calls without that: results, errors, and which arrays are taken.

    direct.py host    # also of NumPy and torch, where they are there
    direct.py cuda    # on the emulated driver, with arrays that stand for those of torch and CuPy
"""

import array
import ctypes
import importlib.util
import os
import sys
import threading
from ctypes import PYFUNCTYPE, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p, py_object

import mscclpp
from mscclpp import ReduceOp, _library

GPU = "cuda" in sys.argv
comm = mscclpp.Communicator(device="cuda" if GPU else None)
rank, size = comm.rank, comm.size
number = int(comm.device.rpartition(":")[2]) if GPU else -1
N = 6


def outcome(function, *arguments, **named):
    """Return what has become of a call: the class and the text of its exception."""
    try:
        function(*arguments, **named)
    except Exception as problem:
        return type(problem), str(problem)
    return None


class Counting:
    """A caller that counts the calls which C makes, and those which it leaves."""

    def __init__(self):
        self.made = self.left = 0

    def __call__(self, *arguments):
        result = comm._caller(*arguments)
        if result < 0:
            self.left += 1
        else:
            self.made += 1
        return result


def both(make, *, taken, **named):
    """Perform each collective in both ways, whose results and errors are the same; taken says that C makes the calls."""
    calls = {
        "all_reduce": lambda a, b, w: comm.all_reduce(a, b, **named), "all_reduce in place": lambda a, b, w: comm.all_reduce(a, op=ReduceOp.MAX, **named),
        "reduce": lambda a, b, w: comm.reduce(a, b, root=size - 1, **named), "reduce_scatter": lambda a, b, w: comm.reduce_scatter(w, b, **named),
        "all_gather": lambda a, b, w: comm.all_gather(a, w, **named), "broadcast": lambda a, b, w: comm.broadcast(a, root=size - 1, **named),
        "all_to_all": lambda a, b, w: comm.all_to_all(w, make(N * size, 0), **named), "wrong count": lambda a, b, w: comm.all_reduce(a, w, **named),
        "wrong op": lambda a, b, w: comm.all_reduce(a, b, 9, **named), "no op": lambda a, b, w: comm.all_reduce(a, b, "sum", **named),
        "no factor": lambda a, b, w: comm.all_reduce(a, b, ReduceOp.PREMUL_SUM, **named), "wrong root": lambda a, b, w: comm.broadcast(a, root=size, **named),
        "large root": lambda a, b, w: comm.reduce(a, root=1 << 70, **named), "no algorithm": lambda a, b, w: comm.all_reduce(a, b, algorithm="none", **named),
    }
    for name, call in calls.items():
        seen = []
        for caller in (Counting(), _library.no_caller):
            comm._direct = caller
            arrays = make(N, rank + 1), make(N, 0), make(N * size, rank + 2)
            problem = outcome(call, *arrays)
            comm._direct = comm._caller
            seen.append((problem, [contents(a) for a in arrays]))
            if caller is not _library.no_caller:
                count = caller
        assert seen[0] == seen[1], (name, make, seen)
        if taken:
            wanted = "wrong" not in name and "no " not in name and "large" not in name
            assert count.made == wanted, (name, count.made, count.left, seen)
        else:
            assert count.made == 0, (name, make)
        assert (seen[0][0] is None) == ("wrong" not in name and "no " not in name and "large" not in name) or not taken, (name, seen)


def contents(a):
    return a.tolist() if hasattr(a, "tolist") else list(a)


def released():
    """Other threads run while a call waits: a thread of rank 0 lets rank 1 begin the call in which its rank waits already."""
    one = array.array("f", [1.0])
    if rank == 0:
        begin, switch = threading.Lock(), sys.getswitchinterval()
        begin.acquire()
        sys.setswitchinterval(1000)  # a thread runs only where another one lets it

        def other():
            with begin, open(os.environ["DIRECT_GO"], "w"):
                pass
        thread = threading.Thread(target=other)
        thread.start()
        begin.release()
        comm.all_reduce(one)
        sys.setswitchinterval(switch)
        thread.join()
    else:
        while not os.path.exists(os.environ["DIRECT_GO"]):
            threading.Event().wait(0.001)
        comm.all_reduce(one)


def references(arrays):
    """Nothing is kept of 100,000 calls, whether they are made or not."""
    counted = (None, 0, type(comm._caller), *map(type, arrays), *arrays)
    before = [sys.getrefcount(o) for o in counted]
    for _ in range(50000):
        comm._caller(0, arrays[0], arrays[1], 0, 0, None)
        comm._caller(0, arrays[0], "neither", 0, 0, None)
    after = [sys.getrefcount(o) for o in counted]
    assert all(abs(x - y) < 100 for x, y in zip(before, after)), (before, after)


class Layout(ctypes.Structure):
    """DLPack's tensor."""

    _fields_ = [("data", c_void_p), ("device", c_int32), ("number", c_int32), ("dimensions", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p), ("offset", c_uint64)]


class Table(ctypes.Structure):
    """DLPack's functions."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", c_void_p), ("allocate", c_void_p), ("export", c_void_p),
                ("take", c_void_p), ("tensor", c_void_p), ("stream", c_void_p)]


Find, Current = PYFUNCTYPE(c_int, py_object, ctypes.POINTER(Layout)), PYFUNCTYPE(c_int, c_int32, c_int32, ctypes.POINTER(c_void_p))
current, asked = 0, []


@Find
def find(self, out):
    if self.problem is not None:
        raise self.problem  # ctypes prints it; the result is 0 with what follows
    out[0] = Layout(self.address, self.device, max(self.index, 0), len(self.shape), 2, 32, 1, ctypes.addressof(self.extents), ctypes.addressof(self.steps), 0)
    return self.code


@Current
def stream_now(device, index, out):
    asked.append((device, index))
    out[0] = current
    return 0


table = Table(1, 3, None, None, None, None, ctypes.cast(find, c_void_p), ctypes.cast(stream_now, c_void_p))
older = Table(2, 0, None, None, None, None, ctypes.cast(find, c_void_p), ctypes.cast(stream_now, c_void_p))
new_capsule = PYFUNCTYPE(py_object, c_void_p, ctypes.c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))


class Tensor:
    """An array with that table, which says of itself what a test wants."""

    problem, code, negative = None, 0, False

    def __init__(self, address, shape, strides, device, index):
        self.address, self.shape, self.device, self.index = address, shape, device, index
        self.extents, self.steps = (c_int64 * max(len(shape), 1))(*shape), (c_int64 * max(len(strides), 1))(*strides)

    def is_neg(self):
        return self.negative


class Another(Tensor):
    """Its table is of a version that is not known."""


def on_host():
    for kind in "fdbBiIqQ":
        both(lambda n, value: array.array(kind, [value] * n), taken=True)
    both(lambda n, value: bytearray([value]) * n, taken=True)
    both(lambda n, value: memoryview(bytearray([value]) * n), taken=True)
    both(lambda n, value: array.array("h", [value] * n), taken=False)
    assert comm._caller(0, bytes(1), bytearray(1), 0, 0, None) == comm._caller(0, memoryview(bytes(1)), bytearray(1), 0, 0, None) == -1, "read-only"
    both(lambda n, value: memoryview(bytearray([value]) * 2 * n)[::2], taken=False)
    if importlib.util.find_spec("numpy"):
        import numpy as np
        comm.all_reduce(np.zeros(1))
        for kind in ("float32", "float16", "int64", "uint8"):
            both(lambda n, value: np.full((n, 1), value, kind), taken=True)
        for make in (lambda n, value: np.full(2 * n, value, "float32")[::2], lambda n, value: np.full(n, value, ">f4"),
                     lambda n, value: np.full(n, value, "complex64"), lambda n, value: np.ma.masked_array(np.full(n, value, "float32"))):
            both(make, taken=False)
        a, b = np.zeros(3, "float32"), np.zeros(3, "int32")
        assert comm._caller(0, a, b, 0, 0, None) == -1, "two types"
        references((np.zeros(1, "float32"), np.zeros(1, "float32")))
    if "torch" in sys.argv:
        import torch
        comm.all_reduce(torch.zeros(1))
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
            both(lambda n, value: torch.full((1, n), value, dtype=kind), taken=True)
            both(lambda n, value: torch.full((n, 1, 3), value, dtype=kind, requires_grad=kind.is_floating_point).transpose(0, 1).detach(), taken=True)
        for make in (lambda n, value: torch.full((n, 2), value)[:, 0], lambda n, value: torch.full((n,), value, dtype=torch.complex64),
                     lambda n, value: torch.full((n,), value, dtype=torch.complex64).conj().imag, lambda n, value: torch.full((n,), value > 1),
                     lambda n, value: torch.nn.Parameter(torch.full((n,), 1.0 * value))):
            both(make, taken=False)
        for wrong in (torch.zeros(3, device="meta"), torch.zeros(3).to_sparse(), torch.ones(1, dtype=torch.complex64).conj().imag):
            assert comm._caller(0, wrong, wrong, 0, 0, None) == -1, wrong
            before = outcome(comm.all_reduce, wrong)
            comm._direct = _library.no_caller
            assert before == outcome(comm.all_reduce, wrong) is not None, before
            comm._direct = comm._caller
        torch.vmap(lambda x: (outcome(comm.all_reduce, x) is not None or sys.exit("a part of a batch was taken"), x)[1])(torch.zeros(2, 3))
        references((torch.zeros(2), torch.zeros(2)))
    references((array.array("f", [1]), array.array("f", [1])))
    assert comm._caller(0, array.array("f"), array.array("f"), 0, 0, 7) == -1, "a stream on the host"
    assert comm._caller() == comm._caller(0) == comm._caller("all_reduce", bytearray(1), bytearray(1), 0, 0, None) == -1
    with comm.group():  # keeps what is moved
        comm.send(bytearray(3), (rank + 1) % size)
        comm.recv(bytearray(3), (rank - 1) % size)
        assert len(comm._held) == 2 and comm._direct is _library.no_caller
    assert comm._direct is comm._caller
    held = array.array("f", [1])
    comm.all_reduce(held)
    held.append(2)  # its buffer was given back
    released()


def tensor(memory, shape=(N,), strides=(1,), device=2, index=number):
    return Tensor(memory, shape, strides, device, index)


class OfCuPy:
    """The attributes of CuPy's arrays."""

    def __init__(self, at, size=N, char="f", dense=True, device=number):
        self.data, self.size, self.dtype, self.flags = type(self).Part(), size, type(self).Part(), type(self).Part()
        self.data.ptr, self.data.device_id, self.dtype.char, self.flags.c_contiguous = at, device, char, dense

    class Part:
        pass


def on_gpu():
    global current
    assert comm._lib.python_learn(Another, _library._TABLE, new_capsule(ctypes.addressof(older), b"dlpack_exchange_api", None)) == 0
    assert comm._lib.python_learn(Another, _library._TABLE, new_capsule(ctypes.addressof(table), b"another", None)) == 0
    assert comm._lib.python_learn(Another, _library._TABLE, None) == 0
    assert comm._lib.python_learn(Tensor, _library._TABLE, new_capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)) == 1
    memory, other = comm.alloc(4 * N), comm.alloc(4 * N)
    floats = ctypes.c_float * N
    at, to = memory.data(), other.data()

    def check(result, a, b, stream=None, made=True):
        memory.write(floats(*[rank + 1] * N))
        other.write(floats(*[0] * N))
        comm.barrier()
        comm.settle()
        assert (comm._caller(0, a, b, 0, 0, stream) == 0) == made, (result, a, b)
        comm.settle()
        assert list(floats.from_buffer_copy(other.read(4 * N))) == [result] * N, (result, other.read(8))

    total = size * (size + 1) / 2
    check(total, tensor(at), tensor(to))
    assert asked == [(2, number)], asked
    check(total, tensor(at, device=10), tensor(to, device=10))  # of ROCm
    check(total, tensor(at, (2, 1, 3), (3, 77, 1)), tensor(to, (N, 1), (1, 5)), 0)
    stream = new_stream()
    check(total, tensor(at), tensor(to), stream)
    current = stream
    check(total, tensor(at), tensor(to))

    class Stream:
        cuda_stream = stream
    check(total, tensor(at), tensor(to), Stream())
    for wrong in (tensor(to, strides=(2,)), tensor(to, index=number + 1), tensor(to, device=1), tensor(to, device=3), tensor(to, (N + 1,)), bytearray(4 * N)):
        check(0, tensor(at), wrong, made=False)
        check(0, wrong, tensor(to), made=False)
    failing = tensor(to)
    failing.code = -1
    check(0, tensor(at), failing, made=False)
    for odd in ("x", object(), 1.5, 1 << 70):
        check(0, tensor(at), tensor(to), odd, made=False)
    negative = tensor(to, (1,))
    negative.negative = True
    check(0, tensor(at, (1,)), negative, made=False)

    class Now:
        ptr = stream
    problem = None

    def stream_of_cupy():
        if problem is not None:
            raise problem
        return Now
    assert comm._lib.python_learn(OfCuPy, _library._CUPY, stream_of_cupy) == 1
    check(total, OfCuPy(at), OfCuPy(to))
    for wrong in (OfCuPy(to, dense=False), OfCuPy(to, device=number + 1), OfCuPy(to, char="?"), OfCuPy(to, char="f4"), OfCuPy(to, size=-1), OfCuPy(to, size=N + 1),
                  OfCuPy(None), OfCuPy(to, size="many"), tensor(to)):
        check(0, OfCuPy(at), wrong, made=False)
    check(0, OfCuPy(at), OfCuPy(to), stream, made=False)  # it has to wait for what is on the current one
    lacking = OfCuPy(to)
    del lacking.flags
    check(0, OfCuPy(at), lacking, made=False)
    problem = KeyError("of the package")
    check(0, OfCuPy(at), OfCuPy(to), made=False)
    problem = KeyboardInterrupt()
    try:
        comm._caller(0, OfCuPy(at), OfCuPy(to), 0, 0, None)
    except KeyboardInterrupt:
        problem = None
    assert problem is None, "Ctrl-C was lost"
    for pair in ((OfCuPy(at), OfCuPy(to)), (tensor(at, strides=(2,)), tensor(to))):
        counted = (Now, stream, *pair, *(x for p in pair for x in vars(p).values()))
        before = [sys.getrefcount(o) for o in counted]
        for _ in range(100):
            comm._caller(0, *pair, 0, 0, None)
        comm.settle()
        after = [sys.getrefcount(o) for o in counted]
        assert all(abs(x - y) < 20 for x, y in zip(before, after)), (before, after)


def new_stream():
    from mscclpp import _driver
    raw, stream = ctypes.CDLL(os.environ["MSCCLPP_CUDA_LIBRARY"]), c_void_p()
    with _driver.driver().on(number):
        assert raw.cuStreamCreateWithPriority(ctypes.byref(stream), 1, 0) == 0
    return stream.value


with comm:
    on_gpu() if GPU else on_host()
assert comm._direct is _library.no_caller
print(f"rank {rank} is done")
