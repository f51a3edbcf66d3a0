"""Every operation of torch.distributed over the backend mscclpp, against what it must give."""

import datetime
import sys

import torch
import torch.distributed as dist

import mscclpp
import mscclpp.torch

dist.init_process_group("mscclpp", timeout=datetime.timedelta(minutes=5))
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "mscclpp", dist.get_backend()
RANKS = sum(range(size))


def equal(what, got, want):
    want = torch.as_tensor(want, dtype=got.dtype)
    if got.shape != want.shape and want.numel() == 1:
        want = want.expand_as(got)
    if not torch.equal(got, want):
        sys.exit(f"rank {rank}: {what}: {got}: expected {want}")


def reductions():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32,
                  torch.int64, torch.complex64):
        t = torch.full((3, 5), rank + 1, dtype=dtype)
        dist.all_reduce(t)
        equal(f"all_reduce {dtype}", t, RANKS + size)
    for op, want in ((dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.PRODUCT, torch.arange(1, size + 1).prod())):
        t = torch.full((7,), rank + 1)
        dist.all_reduce(t, op)
        equal(f"all_reduce {op}", t, want)
    t = torch.full((4,), float(rank))
    dist.all_reduce(t, dist.ReduceOp.AVG)
    equal("mean", t, RANKS / size)
    for op, start, want in ((dist.ReduceOp.BOR, 1 << rank, (1 << size) - 1), (dist.ReduceOp.BAND, 7, 7), (dist.ReduceOp.BXOR, 1, size % 2)):
        t = torch.tensor([start])
        dist.all_reduce(t, op)
        equal(f"all_reduce {op}", t, want)
    t = torch.tensor([rank == 0, False])
    dist.all_reduce(t)
    assert t.tolist() == [True, False], t
    columns = torch.zeros(4, 6).t()  # not contiguous
    columns += rank
    dist.all_reduce(columns)
    equal("not contiguous", columns, RANKS)
    t = torch.tensor([float(rank)])
    dist.reduce(t, dst=size - 1)
    equal("reduce", t, RANKS if rank == size - 1 else rank)
    out = torch.zeros(2)
    dist.reduce_scatter(out, [torch.full((2,), float(r + rank)) for r in range(size)])
    equal("reduce_scatter", out, RANKS + rank * size)
    out = torch.zeros(2, dtype=torch.int64)
    dist.reduce_scatter_tensor(out, torch.arange(2 * size) + rank)
    equal("reduce_scatter_tensor", out, [RANKS + size * (2 * rank), RANKS + size * (2 * rank + 1)])


def moves():
    for dtype in (torch.float32, torch.bool, torch.int16, torch.complex128):
        outs = [torch.zeros(2, 2, dtype=dtype) for _ in range(size)]
        dist.all_gather(outs, torch.full((2, 2), rank, dtype=dtype))
        for r, out in enumerate(outs):
            equal(f"all_gather {dtype}", out, torch.full((2, 2), r, dtype=dtype))
    out = torch.zeros(2 * size)
    dist.all_gather_into_tensor(out, torch.tensor([float(rank), 1.0]))
    equal("all_gather_into_tensor", out, [float(x) for r in range(size) for x in (r, 1)])
    t = torch.full((5,), float(rank))
    dist.broadcast(t, src=1)
    equal("broadcast", t, 1)
    outs = [torch.zeros(3) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((3,), float(rank)), outs, dst=0)
    for r, out in enumerate(outs or ()):
        equal("gather", out, r)
    out = torch.zeros(2)
    dist.scatter(out, [torch.full((2,), float(r)) for r in range(size)] if rank == 1 else None, src=1)
    equal("scatter", out, rank)
    out = torch.zeros(size, dtype=torch.int64)
    dist.all_to_all_single(out, torch.arange(size) + 10 * rank)
    equal("all_to_all_single", out, [10 * r + rank for r in range(size)])
    sends, receives = [r + 1 for r in range(size)], [rank + 1] * size
    out = torch.zeros(sum(receives), 2)
    dist.all_to_all_single(out, torch.full((sum(sends), 2), float(rank)), receives, sends)
    equal("all_to_all_single with sizes", out[:, 0], [float(r) for r in range(size) for _ in range(rank + 1)])
    outs = [torch.zeros(rank + 1) for _ in range(size)]
    dist.all_to_all(outs, [torch.full((r + 1,), float(rank)) for r in range(size)])
    for r, out in enumerate(outs):
        equal("all_to_all", out, r)
    dist.barrier()


