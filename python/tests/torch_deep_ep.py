"""Dispatch and combine with the interface of DeepEP on CPU: results, phases, operators, and what is refused."""

import sys

import torch
import torch.distributed as dist

import mscclpp
import mscclpp.deep_ep as deep_ep
import mscclpp.torch

dist.init_process_group("mscclpp")
rank, size = dist.get_rank(), dist.get_world_size()
MOST, HIDDEN, EXPERTS, TOP = 8, 512, 10, 4
LOCAL = -(-EXPERTS // size)
ops = torch.ops.mscclpp


def tokens_of(r, seed):
    return (r * 3 + seed) % (MOST + 1)


def inputs(r, seed):
    """Return rows, experts and weights of a rank, which all ranks know."""
    g = torch.Generator().manual_seed(100 * seed + r)
    n = tokens_of(r, seed)
    x = torch.randn(n, HIDDEN, generator=g).to(torch.bfloat16)
    scores = torch.rand(n, EXPERTS, generator=g)
    chosen = torch.topk(scores, TOP, -1)[1]
    chosen[torch.rand(n, TOP, generator=g) < 0.1] = -1
    return x, chosen, torch.rand(n, TOP, generator=g)


def expected(seed, e):
    """Return the rows of a local expert, their tokens, and how many come from each rank."""
    rows, sources, counts = [], [], []
    for r in range(size):
        x, chosen, _ = inputs(r, seed)
        which = (chosen == rank * LOCAL + e).any(-1).nonzero().view(-1)
        rows.append(x[which])
        sources += which.tolist()
        counts.append(len(which))
    return torch.cat(rows), sources, counts


def values(received, n, e):
    """Return rows of an expert as numbers."""
    if not isinstance(received, tuple):
        return received[e, :n].double()
    rows, scales = received
    scales = scales[e, :n].clone(memory_format=torch.contiguous_format)
    if scales.dtype == torch.int32:
        scales = torch.exp2(scales.view(torch.uint8).double() - 127)
    return (rows[e, :n].double().view(n, scales.shape[-1], HIDDEN // scales.shape[-1]) * scales.double().unsqueeze(-1)).view(n, HIDDEN)


def check(seed, received, count, handle, slack):
    for e in range(LOCAL):
        rows, sources, counts = expected(seed, e)
        n = count[e].item()
        assert n == len(sources) and handle[0][e, :n].tolist() == sources, (e, n, sources)
        ranges = [(begin << 32) + c for begin, c in zip([sum(counts[:r]) for r in range(size)], counts)]
        assert handle[1][e].tolist() == ranges, (handle[1][e], ranges)
        error = (values(received, n, e) - rows.double()).abs() - slack * rows.double().abs()
        assert n == 0 or error.max() <= slack * 0.02, error.max()


def combined(seed, got):
    x, chosen, weights = inputs(rank, seed)
    want = x.double() * torch.where(chosen >= 0, weights, 0).double().sum(-1, keepdim=True)
    assert got.dtype == torch.bfloat16 and torch.allclose(got.double(), want, 1e-2, 1e-6), (got, want)


def experts(received, count, handle):
    """Return rows that are those which came, and nonsense behind them."""
    out = torch.full((LOCAL, size * handle[2], HIDDEN), float("nan"), dtype=torch.bfloat16)
    for e in range(LOCAL):
        out[e, : count[e]] = values(received, count[e].item(), e).to(torch.bfloat16)
    return out


def results(buffer):
    statistics, total = torch.zeros(LOCAL, dtype=torch.int32), torch.zeros(LOCAL, dtype=torch.int32)
    for seed in range(12):
        x, chosen, weights = inputs(rank, seed)
        chosen = chosen if seed % 2 else chosen.to(torch.int32)
        use_fp8, hooked = seed % 3 > 0, seed % 4 > 1
        form = {"use_fp8": use_fp8, "round_scale": seed % 3 == 2, "use_ue8m0": seed % 3 == 2}
        brought = {"topk_weights": weights} if seed % 5 == 0 else {}
        received, count, handle, event, hook = buffer.low_latency_dispatch(
            x, chosen, MOST, EXPERTS, statistics, **form, **brought, async_finish=seed % 4 == 1, return_recv_hook=hooked)
        if hooked:
            hook()
        elif seed % 4 == 1:
            event.current_stream_wait()
        total += count
        check(seed, received, count, handle, 0.07 if use_fp8 else 0)
        rows, out = experts(received, count, handle), None
        if seed % 3 == 0:
            rows, out = buffer.get_next_low_latency_combine_buffer(handle).copy_(rows), torch.empty_like(x)
        got, event, hook = buffer.low_latency_combine(rows, chosen, None if brought else weights, handle, zero_copy=seed % 3 == 0, return_recv_hook=hooked, out=out)
        if hooked:
            hook()
        if not use_fp8:
            combined(seed, got)
        assert out is None or got is out
    assert torch.equal(statistics, total)


def given(buffer):
    """Rows of 8 bits and their scales come as they are."""
    x, chosen, _ = inputs(rank, 4)
    scales = x.float().abs().amax(-1, keepdim=True) / 448
    eight = (x.float() / scales).to(torch.float8_e4m3fn)
    received, count, handle, _, _ = buffer.low_latency_dispatch((eight, scales), chosen, MOST, EXPERTS)
    assert received[1].shape == (LOCAL, size * MOST, 1)
    check(4, received, count, handle, 0.07)


def traced(buffer):
    """A layer of experts is one graph, and its result the same."""
    x, chosen, weights = inputs(rank, 5)

    def layer(x, chosen, weights):
        rows, scales, count, sources, ranges, records = ops.moe_dispatch(x * 1, chosen, weights, MOST, EXPERTS, False, False, False, buffer.number)
        return ops.moe_combine(rows * 1, chosen, None, records, MOST, EXPERTS, buffer.number) * 1

    combined(5, torch.compile(layer, backend="aot_eager", fullgraph=True)(x, chosen, weights))
    combined(5, layer(x, chosen, weights))
    shapes = ("test_schema", "test_faketensor")
    torch.library.opcheck(ops.moe_dispatch.default, (x, chosen, weights, MOST, EXPERTS, True, True, True, buffer.number), test_utils=shapes)


def refusals(buffer):
    x, chosen, weights = torch.zeros(2, HIDDEN, dtype=torch.bfloat16), torch.zeros(2, TOP, dtype=torch.int64), torch.ones(2, TOP)
    dispatch = buffer.low_latency_dispatch
    for text, call in (
        ("x has torch.float32", lambda: dispatch(x.float(), chosen, MOST, EXPERTS)),
        ("at most 1 rows", lambda: dispatch(x, chosen, 1, EXPERTS)),
        ("topk_idx has torch.int16", lambda: dispatch(x, chosen.to(torch.int16), MOST, EXPERTS)),
        ("topk_weights has torch.float64", lambda: dispatch(x, chosen, MOST, EXPERTS, topk_weights=weights.double())),
        ("multiple of 128", lambda: dispatch(x[:, :64].contiguous(), chosen, MOST, EXPERTS)),
        ("without round_scale", lambda: dispatch(x, chosen, MOST, EXPERTS, use_ue8m0=True)),
        ("one of them at most", lambda: dispatch(x, chosen, MOST, EXPERTS, async_finish=True, return_recv_hook=True)),
        ("expected 1 to 16", lambda: dispatch(x, torch.zeros(2, 17, dtype=torch.int64), MOST, EXPERTS)),
        ("num_rdma_bytes", lambda: dispatch(torch.zeros(2, 1 << 16, dtype=torch.bfloat16), chosen, MOST, EXPERTS)),
        ("high-throughput", lambda: buffer.dispatch(x)),
        ("x has torch.bfloat16, shape (2, 512), strides (512, 1) on meta", lambda: dispatch(x.to("meta"), chosen.to("meta"), MOST, EXPERTS)),
        ("as it was returned", lambda: buffer.low_latency_combine(x, chosen, weights, (None, None, MOST, HIDDEN, EXPERTS))),
        ("expected none", lambda: buffer.low_latency_combine(x, chosen, weights, (), use_logfmt=True)),
        ("enable_shrink", lambda: deep_ep.Buffer(dist.group.WORLD, enable_shrink=True)),
        ("attribute number", lambda: ops.moe_dispatch(x, chosen, None, MOST, EXPERTS, True, False, False, 77)),
    ):
        refused(text, call)


def handles(buffer):
    """A handle is of a dispatch of the same buffer, of the same tokens, and not before the buffer was made larger."""
    x, chosen, weights = inputs(rank, 1)
    received, count, handle, _, _ = buffer.low_latency_dispatch(x, chosen, MOST, EXPERTS, use_fp8=False)
    rows = experts(received, count, handle)
    other = deep_ep.Buffer(dist.group.WORLD, low_latency_mode=True, explicitly_destroy=True, device="cpu")
    records = other.low_latency_dispatch(x, chosen, MOST + 1, EXPERTS, use_fp8=False)[2].records
    more = torch.zeros(chosen.shape[0] + 1, TOP, dtype=torch.int64)
    for text, call in (
        ("of another buffer", lambda: other.low_latency_combine(rows, chosen, weights, handle)),
        ("that of the dispatch, with", lambda: buffer.low_latency_combine(rows, more, torch.ones(more.shape), handle)),
        ("expected weights", lambda: buffer.low_latency_combine(rows, chosen, None, handle)),
        ("as it was returned", lambda: buffer.low_latency_combine(rows, chosen, weights, tuple(handle))),
        ("records has", lambda: ops.moe_combine(rows, chosen, weights, records, MOST, EXPERTS, buffer.number)),
        ("records of", lambda: ops.moe_combine(rows, chosen, weights, handle.records, MOST, EXPERTS - 1, buffer.number)),
    ):
        refused(text, call)
    other.low_latency_dispatch(torch.zeros(0, 2 * HIDDEN, dtype=torch.bfloat16), chosen[:0], MOST, EXPERTS, use_fp8=False)  # makes it larger
    _, _, old, _, _ = other.low_latency_dispatch(x, chosen, MOST, EXPERTS, use_fp8=False)
    other.low_latency_dispatch(torch.zeros(0, 4 * HIDDEN, dtype=torch.bfloat16), chosen[:0], MOST, EXPERTS, use_fp8=False)
    refused("before this buffer was made larger", lambda: other.low_latency_combine(rows, chosen, weights, old))
    combined(1, buffer.low_latency_combine(rows, chosen, weights, handle)[0])
    other.destroy()


def refused(text, call):
    try:
        call()
    except mscclpp.Error as problem:
        assert text in str(problem), (text, problem)
    else:
        sys.exit(f"rank {rank}: expected {text!r}")


hint = deep_ep.Buffer.get_low_latency_rdma_size_hint(MOST, HIDDEN, size, EXPERTS)
buffer = deep_ep.Buffer(dist.group.WORLD, num_rdma_bytes=hint, low_latency_mode=True, explicitly_destroy=True, device="cpu")
results(buffer)
given(buffer)
traced(buffer)
handles(buffer)
refusals(buffer)
buffer.destroy()
dist.destroy_process_group()
print(f"rank {rank} is done")
