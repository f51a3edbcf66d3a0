"""Every collective over Python's own arrays, with the types that these have, and the forms of its arguments."""

import array
import ctypes
import sys

import mscclpp
from mscclpp import ReduceOp

TYPES = "bBhHiIqQfd"  # of array.array; those of 16 bits are moved alone
comm = mscclpp.Communicator()
rank, size = comm.rank, comm.size


def filled(kind, n, value=0):
    return array.array(kind, [value] * n)


def mine(kind, n, r):
    """n elements that tell rank r and their places apart, and whose sums all types hold."""
    return array.array(kind, [(r + i) % 5 + 1 for i in range(n)])


def equal(what, got, want):
    if list(got) != list(want):
        sys.exit(f"rank {rank}: {what}: {list(got)[:8]}: expected {list(want)[:8]}")


def reductions(kind):
    n = 37
    whole = [mine(kind, n, r) for r in range(size)]
    sums = [sum(column) for column in zip(*whole)]
    out = filled(kind, n)
    comm.all_reduce(whole[rank], out)
    equal(f"all_reduce {kind}", out, sums)
    out = mine(kind, n, rank)
    comm.all_reduce(out, op=ReduceOp.MAX)
    equal(f"all_reduce {kind} in place", out, [max(column) for column in zip(*whole)])
    for root in range(size):
        out = filled(kind, n, 7)
        comm.reduce(whole[rank], out, root=root)
        equal(f"reduce {kind}", out, sums if rank == root else [7] * n)
    send = mine(kind, n * size, rank)
    columns = [sum(c) for c in zip(*(mine(kind, n * size, r) for r in range(size)))]
    out = filled(kind, n)
    comm.reduce_scatter(send, out)
    equal(f"reduce_scatter {kind}", out, columns[rank * n:(rank + 1) * n])
    comm.reduce_scatter(send)
    equal(f"reduce_scatter {kind} in place", send[rank * n:(rank + 1) * n], columns[rank * n:(rank + 1) * n])


def moves(kind):
    n = 21
    whole = [x for r in range(size) for x in mine(kind, n, r)]
    out = filled(kind, n * size)
    comm.all_gather(mine(kind, n, rank), out)
    equal(f"all_gather {kind}", out, whole)
    out = filled(kind, n * size)
    out[rank * n:(rank + 1) * n] = mine(kind, n, rank)
    comm.all_gather(None, out)
    equal(f"all_gather {kind} in place", out, whole)
    for root in range(size):
        out = mine(kind, n, rank)
        comm.broadcast(out, root=root)
        equal(f"broadcast {kind} in place", out, mine(kind, n, root))
        out = filled(kind, n)
        comm.broadcast(mine(kind, n, rank) if rank == root else None, out, root=root)
        equal(f"broadcast {kind}", out, mine(kind, n, root))
        out = filled(kind, n * size) if rank == root else None
        comm.gather(mine(kind, n, rank), out, root=root)
        if rank == root:
            equal(f"gather {kind}", out, whole)
        out = filled(kind, n)
        comm.scatter(array.array(kind, whole) if rank == root else None, out, root=root)
        equal(f"scatter {kind}", out, mine(kind, n, rank))
    out = filled(kind, n * size)
    comm.all_to_all(mine(kind, n * size, rank), out)
    equal(f"all_to_all {kind}", out, [x for r in range(size) for x in mine(kind, n * size, r)[rank * n:(rank + 1) * n]])


def uneven():
    """Rank r sends r + p + 1 elements to rank p, from a buffer with gaps."""
    sends, receives = [rank + p + 1 for p in range(size)], [rank + p + 1 for p in range(size)]
    room = 2 * size
    send = array.array("i", [100 * rank + i // room for i in range(room * size)])
    out = filled("i", sum(receives), -1)
    comm.all_to_all_v(send, sends, out, receives, send_offsets=[p * room for p in range(size)])
    equal("all_to_all_v", out, [100 * p + rank for p in range(size) for _ in range(receives[p])])


def messages():
    right, left = (rank + 1) % size, (rank - 1) % size
    out = bytearray(5)
    with comm.group():
        comm.send(b"rank%d" % rank, right)  # bytes are read-only, and may be sent
        with comm.group():
            comm.recv(out, left)
    equal("send and recv", out, b"rank%d" % left)


def others():
    pair = (ctypes.c_double * 2)(rank, 1)
    comm.all_reduce(pair)
    equal("ctypes", pair, [size * (size - 1) / 2, size])
    view = memoryview(bytearray(32)).cast("i")[4:]
    view[0] = 1
    comm.all_reduce(view)
    equal("part of a view", view, [size, 0, 0, 0])
    scaled = array.array("f", [2.0])
    comm.all_reduce(scaled, op=ReduceOp.PREMUL_SUM, scale=0.5)
    equal("scale", scaled, [size])
    own = array.array("f", [1.0])
    comm.all_reduce(own, op=ReduceOp.PREMUL_SUM, scale=rank)
    equal("scales that differ", own, [size * (size - 1) / 2])
    try:
        comm.all_reduce(own, op=ReduceOp.PREMUL_SUM, algorithm="ring")
        sys.exit(f"rank {rank}: PREMUL_SUM without a scale: expected an error")
    except ValueError as e:
        equal("no scale", ["without a scale" in str(e)], [True])
    mean = array.array("d", [rank])
    comm.all_reduce(mean, op=ReduceOp.AVG)
    equal("mean", mean, [(size - 1) / 2])
    empty = array.array("f")
    comm.all_reduce(empty)
    for name in ("ring", "allpair_ll8", "twophase_chunk"):
        one = array.array("i", [1] * 64)
        comm.all_reduce(one, algorithm=name)
        equal(f"algorithm {name}", one, [size] * 64)
    every = comm.exchange(b"rank %d" % rank)
    assert every == [b"rank %d" % r for r in range(size)], every
    assert comm.exchange(b"") == [b""] * size
    comm.prepare("allreduce", "float32")
    comm.barrier()


def parts():
    half = comm.split(rank % 2, key=-rank)
    members = [r for r in range(size) if r % 2 == rank % 2][::-1]
    assert (half.rank, half.size) == (members.index(rank), len(members)), half
    out = array.array("i", [rank])
    half.all_reduce(out)
    equal("split", out, [sum(members)])
    half.close()
    alone = comm.split(-1 if rank else 0)
    assert (alone is None) == (rank != 0), alone
    if alone:
        alone.close()
    if rank != 1:
        with comm.shrink([1]) as fewer:
            out = array.array("i", [rank + 1])
            fewer.all_reduce(out)
            equal("shrink", out, [sum(r + 1 for r in range(size) if r != 1)])


with comm:
    for kind in TYPES:
        moves(kind)
        if kind not in "hH":
            reductions(kind)
    uneven()
    messages()
    others()
    parts()
    assert f"rank {rank}" in comm.dump() or str(size) in comm.dump()
    comm.trace_start()
    comm.trace_mark("behind the calls")
    comm.barrier()
    comm.trace_stop()
    comm.status()
assert comm.closed
print(f"rank {rank} is done")
