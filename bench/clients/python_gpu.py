"""The Python package on two or more GPUs: mscclpp-run -n 2 -- python python_gpu.py [part…], without a library preloaded.

Parts: operations (all of torch.distributed on CUDA tensors, the backend mscclpp compared with nccl), training (DDP and FSDP2, losses compared with nccl),
graphs (collectives captured by torch), arrays (CuPy and JAX, where they are installed), kernel (the example with a kernel compiled by NVRTC),
host (what a call costs the host), times (mscclpp and nccl by turns in CUDA graphs). Without names all run. A line for each part.
"""

import contextlib
import datetime
import io
import json
import os
import runpy
import sys
import time

# Set before NCCL and JAX are loaded: multicast must stay off on hosts whose GPUs others share, and JAX would take three quarters of all GPUs.
os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", XLA_PYTHON_CLIENT_PREALLOCATE="false")

import torch
import torch.distributed as dist

import mscclpp
import mscclpp.torch

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
HERE = os.path.dirname(os.path.abspath(__file__))
torch.cuda.set_device(DEVICE)
limit = datetime.timedelta(seconds=120)
dist.init_process_group("nccl", timeout=limit, device_id=DEVICE)
groups = {"nccl": dist.group.WORLD, "mscclpp": dist.new_group(backend="mscclpp", timeout=limit)}


def expect(condition, text):
    if not condition:
        print(f"rank {RANK}: expected {text}", file=sys.stderr, flush=True)
        os._exit(1)


