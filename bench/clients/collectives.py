"""Times of torch's collectives in CUDA graphs, with ordinary memory: collectives.py [largest size in bytes]."""
import sys

import torch
import torch.distributed as dist

from common import DEVICE, RANK, SIZE, expect, finish, graph_of, median, row, say, start, time_of

largest = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30
start()
peer = RANK ^ 1


def exchange(x, y):
    ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]
    for work in dist.batch_isend_irecv(ops if RANK < peer else ops[::-1]):
        work.wait()


def operations(n):
    """The operations whose larger buffer has n elements."""
    x, y = torch.zeros(n, dtype=torch.float16, device=DEVICE), torch.empty(n, dtype=torch.float16, device=DEVICE)
    part = n // SIZE
    yield "all_reduce", lambda: dist.all_reduce(x, op=dist.ReduceOp.SUM)
    yield "all_gather", lambda: dist.all_gather_into_tensor(y, x[:part])
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(y[:part], x, op=dist.ReduceOp.SUM)
    yield "all_to_all", lambda: dist.all_to_all_single(y, x)
    yield "broadcast", lambda: dist.broadcast(x, 0)
    if SIZE == 2:
        yield "sendrecv", lambda: exchange(x, y)


def correct():
    """The sums of a few sizes, eager."""
    for n in (1, 1000, 1 << 20):
        x = torch.full((n,), RANK + 1.0, device=DEVICE)
        dist.all_reduce(x)
        expect(bool((x == SIZE * (SIZE + 1) / 2).all()), f"the right sum of {n}")


correct()
rows = 0
bytes_ = 1024
while bytes_ <= largest:
    times, repeats = (20, 15) if bytes_ < 16 << 20 else (5, 7) if bytes_ < 256 << 20 else (3, 3)
    for name, step in operations(bytes_ // 2):
        graph = graph_of(step, times)
        time_of(graph, 3)
        dist.barrier()
        torch.cuda.synchronize()
        row(op=name, bytes=bytes_, us=round(median(time_of(graph, repeats)) / times, 2))
        rows += 1
        del graph
    torch.cuda.empty_cache()
    bytes_ *= 4
say("torch collectives", f"{rows} rows, to {largest} bytes, sums right")
finish()