def messages():
    right, left = (rank + 1) % size, (rank - 1) % size
    big = torch.full((1 << 20,), float(rank))
    got = torch.zeros(1 << 20)
    works = [dist.isend(big, right), dist.irecv(got, left)]  # all send first, more than any buffer holds
    for work in works:
        work.wait()
    equal("isend and irecv", got, left)
    if rank == 0:  # rank 1 has begun to receive when it sends, and gets nothing before
        dist.recv(got, 1, tag=5)
        dist.send(got, 1, tag=6)
    elif rank == 1:
        works = [dist.irecv(torch.zeros(1 << 20), 0, tag=6), dist.isend(big, 0, tag=5)]
        for work in works:
            work.wait()
    first, second = torch.zeros(1), torch.zeros(1)
    works = [dist.isend(torch.tensor([1.0]), right, tag=1), dist.isend(torch.tensor([2.0]), right, tag=2)]
    dist.recv(second, left, tag=2)  # in another order than they were sent
    dist.recv(first, left, tag=1)
    for work in works:
        work.wait()
    equal("tags", torch.cat([first, second]), [1.0, 2.0])
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, big, right), dist.P2POp(dist.irecv, got.zero_(), left)])
    for work in works:
        work.wait()
    equal("batch", got, left)


def asynchronous():
    tensors = [torch.full((100 + i,), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    dist.barrier()  # waits its turn
    for i, (work, t) in enumerate(zip(works, tensors)):
        assert work.wait() and work.is_completed() and work.is_success(), work
        equal("async all_reduce", t, RANKS + i * size)
    t = torch.ones(4)
    doubled = dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    equal("future", doubled.wait(), 2 * size)
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in tensors:
            t.fill_(1)
            dist.all_reduce(t)
    manager.wait()
    for t in tensors:
        equal("coalesced all_reduce", t, size)
    outs, ins = [torch.zeros(size) for _ in range(3)], [torch.full((1,), float(rank + i)) for i in range(3)]
    with dist._coalescing_manager():
        for out, one in zip(outs, ins):
            dist.all_gather_into_tensor(out, one)
    for i, out in enumerate(outs):
        equal("coalesced all_gather", out, [float(r + i) for r in range(size)])
    parts = [torch.zeros(1) for _ in range(3)]
    with dist._coalescing_manager():
        for part in parts:
            dist.reduce_scatter_tensor(part, torch.ones(size))
    for part in parts:
        equal("coalesced reduce_scatter", part, size)
    dist.all_reduce_coalesced([t.fill_(2) for t in tensors])
    equal("all_reduce_coalesced", tensors[3], 2 * size)


def objects():
    every = [None] * size
    dist.all_gather_object(every, {"rank": rank, "text": "x" * rank})
    assert [e["rank"] for e in every] == list(range(size)), every
    shared = [("from", 1)] if rank == 1 else [None]
    dist.broadcast_object_list(shared, src=1)
    assert shared == [("from", 1)], shared
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert mine == [f"for {rank}"], mine
    got = [None] * size if rank == 0 else None
    dist.gather_object(rank, got, dst=0)
    assert got in (None, list(range(size))), got


def groups():
    pair = dist.new_group([0, 1])
    if rank < 2:
        t = torch.ones(1)
        dist.all_reduce(t, group=pair)
        equal("group", t, 2)
    else:
        assert pair is dist.GroupMember.NON_GROUP_MEMBER, pair
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    t = torch.ones(1)
    dist.all_reduce(t, group=mesh.get_group())
    equal("mesh", t, size)
    import torch.distributed._functional_collectives as functional
    equal("functional all_reduce", functional.all_reduce(torch.ones(2), "sum", mesh.get_group()), size)
    equal("functional all_gather", functional.all_gather_tensor(torch.full((1,), float(rank)), 0, mesh.get_group()), [float(r) for r in range(size)])
    equal("functional reduce_scatter", functional.reduce_scatter_tensor(torch.ones(size), "sum", 0, mesh.get_group()), [float(size)])


def refused():
    for call in (lambda: dist.recv(torch.zeros(1)), lambda: dist.all_gather([torch.zeros(1)] * (size + 1), torch.zeros(1)),
                 lambda: dist.all_reduce(torch.eye(2).to_sparse())):
        try:
            call()
        except (mscclpp.Error, ValueError, RuntimeError):
            continue
        sys.exit(f"rank {rank}: a wrong call was taken")


for part in (reductions, moves, messages, asynchronous, objects, groups, refused):
    part()
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} is done")
