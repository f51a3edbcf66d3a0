"""All-reduce + residual + norm in one kernel, on GPUs: right against float64, and its times beside NCCL's all-reduce with torch's norm.

    torchrun --standalone --nproc-per-node N bench/clients/inference_gpu.py [--quick] [--json FILE]

Times are microseconds of a call by slope between CUDA graphs of few and of many dependent calls: the median of replays, of the slowest rank. All
columns of a line are measured by turns, in one run. torch is its one-shot all-reduce over symmetric memory, with the same norm
behind it as NCCL's. The goal is that of two H100s, where there is one. The table comes last.
"""
import argparse
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import layer_norm, rms_norm

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
import mscclpp.torch_ops  # noqa: E402
from common import DEVICE, RANK, SIZE, expect, per_token, row, slopes, start  # noqa: E402

arguments = argparse.ArgumentParser()
arguments.add_argument("--quick", action="store_true", help="few sizes")
arguments.add_argument("--json", help="a file for the rows")
arguments = arguments.parse_args()
EPSILON = 1e-5
GOALS = {(8192, 1): 2.7, (8192, 4): 3.0, (8192, 16): 3.8, (8192, 64): 6.1, (8192, 256): 15.4, (4096, 1): 2.5, (4096, 16): 3.2, (4096, 64): 4.4, (4096, 256): 9.0}
ops = torch.ops.mscclpp
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}
rows = []
KEPT = []  # tensors of the graphs that are measured: a graph has addresses alone


def data(dtype, tokens, hidden, seed):
    """Return this rank's input, and residual, weight and bias, which are those of all ranks."""
    own = torch.Generator(DEVICE).manual_seed(1000 * seed + RANK + 1)
    shared = torch.Generator(DEVICE).manual_seed(1000 * seed)
    x = torch.randn(tokens, hidden, device=DEVICE, generator=own).to(dtype)
    residual = torch.randn(tokens, hidden, device=DEVICE, generator=shared).to(dtype)
    weight, bias = (torch.randn(hidden, device=DEVICE, generator=shared).to(dtype) for _ in range(2))
    return x, residual, weight, bias


def within(what, got, want, slack):
    error = (got.double() - want).abs() - slack
    expect(bool((error <= 0).all()), f"{what}: an error of at most the slack, not {error.max().item()} more")


def same(what, *tensors):
    """All ranks have the same bits."""
    for t in tensors:
        bits = t.contiguous().view(torch.uint8).view(-1)
        first = bits.clone()
        dist.broadcast(first, 0)
        expect(torch.equal(bits, first), f"{what}: one result on all ranks")


