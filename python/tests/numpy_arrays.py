"""Arrays of NumPy: types, shapes, read-only and other memory that is refused, and the protocols by which other packages offer theirs."""

import sys

import numpy as np

import mscclpp
from mscclpp import ReduceOp

comm = mscclpp.Communicator()
rank, size = comm.rank, comm.size


def refused(text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except mscclpp.InvalidUsage as problem:
        assert text in str(problem), problem
        return
    sys.exit(f"rank {rank}: {text}: nothing was raised")


class DLPack:
    """An array that has this protocol alone, in its old or its new form."""

    def __init__(self, array):
        self.array = array


class Old(DLPack):
    def __dlpack__(self):
        return self.array.__dlpack__()


class New(DLPack):
    def __dlpack__(self, *, max_version=None):
        return self.array.__dlpack__(max_version=max_version)


with comm:
    for name in ("float32", "float16", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"):
        for _ in range(2):  # the first call learns the type, the second takes the short way
            a, out = np.full((3, 4), rank + 1, name), np.zeros((3, 4), name)
            comm.all_reduce(a, out)
            assert (out == size * (size + 1) // 2).all(), out
            comm.all_reduce(a, op=ReduceOp.MAX)
            assert (a == size).all(), a
    for a in (np.array(rank, "float32"), np.zeros(0, "float32"), np.zeros((2, 0, 3))):  # no dimension, no elements
        comm.all_reduce(a)
    fortran = np.asfortranarray(np.zeros((2, 3), "float32"))
    refused("not contiguous", comm.all_reduce, fortran)
    refused("not contiguous", comm.all_reduce, np.zeros(6, "float32")[::2])
    comm.all_reduce(np.zeros((4, 4), "float32")[1:3])
    fixed = np.zeros(3, "float32")
    fixed.flags.writeable = False
    refused("read-only", comm.all_reduce, fixed)
    comm.all_reduce(fixed, np.zeros(3, "float32"))
    refused("byte order", comm.all_reduce, np.zeros(3, ">f4"))
    refused("with a mask", comm.all_reduce, np.ma.masked_array(np.zeros(3, "float32"), [0, 1, 0]))
    for call in (comm.broadcast, comm.reduce):  # C would take the last 32 bits
        refused("root 4294967296", call, np.zeros(3, "float32"), root=1 << 32)
    refused("reduction 4294967296", comm.all_reduce, np.zeros(3, "float32"), op=1 << 32)
    refused("Python objects", comm.broadcast, np.array([{}, []], dtype=object))
    refused("expected one of float32", comm.all_reduce, np.zeros(3, bool))
    refused("recv 8", comm.all_reduce, np.zeros(3, "float32"), np.zeros(2, "float32"))
    refused("one type", comm.all_reduce, np.zeros(3, "float32"), np.zeros(3, "int32"))
    for name in ("bool", "complex64", "datetime64[s]", "U3", "i2", [("a", "i4"), ("b", "f8")]):  # may be moved
        a = np.zeros(5, name) if rank else np.ones(5, name)
        comm.broadcast(a)
        assert (a == np.ones(5, name)).all(), a
    for kind in (Old, New):
        a = np.full(4, rank, "float32")
        comm.all_reduce(kind(a))
        assert (a == size * (size - 1) / 2).all(), a
        refused("not contiguous", comm.all_reduce, kind(np.zeros(6, "float32")[::2]))
    refused("read-only", comm.all_reduce, New(fixed))
    for _ in range(2000):  # memory that only the call keeps; nothing is leaked
        comm.all_reduce(np.full(100, 1, "float32"), np.empty(100, "float32"))
    lent = comm.alloc(4096)
    shown, taken = np.asarray(lent), np.from_dlpack(lent)
    lent.close()
    shown[5] = 9
    assert taken[5] == 9, taken[5]
    gathered = np.zeros((size, 3), "int64")
    comm.all_gather(np.full(3, rank), gathered)
    assert (gathered == np.arange(size)[:, None]).all(), gathered
    for op in ("sum", None, 99):
        try:
            comm.all_reduce(np.zeros(4, "float32"), op=op)
        except (mscclpp.Error, ValueError, TypeError):
            continue
        sys.exit(f"operation {op!r} was taken")
    a, out = np.arange(4 * size, dtype="int32") + rank, np.zeros(4, "int32")
    for _ in range(2):  # the short way of the other calls
        comm.reduce_scatter(a, out)
        assert (out == size * np.arange(4 * rank, 4 * rank + 4) + size * (size - 1) // 2).all(), out
        comm.all_gather(out, whole := np.zeros(4 * size, "int32"))
        assert (whole[4 * rank:4 * rank + 4] == out).all(), whole
        comm.all_to_all(a, whole)
        assert (whole.reshape(size, 4)[:, 0] == 4 * rank + np.arange(size)).all(), whole
        comm.reduce(np.full(3, rank + 1.0), total := np.zeros(3), root=1)
        assert (total == (size * (size + 1) / 2 if rank == 1 else 0)).all(), total
        comm.broadcast(b := np.full(2, rank), root=1)
        assert (b == 1).all(), b
        if rank < 2:
            comm.send(b, 1) if rank == 0 else comm.recv(b, 0)
        refused("to", comm.reduce_scatter, a, np.zeros(5, "int32"))
    if "torch" in sys.argv:
        import torch
        t = torch.full((2, 2), float(rank), requires_grad=True)
        comm.all_reduce(t)
        assert (t == size * (size - 1) / 2).all(), t
        for dtype in (torch.bfloat16, torch.float16):
            t = torch.ones(5, dtype=dtype)
            comm.all_reduce(t)
            assert (t == size).all(), t
        refused("not contiguous", comm.all_reduce, torch.zeros(3, 4).t())
        refused("resolve_conj", comm.broadcast, torch.zeros(3, dtype=torch.complex64).conj())
        for n, text in ((1, "resolve_neg"), (3, "not contiguous")):  # also when float64 is known to the short way
            comm.all_reduce(torch.ones(n, dtype=torch.float64))
            refused(text, comm.all_reduce, torch.ones(n, dtype=torch.complex128).conj().imag)
            refused(text, comm.all_reduce, torch.ones(n, dtype=torch.float64), torch.ones(n, dtype=torch.complex128).conj().imag)
        refused("meta", comm.all_reduce, torch.zeros(3, device="meta"))
print(f"rank {rank} is done")
