"""Dispatch and combine of experts on GPUs: right against a reference, and their times beside NCCL's all-gather and reduce-scatter.

    torchrun --standalone --nproc-per-node N bench/clients/moe_gpu.py [--quick] [--json FILE]

Times are microseconds of a call by slope between CUDA graphs of few and of many dependent calls: the median of replays, of the slowest rank. All
columns of a line are measured by turns, in one run. A pair is a dispatch and its combine; "weights" have come with the dispatch.
"""
import argparse
import json
import os
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
import mscclpp.deep_ep as deep_ep  # noqa: E402
from common import DEVICE, RANK, SIZE, expect, per_token, row, slopes, start  # noqa: E402

arguments = argparse.ArgumentParser()
arguments.add_argument("--quick", action="store_true", help="few sizes")
arguments.add_argument("--json", help="a file for the rows")
arguments = arguments.parse_args()
rows = []


def inputs(r, tokens, hidden, experts, top, seed):
    """Return rows, experts and weights of a rank, which all ranks can compute."""
    g = torch.Generator(DEVICE).manual_seed(1000 * seed + r)
    x = torch.randn(tokens, hidden, device=DEVICE, generator=g).to(torch.bfloat16)
    chosen = torch.topk(torch.rand(tokens, experts, device=DEVICE, generator=g), top, -1)[1]
    chosen[torch.rand(tokens, top, device=DEVICE, generator=g) < 0.05] = -1
    return x, chosen, torch.rand(tokens, top, device=DEVICE, generator=g)