def check(dtype, tokens, hidden, shots):
    what = f"{dtype} {tokens}x{hidden} shots={shots}"
    unit = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    x, residual, weight, bias = data(dtype, tokens, hidden, tokens + hidden)
    parts = [torch.empty_like(x) for _ in range(SIZE)]
    dist.all_gather(parts, x)
    total = sum(p.double() for p in parts) + residual.double()
    space = mscclpp.torch_ops._space("", x)

    def call(**more):
        output = torch.empty(x.shape, dtype=more.pop("dtype", dtype), device=DEVICE)
        summed = torch.empty_like(x)
        at = {"input": x, "residual": residual, "weight": weight, "output": output, "residual_out": summed}
        at |= {k: more.pop(k) for k in ("bias", "scales", "scale") if k in more}
        space._norm({k: t.data_ptr() for k, t in at.items()}, tokens, hidden, mscclpp.torch_ops._CODES[dtype], EPSILON, more.get("norm", 0),
                    more.get("quantization", 0), shots, torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        within(what + " sum", summed, total, unit * total.abs() + 1e-5)
        same(what, output, summed)
        return output, summed.double()

    for _ in range(3):
        output, s = call()
        want = rms_norm(s, (hidden,), weight.double(), EPSILON)
        within(what, output, want, unit * want.abs() + 1e-4)
    output, s = call(norm=1, bias=bias)
    want = layer_norm(s, (hidden,), weight.double(), bias.double(), EPSILON)
    within(what + " layer norm", output, want, unit * want.abs() + 1e-3)
    for quantization, kind in ((1, torch.float8_e4m3fn), (2, torch.float8_e4m3fn), (3, torch.int8), (4, torch.int8)):
        scale = torch.full((tokens, 1) if quantization % 2 else (1,), 0.03, device=DEVICE)
        output, s = call(quantization=quantization, dtype=kind, **{"scales" if quantization % 2 else "scale": scale})
        want = rms_norm(s, (hidden,), weight.double(), EPSILON)
        limit = (448 if kind == torch.float8_e4m3fn else 127) * scale.double()
        want = torch.maximum(torch.minimum(want, limit), -limit * (1 if kind == torch.float8_e4m3fn else 128 / 127))
        slack = unit * want.abs() + scale.double() * 0.51 + (want.abs() / 15 if kind == torch.float8_e4m3fn else 0)
        within(f"{what} quantization {quantization}", output.double() * scale.double(), want, slack)


def ways(tokens, hidden, dtype):
    """Yield a name and a function that makes a call, for each way."""
    x, residual, weight, _ = data(dtype, tokens, hidden, 7)
    space, code = mscclpp.torch_ops._space("", x), mscclpp.torch_ops._CODES[dtype]
    scales = torch.empty(tokens, 1, device=DEVICE)
    eight = torch.empty(tokens, hidden, dtype=torch.float8_e4m3fn, device=DEVICE)
    at = {"input": x.data_ptr(), "residual": residual.data_ptr(), "weight": weight.data_ptr(), "output": x.data_ptr(), "residual_out": residual.data_ptr()}

    def fused(shots):
        return lambda: space._norm(at, tokens, hidden, code, EPSILON, 0, 0, shots, torch.cuda.current_stream().cuda_stream)

    def quantized():
        to = at | {"output": eight.data_ptr(), "scales": scales.data_ptr()}
        space._norm(to, tokens, hidden, code, EPSILON, 0, 1, 0, torch.cuda.current_stream().cuda_stream)

    def nccl():
        dist.all_reduce(x)
        residual.add_(x)
        x.copy_(rms_norm(residual, (hidden,), weight, EPSILON))

    def plain():
        dist.all_reduce(x)
        x.mul_(1.0 / SIZE)

    def torch_symmetric():
        residual.add_(torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", dist.group.WORLD.group_name))
        shared.copy_(rms_norm(residual, (hidden,), weight, EPSILON))

    yield "one-shot", fused(1)
    yield "two-shot", fused(2)
    yield "chosen", fused(0)
    yield "fp8", quantized
    yield "nccl+norm", nccl
    yield "nccl", plain
    shared = symmetric(x)
    KEPT.append((x, residual, weight, scales, eight, shared))
    if shared is not None:
        yield "torch", torch_symmetric


def symmetric(like):
    """A tensor in torch's symmetric memory; None without it."""
    try:
        import torch.distributed._symmetric_memory as memory
        shared = memory.empty(like.shape, dtype=like.dtype, device=like.device)
        memory.rendezvous(shared, dist.group.WORLD)
        torch.ops.symm_mem.one_shot_all_reduce(shared.zero_(), "sum", dist.group.WORLD.group_name)
    except (ImportError, RuntimeError, AttributeError) as error:
        if not rows and RANK == 0:
            print(f"no symmetric memory of torch: {error}", flush=True)
        return None
    return shared


def measure(tokens, hidden, dtype):
    KEPT.clear()
    found = slopes(dict(ways(tokens, hidden, dtype)))
    rows.append({"operator": "all_reduce_rms_norm", "ranks": SIZE, "gpu": torch.cuda.get_device_name(), "hidden": hidden, "tokens": tokens, "type": NAMES[dtype], "us": found})
    row(**rows[-1])


def table():
    names = list(dict.fromkeys(name for r in rows for name in r["us"]))
    print(f"{'type':>5}{'hidden x tokens':>18}" + "".join(f"{n:>11}" for n in names) + f"{'goal':>8}")
    for r in rows:
        goal = GOALS.get((r["hidden"], r["tokens"])) if SIZE == 2 else None
        times = "".join(f"{r['us'][n]:>11.2f}" if n in r["us"] else " " * 11 for n in names)
        print(f"{r['type']:>5}{r['hidden']:>10} x {r['tokens']:<5}{times}" + (f"{goal:>8}" if goal else ""), flush=True)
    per_token([r for r in rows if r["type"] == "bf16"], "hidden")


def main():
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    start()
    mscclpp.torch_ops.enable()
    for shots in (1, 2):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for tokens, hidden in ((1, 8), (3, 1032), (1, 8192), (5, 4096), (7, 16392), (300, 2048)) if not arguments.quick else ((3, 1032), (1, 8192)):
                check(dtype, tokens, hidden, shots)
    if RANK == 0:
        print(f"{SIZE} ranks on {torch.cuda.get_device_name()}: results are right", flush=True)
    for dtype in (torch.bfloat16, torch.float16) if not arguments.quick else (torch.bfloat16,):
        for hidden in (4096, 8192, 16384) if not arguments.quick else (4096, 8192):
            for tokens in (1, 4, 16, 64, 256) if dtype is torch.bfloat16 else (1, 16, 256):
                measure(tokens, hidden, dtype)
    if arguments.json and RANK == 0:
        with open(arguments.json, "w") as file:
            file.writelines(json.dumps(r) + "\n" for r in rows)
    if RANK == 0:
        table()
    torch.cuda.synchronize()
    mscclpp.torch_ops.disable()
    dist.destroy_process_group()


main()
