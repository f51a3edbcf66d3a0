"""torch.distributed on CPU tensors: the backend mscclpp compared with gloo, by turns in one run.

    mscclpp-run -n 2 -- python torch_cpu.py [largest size in bytes [rounds [operation]]] >2-ranks.jsonl
    python torch_cpu.py summary 2-ranks.*.jsonl

A round of one operation and size is a block of calls over each backend, in an order that alternates; a block's time is that of its
slowest rank. A row has the least and the median time of a call over all rounds, in microseconds, and `ratio`: the median of the rounds'
quotients, mscclpp's time over gloo's. Sizes are bytes of the larger buffer of a rank.
"""

import datetime
import json
import math
import sys
import time


def summary(files):
    """Print a line for each operation: the mean and the largest ratio of each run."""
    runs = [[json.loads(line) for line in open(f, encoding="utf-8")] for f in files]
    names = list(dict.fromkeys(r["op"] for r in runs[0]))
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values))  # noqa: E731 - of quotients
    text = lambda values: f"{min(values):.2f} to {max(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"  # noqa: E731
    print(f"{'':22}{'mean ratio':>14}{'largest ratio':>16}")
    for name in [*names, "all"]:
        ratios = [[r["ratio"] for r in run if name in (r["op"], "all")] for run in runs]
        print(f"{name:22}{text([mean(r) for r in ratios]):>14}{text([max(r) for r in ratios]):>16}")


if sys.argv[1:2] == ["summary"]:
    summary(sys.argv[2:])
    sys.exit()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import mscclpp.torch  # noqa: E402, F401 - registers the backend

LARGEST = int(sys.argv[1]) if len(sys.argv) > 1 else 16 << 20
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 9
ONLY = sys.argv[3:4]
torch.set_num_threads(1)
limit = datetime.timedelta(seconds=300)
dist.init_process_group("gloo", timeout=limit)
rank, size = dist.get_rank(), dist.get_world_size()
groups = {"gloo": dist.group.WORLD, "mscclpp": dist.new_group(backend="mscclpp", timeout=limit)}


def operations(n, group):
    """Yield the operations that both backends have, with n floats in the larger buffer."""
    x, y, part = torch.ones(n), torch.empty(n), torch.ones(n // size)
    parts = [torch.empty(n // size) for _ in range(size)]
    root = rank == 0
    yield "all_reduce", lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=group)
    yield "reduce", lambda: dist.reduce(x, 0, dist.ReduceOp.MAX, group=group)
    yield "broadcast", lambda: dist.broadcast(x, 0, group=group)
    yield "all_gather", lambda: dist.all_gather(parts, part, group=group)
    yield "all_gather_into_tensor", lambda: dist.all_gather_into_tensor(y, part, group=group)
    yield "reduce_scatter", lambda: dist.reduce_scatter(part, parts, dist.ReduceOp.MAX, group=group)
    yield "reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(part, x, dist.ReduceOp.MAX, group=group)
    yield "gather", lambda: dist.gather(part, parts if root else None, 0, group=group)
    yield "scatter", lambda: dist.scatter(part, parts if root else None, 0, group=group)
    yield "all_to_all_single", lambda: dist.all_to_all_single(y, x, group=group)
    yield "send and recv", lambda: ring(x, y, group)
    yield "async all_reduce", lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=group, async_op=True).wait()
    if n == 256:
        yield "barrier", lambda: dist.barrier(group=group)


def ring(x, y, group):
    """Pass a message on to the next rank."""
    works = [dist.isend(x, (rank + 1) % size, group=group), dist.irecv(y, (rank - 1) % size, group=group)]
    for work in works:
        work.wait()


times = torch.zeros(1)


def block(call, calls):
    """Return the microseconds of a call, on the slowest rank."""
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    times[0] = (time.perf_counter() - begun) / calls * 1e6
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return float(times)


def median(values):
    values = sorted(values)
    return (values[len(values) // 2] + values[~(len(values) // 2)]) / 2


n = 1024
while n <= LARGEST:
    both = zip(operations(n // 4, groups["gloo"]), operations(n // 4, groups["mscclpp"]))
    for (name, theirs), (_, ours) in both:
        if ONLY and name not in ONLY:
            continue
        calls = max(2, min(100, (2 << 20) // n))
        for call in (theirs, ours):
            block(call, 3)
        rounds = []
        for i in range(ROUNDS):
            if i % 2:
                b, a = block(ours, calls), block(theirs, calls)
            else:
                a, b = block(theirs, calls), block(ours, calls)
            rounds.append((a, b))
        if rank == 0:
            print(json.dumps({
                "op": name, "bytes": n, "ranks": size, "gloo": round(median([a for a, _ in rounds]), 1), "gloo_least": round(min(a for a, _ in rounds), 1),
                "mscclpp": round(median([b for _, b in rounds]), 1), "mscclpp_least": round(min(b for _, b in rounds), 1),
                "ratio": round(median([b / a for a, b in rounds]), 3)}), flush=True)
    n *= 4
dist.barrier()
dist.destroy_process_group()
