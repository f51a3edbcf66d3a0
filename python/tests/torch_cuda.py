"""The process group with tensors of GPUs, which gpu_standin.py stands for: pointers, streams, and who waits for whom.

Two ranks; the argument is the backend.
"""

import datetime
import sys

import torch
import torch.distributed as dist

import gpu_standin as gpu
import mscclpp
import mscclpp._torch_cuda
import mscclpp.torch

mscclpp._torch_cuda.Streams = gpu.Streams
dist.init_process_group(sys.argv[1], timeout=datetime.timedelta(minutes=5))
rank, size = dist.get_rank(), dist.get_world_size()
peer, total = 1 - rank, 3.0
assert size == 2


def full(value, *shape):
    return gpu.put(torch.full(shape or (5,), float(value)))


def equal(what, got, want):
    got, want = gpu.host(got), torch.as_tensor(want, dtype=torch.float32)
    if not torch.equal(got, want.expand_as(got)):
        sys.exit(f"rank {rank}: {what}: {got}: expected {want}")


def collectives():
    dist.all_reduce(x := full(rank + 1))
    equal("all_reduce", x, total)
    columns = full(rank + 1, 4, 6).t()
    dist.all_reduce(columns)
    equal("not contiguous", columns, total)
    dist.reduce(x := full(rank + 1), 1)
    equal("reduce", x, total if rank == 1 else 1)
    dist.broadcast(x := full(rank), 1)
    equal("broadcast", x, 1)
    outs = [full(9), full(9)]
    dist.all_gather(outs, full(rank))
    equal("all_gather", outs[0], 0), equal("all_gather", outs[1], 1)
    dist.all_gather_into_tensor(x := full(9, 2), full(rank, 1))
    equal("all_gather_into_tensor", x, [0, 1])
    dist.reduce_scatter(x := full(9), [full(rank + 1), full(rank + 3)])
    equal("reduce_scatter", x, 3 if rank == 0 else 7)
    dist.reduce_scatter_tensor(x := full(9, 2), full(rank + 1, 4))
    equal("reduce_scatter_tensor", x, total)
    for n in (5, 20000):  # put together, and as messages
        outs = [full(9, n), full(9, n)] if rank == 0 else None
        dist.gather(full(rank, n), outs, 0)
        for r, out in enumerate(outs or ()):
            equal("gather", out, r)
        dist.scatter(x := full(9, n), [full(0, n), full(1, n)] if rank == 1 else None, 1)
        equal("scatter", x, rank)
    dist.all_to_all_single(x := full(9, 2), gpu.put(torch.tensor([10.0 * rank, 10.0 * rank + 1])))
    equal("all_to_all_single", x, [rank, 10.0 + rank])
    dist.all_to_all_single(x := full(9, 2 * (rank + 1)), full(rank, 3), [rank + 1] * 2, [1, 2])
    equal("all_to_all_single with sizes", x, [0.0] * (rank + 1) + [1.0] * (rank + 1))
    outs = [full(9, rank + 1), full(9, rank + 1)]
    dist.all_to_all(outs, [full(rank, 1), full(rank, 2)])
    equal("all_to_all", outs[0], 0), equal("all_to_all", outs[1], 1)
    dist.barrier()


def messages():
    for n in (3000, 1 << 20, 5):
        exchange(full(rank, n), full(9, n))
    if rank == 0:
        dist.send(full(7), 1)
    else:
        dist.recv(x := full(9), 0)
        equal("recv", x, 7)


def exchange(x, y):
    """Both ranks send first, which must not wait for what the other one sends."""
    works = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]
    for work in dist.batch_isend_irecv(works):
        work.wait()
    equal("batch", y, peer)


def streams():
    """A call waits for what is on the current stream, and the current stream for what was waited for."""
    gate, group = gpu.Gate(), dist.group.WORLD
    for asynchronous in (False, True):
        x = full(0)
        gate.write_behind(x, rank + 1.0)
        work = dist.all_reduce(x, async_op=asynchronous)
        lane = group._lanes[gpu.GPU, "collectives"]
        assert (lane.moves.stream == lane.side.cuda_stream) == asynchronous
        if asynchronous:
            assert not work.is_completed()
            work.wait()  # returns at once: the gate is closed
            assert not work.is_completed()
        gate.open()
        gpu.Streams.now().synchronize()  # which waits for the call, too
        if asynchronous:
            assert work.is_completed() and work.is_success() and work.exception() is None
        equal("after what was before", x, total)
    work = dist.all_reduce(x := full(rank + 1), async_op=True)
    doubled = work.get_future().then(lambda f: gpu.host(f.value()[0]) * 2)
    equal("future", doubled.wait(), 2 * total)
    with dist._coalescing_manager(device=gpu.DEVICE, async_ops=True) as manager:
        tensors = [full(rank + i) for i in range(5)]
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    for i, t in enumerate(tensors):
        equal("coalesced", t, 1 + 2 * i)


def objects_and_cpu():
    every = [None] * size
    dist.all_gather_object(every, rank)
    assert every == [0, 1], every
    dist.all_reduce(x := torch.ones(3))
    assert (x == 2).all(), x


def late():
    """A call that the other rank does not make ends the group after its time limit."""
    group = dist.new_group(timeout=datetime.timedelta(minutes=5))
    dist.all_reduce(full(1), group=group)
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(full(1), group=group, async_op=True)
        try:
            work.wait(datetime.timedelta(seconds=0.3))
        except mscclpp.TimeoutError as problem:
            assert "time limit of 0.3 s" in str(problem), problem
        else:
            sys.exit("nothing was raised")
        try:
            dist.all_reduce(full(1), group=group)
        except mscclpp.ClosedError as problem:
            assert "time limit" in str(problem), problem
        else:
            sys.exit("nothing was raised")
    dist.barrier()


for part in (collectives, messages, streams, objects_and_cpu, late):
    part()
dist.destroy_process_group()
print(f"rank {rank} is done")