def full(*shape, dtype=torch.float32):
    """Small integers, whose sums are exact, different on each rank."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, device=DEVICE) % 13 + RANK).to(dtype).view(shape)


def calls(n, dtype):
    """Yield names and functions of a group that return tensors."""
    def one(function, *tensors):
        def call(group):
            copies = [t.clone() for t in tensors]
            function(group, *copies)
            return copies
        return call
    x, part, whole, op = full(n, dtype=dtype), full(n, dtype=dtype), full(n * SIZE, dtype=dtype), dist.ReduceOp
    for kind in (op.SUM, op.MAX, op.MIN, op.PRODUCT, *((op.AVG,) if dtype.is_floating_point else ())):
        yield f"all_reduce {kind}", one(lambda g, t, kind=kind: dist.all_reduce(t, kind, group=g), x % 3)
    yield "broadcast", one(lambda g, t: dist.broadcast(t, 1, group=g), x)
    yield "reduce", one(lambda g, t: (dist.reduce(t, 1, group=g), t.mul_(RANK == 1)), x)
    yield "all_gather_into_tensor", one(lambda g, o, t: dist.all_gather_into_tensor(o, t, group=g), whole, part)
    yield "reduce_scatter_tensor", one(lambda g, o, t: dist.reduce_scatter_tensor(o, t, group=g), part, whole)
    yield "all_to_all_single", one(lambda g, o, t: dist.all_to_all_single(o, t, group=g), torch.zeros_like(whole), whole)
    yield "all_gather", one(lambda g, t, *o: dist.all_gather(list(o), t, group=g), part, *[torch.zeros_like(part) for _ in range(SIZE)])
    yield "reduce_scatter", one(lambda g, o, *t: dist.reduce_scatter(o, list(t), group=g), part, *[full(n, dtype=dtype) + r for r in range(SIZE)])
    yield "gather", one(lambda g, t, *o: dist.gather(t, list(o) if RANK == 0 else None, 0, group=g), part, *[torch.zeros_like(part) for _ in range(SIZE)])
    yield "scatter", one(lambda g, o, *t: dist.scatter(o, list(t) if RANK == 1 else None, 1, group=g), part, *[full(n, dtype=dtype) + r for r in range(SIZE)])
    yield "all_to_all", one(lambda g, *t: dist.all_to_all(list(t[:SIZE]), list(t[SIZE:]), group=g),
                            *[torch.zeros_like(part) for _ in range(SIZE)], *[full(n, dtype=dtype) + r for r in range(SIZE)])

    def ring(g, o, t):
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, t, (RANK + 1) % SIZE, g), dist.P2POp(dist.irecv, o, (RANK - 1) % SIZE, g)]):
            work.wait()
    yield "batch", one(ring, torch.zeros_like(part), part)

    def asynchronous(g, *tensors):
        works = [dist.all_reduce(t, group=g, async_op=True) for t in tensors]
        for work, t in zip(works, tensors):
            work.wait()
            t.add_(1)
    yield "asynchronous", one(asynchronous, *[full(n, dtype=dtype) for _ in range(8)])
    if n % 2 == 0:  # nccl refuses such tensors
        yield "not contiguous", one(lambda g, t: dist.all_reduce(t if g is groups["nccl"] else t.view(-1, 2).t(), group=g), x)


def operations():
    rows = 0
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        for n in (1, 1000, 1 << 18):
            for name, call in calls(n, dtype):
                want, got = call(groups["nccl"]), call(groups["mscclpp"])
                expect(all(torch.equal(a, b) for a, b in zip(want, got)), f"{name} of {n} {dtype} as with nccl: {got}: {want}")
                rows += 1
    dist.barrier(group=groups["mscclpp"])
    every = [None] * SIZE
    dist.all_gather_object(every, RANK, group=groups["mscclpp"])
    expect(every == list(range(SIZE)), f"objects: {every}")
    future = dist.all_reduce(torch.ones(5, device=DEVICE), group=groups["mscclpp"], async_op=True).get_future()
    expect(bool((future.then(lambda f: f.value()[0] * 2).wait() == 2 * SIZE).all()), "a future")
    return f"{rows} comparisons are equal to nccl"


def training():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    def train(make):
        torch.manual_seed(0)
        model = make(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).to(DEVICE))
        optimizer, data, losses = torch.optim.SGD(model.parameters(), lr=0.05), torch.Generator(DEVICE).manual_seed(RANK), []
        for _ in range(20):
            x = torch.randn(32, 64, generator=data, device=DEVICE)
            loss = (model(x) - x[:, :8]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    def shard(group):
        mesh = DeviceMesh.from_group(group, "cuda")
        return lambda model: (fully_shard(model, mesh=mesh), model)[1]
    for name, make in (("DDP", lambda g: lambda m: DistributedDataParallel(m, process_group=g)), ("FSDP2", shard)):
        want, got = train(make(groups["nccl"])), train(make(groups["mscclpp"]))
        expect(torch.allclose(want, got, rtol=1e-6, atol=1e-6), f"the losses of {name} with nccl: {got}: {want}")
    return "losses of DDP and FSDP2 are those of nccl"


def graphs():
    x, side = torch.zeros(1 << 16, device=DEVICE), torch.cuda.Stream()
    for asynchronous in (False, True):
        with torch.cuda.stream(side):
            dist.all_reduce(x, group=groups["mscclpp"])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            work = dist.all_reduce(x, group=groups["mscclpp"], async_op=asynchronous)
            if asynchronous:
                work.wait()
            x.add_(1)
        for turn in range(3):
            x.fill_(RANK + turn)
            graph.replay()
            torch.cuda.synchronize()
            expect(bool((x == sum(range(SIZE)) + turn * SIZE + 1).all()), f"sums of replay {turn}: {x[0]}")
    with mscclpp.Communicator(_id(), RANK, SIZE, device=f"cuda:{DEVICE.index}") as comm:
        comm.prepare("allreduce", "float32")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            comm.all_reduce(x)
        x.fill_(1)
        graph.replay()
        torch.cuda.synchronize()
        expect(bool((x == SIZE).all()), "sums of a graph of the package")
    return "captures are right"


def _id():
    box = [mscclpp.UniqueId.create().bytes if RANK == 0 else None]
    dist.broadcast_object_list(box, 0)
    return box[0]


def arrays():
    done = []
    with mscclpp.Communicator(_id(), RANK, SIZE, device=f"cuda:{DEVICE.index}") as comm:
        memory = comm.alloc(4096)
        view = torch.utils.dlpack.from_dlpack(memory.to_dlpack("float32"))
        view.fill_(RANK)
        comm.all_reduce(memory_view := view)
        expect(bool((memory_view == sum(range(SIZE))).all()), "sums in memory of the library, as a tensor")
        try:
            import cupy
        except ImportError:
            pass
        else:
            cupy.cuda.Device(DEVICE.index).use()
            with cupy.cuda.Stream(non_blocking=True):
                x = cupy.full(1000, RANK + 1, "float32")
                comm.all_reduce(x)
                expect(bool((x == SIZE * (SIZE + 1) / 2).all()), "sums of CuPy")
            buffer = mscclpp.GpuBuffer((10, 10), "float32", device=comm)
            buffer += RANK
            comm.all_reduce(buffer)
            expect(bool((buffer == sum(range(SIZE))).all()), "sums in a GpuBuffer")
            done.append(f"CuPy {cupy.__version__}")
        try:
            import jax
        except ImportError:
            pass
        else:
            gpu = [d for d in jax.devices() if d.platform == "gpu"][DEVICE.index]
            with jax.default_device(gpu):
                x = jax.numpy.full(1000, RANK + 1.0, "float32")
            out = torch.zeros(1000, device=DEVICE)
            comm.all_reduce(x, out)
            expect(bool((out == SIZE * (SIZE + 1) / 2).all()), "sums of JAX")
            done.append(f"JAX {jax.__version__}")
    return ", ".join(done) or "neither CuPy nor JAX is installed"


def kernel():
    if SIZE != 2:
        return "it is for two ranks"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(os.path.join(HERE, "..", "..", "examples", "python", "kernel.py"), run_name="__main__")
    expect(f"rank {RANK}: 1000 sums are right" in out.getvalue(), f"right sums of the example: {out.getvalue()}")
    return "the example has run"


def least(call, repeats=30, times=200):
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter() - begun) / times * 1e6)
        torch.cuda.synchronize()
    return round(best, 2)


def host():
    x = torch.zeros(256, device=DEVICE)
    row = {"package": None, **{name: least(lambda g=g: dist.all_reduce(x, group=g)) for name, g in groups.items()}}
    with mscclpp.Communicator(_id(), RANK, SIZE, device=f"cuda:{DEVICE.index}") as comm:
        row["package"] = least(lambda: comm.all_reduce(x))
        row["package, address and stream known"] = least(lambda stream=torch.cuda.current_stream().cuda_stream: comm.all_reduce(x, stream=stream))
    return "µs of an all_reduce of 1 KiB on the host: " + json.dumps(row, ensure_ascii=False)


def times():
    lines = []
    for size in (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26):
        x, row = torch.zeros(size // 2, dtype=torch.float16, device=DEVICE), {"bytes": size}
        made = {}
        for name, group in groups.items():
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                dist.all_reduce(x, group=group)
            torch.cuda.synchronize()
            made[name] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(made[name], stream=side, capture_error_mode="thread_local"):
                for _ in range(20):
                    dist.all_reduce(x, group=group)
        results = {name: [] for name in groups}
        for _ in range(9):
            for name, graph in made.items():
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                results[name].append(begin.elapsed_time(end) * 1000 / 20)
        row.update({name: round(sorted(values)[4], 2) for name, values in results.items()})
        lines.append(json.dumps(row))
    return "µs of all_reduce in graphs\n" + "\n".join(lines)


for part in (operations, training, graphs, arrays, kernel, host, times):
    if len(sys.argv) < 2 or part.__name__ in sys.argv[1:]:
        text = part()
        dist.barrier()
        if RANK == 0:
            print(f"CLIENT python {part.__name__}: {text}", flush=True)
dist.destroy_process_group()