def numbers(received, n, e):
    """Return rows of an expert as they are meant."""
    if not isinstance(received, tuple):
        return received[e, :n].double()
    data, scales = received[0][e, :n].double(), received[1][e, :n].double()
    groups, hidden = scales.shape[-1], data.shape[-1]
    return (data.view(n, groups, hidden // groups) * scales.unsqueeze(-1)).view(n, hidden)


def check(buffer, most, hidden, experts, top, seed, fp8, hooked, brought):
    what = f"{most} tokens, {hidden}, top {top} of {experts}, fp8={fp8} hook={hooked} weights={brought}"
    tokens = [(most - r * seed) % (most + 1) for r in range(SIZE)]
    all_inputs = [inputs(r, tokens[r], hidden, experts, top, seed) for r in range(SIZE)]
    x, chosen, weights = all_inputs[RANK]
    received, count, handle, _, hook = buffer.low_latency_dispatch(
        x, chosen, most, experts, use_fp8=fp8, return_recv_hook=hooked, **({"topk_weights": weights} if brought else {}))
    if hooked:
        hook()
    torch.cuda.synchronize()
    local = -(-experts // SIZE)
    rows_of = torch.full((local, SIZE * most, hidden), float("nan"), dtype=torch.bfloat16, device=DEVICE)
    counts = count.tolist()
    for e in range(local):
        parts = [(chosen_r == RANK * local + e).any(-1).nonzero().view(-1) for _, chosen_r, _ in all_inputs]
        want = torch.cat([all_inputs[r][0][p] for r, p in enumerate(parts)]).double()
        expect(counts[e] == len(want), f"{what}: {len(want)} rows of expert {e}, not {counts[e]}")
        expect(torch.equal(handle[0][e, : len(want)].long(), torch.cat(parts)), f"{what}: the tokens of expert {e}")
        got = numbers(received, len(want), e)
        expect(bool(((got - want).abs() <= (0.07 * want.abs() + 0.01 if fp8 else 0)).all()), f"{what}: the rows of expert {e}")
        rows_of[e, : len(want)] = want.to(torch.bfloat16)
    got, _, hook = buffer.low_latency_combine(rows_of, chosen, None if brought else weights, handle, return_recv_hook=hooked)
    if hooked:
        hook()
    torch.cuda.synchronize()
    want = x.double() * torch.where(chosen >= 0, weights, 0).double().sum(-1, keepdim=True)
    expect(bool(((got.double() - want).abs() <= 0.012 * want.abs() + 1e-6).all()), f"{what}: the sums")


def ways(buffer, tokens, hidden, experts, top):
    """Yield a name and a function that makes a call, for each way."""
    x, chosen, weights = inputs(RANK, tokens, hidden, experts, top, 3)
    most = tokens
    received, count, handle, _, _ = buffer.low_latency_dispatch(x, chosen, most, experts, use_fp8=False, topk_weights=weights)
    plain = buffer.low_latency_dispatch(x, chosen, most, experts, use_fp8=False)[2]
    eight, scales = x.float().div(8).to(torch.float8_e4m3fn), torch.full((tokens, hidden // 128), 8.0, device=DEVICE)
    out, gathered = torch.empty_like(x), torch.empty(SIZE * tokens, hidden, dtype=x.dtype, device=DEVICE)

    def dispatch(fp8):
        return lambda: buffer.low_latency_dispatch(x, chosen, most, experts, use_fp8=fp8, topk_weights=weights)

    def pair():
        rows_of, _, h, _, _ = buffer.low_latency_dispatch(x, chosen, most, experts, use_fp8=False, topk_weights=weights)
        buffer.low_latency_combine(rows_of, chosen, None, h, out=out)

    yield "dispatch", dispatch(False)
    yield "cast fp8", dispatch(True)
    yield "given fp8", lambda: buffer.low_latency_dispatch((eight, scales), chosen, most, experts, topk_weights=weights)
    yield "combine", lambda: buffer.low_latency_combine(received, chosen, None, handle, out=out)
    yield "+weights", lambda: buffer.low_latency_combine(received, chosen, weights, plain, out=out)
    yield "pair", pair
    yield "all-gather", lambda: dist.all_gather_into_tensor(gathered, x)
    yield "red.-scat.", lambda: dist.reduce_scatter_tensor(out, gathered)


def measure(buffer, tokens, hidden, experts, top):
    found = slopes(dict(ways(buffer, tokens, hidden, experts, top)))
    rows.append({"operator": "moe", "ranks": SIZE, "gpu": torch.cuda.get_device_name(), "hidden": hidden, "tokens": tokens, "experts": experts, "top": top, "us": found})
    row(**rows[-1])


# The design's times as a prototype had them, on two H100s with hidden 7168: dispatch, fp8, combine.
PROTOTYPE = {1: (2.61, 2.90, 3.05), 8: (3.43, 3.72, 3.44), 32: (4.37, 4.23, 4.50), 128: (9.56, 6.77, 8.74)}


def table():
    names = list(rows[0]["us"])
    print(f"{'experts':>8}{'tokens':>8}" + "".join(f"{n:>11}" for n in names) + "   prototype: dispatch, fp8, combine", flush=True)
    for r in rows:
        known = PROTOTYPE.get(r["tokens"]) if SIZE == 2 else None
        print(f"{r['experts']:>8}{r['tokens']:>8}" + "".join(f"{r['us'][n]:>11.2f}" for n in names) + (f"   {known}" if known else ""), flush=True)
    per_token(rows, "experts")


def main():
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    start()
    buffer = deep_ep.Buffer(dist.group.WORLD, low_latency_mode=True, explicitly_destroy=True)
    for most, hidden, experts, top in ((1, 128, SIZE, 1), (9, 1024, 10, 3), (33, 7168, 64, 8), (128, 7168, 256, 8), (17, 512, 512, 16)) if not arguments.quick else ((33, 7168, 64, 8),):
        for seed, (fp8, hooked, brought) in enumerate(((False, False, True), (True, False, False), (False, True, False), (True, True, True), (False, False, False))):
            check(buffer, most, hidden, experts, top, seed, fp8, hooked, brought)
    if RANK == 0:
        print(f"{SIZE} ranks on {torch.cuda.get_device_name()}: results are right", flush=True)
    for experts in (64, 256):
        for tokens in (1, 8, 32, 128) if not arguments.quick else (8, 128):
            measure(buffer, tokens, 7168, experts, 8)
    if RANK == 0:
        table()
        size = deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, SIZE, 256)
        print(f"memory for 128 tokens, hidden 7168, 256 experts: {size / 2**20:.1f} MiB on each rank", flush=True)
        if arguments.json:
            with open(arguments.json, "w") as file:
                file.writelines(json.dumps(r) + "\n" for r in rows)
    torch.cuda.synchronize()
    buffer.destroy()
    dist.destroy_process_group()


main()
