"""Operators of torch.ops.mscclpp on CPU, against float64: what they return, traced and not, and what they refuse."""

import sys

import torch
import torch.distributed as dist

import mscclpp.torch_ops
import mscclpp.torch

dist.init_process_group("mscclpp")
rank, size = dist.get_rank(), dist.get_world_size()
EPSILON = 1e-5
ops = torch.ops.mscclpp


def inputs(dtype, *shape):
    """Return input, residual and weight; the inputs of all ranks are known to all."""
    parts = [torch.randn(shape, generator=torch.Generator().manual_seed(r), dtype=torch.float32).to(dtype) for r in range(size)]
    generator = torch.Generator().manual_seed(99)
    residual = torch.randn(shape, generator=generator).to(dtype)
    weight, bias = (torch.randn(shape[-1:], generator=generator).to(dtype) for _ in range(2))
    return parts, residual, weight, bias


def close(what, got, want, dtype, times=1.0):
    worst = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype] * times
    error = (got.double() - want).abs() / (1 + want.abs())
    if not error.max() <= worst:
        sys.exit(f"rank {rank}: {what}, {dtype}: an error of {error.max()}: expected at most {worst}")


def rms(total, weight):
    return total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + EPSILON) * weight.double()


def results():
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for shape in ((1, 8), (5, 264), (2, 3, 1024)):
            parts, residual, weight, bias = inputs(dtype, *shape)
            total = sum(p.double() for p in parts) + residual.double()
            out, summed = ops.all_reduce_rms_norm(parts[rank], residual, weight, EPSILON, "")
            close("sum", summed, total, dtype)
            close("norm", out, rms(summed.double(), weight), dtype)
            out, summed = ops.all_reduce_rms_norm(parts[rank], None, weight, EPSILON, dist.group.WORLD.group_name)
            close("sum without residual", summed, total - residual.double(), dtype)
            x, r = parts[rank].clone(), residual.clone()
            ops.all_reduce_rms_norm_(x, r, weight, EPSILON, "")
            close("in place", x, rms(r.double(), weight), dtype)
            out, summed = ops.all_reduce_layer_norm(parts[rank], residual, weight, bias, EPSILON, "")
            s = summed.double()
            close("layer norm", out, torch.nn.functional.layer_norm(s, shape[-1:], weight.double(), bias.double(), EPSILON), dtype)
            for kind, per in ((torch.float8_e4m3fn, None), (torch.int8, None), (torch.float8_e4m3fn, torch.tensor([0.05])), (torch.int8, torch.tensor([0.05]))):
                q, scales, summed = ops.all_reduce_rms_norm_quant(parts[rank], residual, weight, EPSILON, kind, per, "")
                assert q.dtype == kind and scales.shape == ((*shape[:-1], 1) if per is None else (1,)), (q.dtype, scales.shape)
                want = rms(summed.double(), weight)
                limit = {torch.float8_e4m3fn: 448, torch.int8: 127}[kind] * scales.double()
                want = torch.maximum(torch.minimum(want, limit), -limit * (128 / 127 if kind == torch.int8 else 1))
                slack = 0.07 * want.abs() + scales.double() if kind == torch.float8_e4m3fn else scales.double() * 0.51 + 0.02 * want.abs()
                assert ((q.double() * scales.double() - want).abs() <= slack).all(), (kind, per)
    empty, _ = ops.all_reduce_rms_norm(torch.empty(0, 64), torch.empty(0, 64), torch.ones(64), EPSILON, "")
    assert empty.shape == (0, 64)


def traced():
    """A function is one graph, and its result the same."""
    parts, residual, weight, _ = inputs(torch.bfloat16, 4, 128)

    def layer(x, r):
        x, r = ops.all_reduce_rms_norm(x * 1, r, weight, EPSILON, "")
        q, s, r = ops.all_reduce_rms_norm_quant(x, r, weight, EPSILON, torch.float8_e4m3fn, None, "")
        ops.all_reduce_rms_norm_(x, r, weight, EPSILON, "")
        return x, q.float() * s, r

    got = torch.compile(layer, backend="aot_eager", fullgraph=True)(parts[rank], residual)
    for a, b in zip(got, layer(parts[rank], residual)):
        assert torch.equal(a, b)
    for name, arguments in (("all_reduce_rms_norm", (parts[rank], residual, weight, EPSILON, "")),
                            ("all_reduce_rms_norm_quant", (parts[rank], residual, weight, EPSILON, torch.int8, None, ""))):
        torch.library.opcheck(getattr(ops, name).default, arguments, test_utils=("test_schema", "test_faketensor"))


def rows():
    """Operators whose tensors have the rank's own rows, of as many as there are for all ranks and not, and the parts of the fused one."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for tokens, hidden in ((7, 64), (1, 264), (6, 1032)):
            parts, residual, weight, _ = inputs(dtype, tokens, hidden)
            share = -(-tokens // size)
            own = slice(min(tokens, rank * share), min(tokens, (rank + 1) * share))
            total = sum(p.double() for p in parts) + residual.double()
            want = rms(total, weight)
            out, summed = ops.reduce_scatter_rms_norm(parts[rank], residual[own], weight, EPSILON, "")
            check_rows("reduce-scatter", (out, want[own]), (summed, total[own]), dtype)
            out, summed = ops.reduce_scatter_rms_norm_all_gather(parts[rank], residual[own], weight, EPSILON, "")
            check_rows("reduce-scatter, all-gather", (out, want), (summed, total[own]), dtype)
            close("all-reduce", ops.all_reduce(parts[rank], ""), total - residual.double(), dtype)
            out, summed = ops.add_rms_norm(parts[rank], residual, weight, EPSILON, "")
            local = parts[rank].double() + residual.double()
            check_rows("local", (out, rms(local, weight)), (summed, local), dtype)
            for kind, scale in ((torch.float8_e4m3fn, None), (torch.int8, None), (torch.int8, torch.tensor([0.05]))):
                q, scales = ops.all_gather_quant(residual[own], tokens, kind, scale, "")
                assert q.shape == residual.shape and scales.numel() == (tokens if scale is None else 1), (q.shape, scales.shape)
                slack = (0.07 if kind == torch.float8_e4m3fn else 0) * residual.double().abs() + scales.double() * 0.51
                limit = 127 * scales.double() if kind == torch.int8 else 448 * scales.double()
                assert ((q.double() * scales.double() - residual.double().clamp(-limit, limit)).abs() <= slack).all(), (kind, scale)


def check_rows(what, out, summed, dtype):
    for got, expected in (out, summed):
        assert got.shape == expected.shape, (what, got.shape, expected.shape)
        if got.numel():
            close(what, got, expected, dtype, 2)


def fusion():
    """The pass puts the operator in the place of the pattern, where it is one, and results stay."""
    import torch.distributed._functional_collectives as functional

    parts, residual, weight, _ = inputs(torch.bfloat16, 5, 128)
    group = dist.group.WORLD

    def layer(x, r, w):
        s = functional.all_reduce(x * 1, "sum", group) + r
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s

    def swapped(x, r, w):
        s = r + functional.all_reduce(x * 1, "sum", group)
        return torch.nn.functional.rms_norm(s, (128,), weight=w, eps=EPSILON) * 2, s * 3

    def largest(x, r, w):
        s = functional.all_reduce(x * 1, "max", group) + r
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s

    def used(x, r, w):
        t = functional.all_reduce(x * 1, "sum", group)
        s = t + r
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s + t

    def added_in_place(x, r, w):
        s = functional.all_reduce(x * 1, "sum", group)
        s += r
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s

    def residual_in_place(x, r, w):
        r = r * 1
        old = r.view(-1)  # sees what is written
        r.add_(functional.all_reduce(x * 1, "sum", group))
        return torch.nn.functional.rms_norm(r, (128,), w, EPSILON), old * 1

    def into_residual(x, r, w):
        r = r * 1
        s = torch.add(functional.all_reduce(x * 1, "sum", group), r, out=r)
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), r * 2

    def sum_written(x, r, w):
        s = functional.all_reduce(x * 1, "sum", group) + r
        s.mul_(2)
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s * 1

    def input_written(x, r, w):
        x = x * 1
        t = functional.all_reduce(x, "sum", group)
        x.zero_()
        s = t + r
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s + x

    def weight_written(x, r, w):
        w = w * 1
        s = functional.all_reduce(x * 1, "sum", group) + r
        w[:8] = 0
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s * 1

    def old_residual(x, r, w):
        s = functional.all_reduce(x * 1, "sum", group) + r
        return torch.nn.functional.rms_norm(s, (128,), w, EPSILON), s.add_(r)

    def layers(x, r, w):
        for _ in range(3):
            r = functional.all_reduce(x, "sum", group) + r
            x = torch.nn.functional.rms_norm(r, (128,), w, EPSILON)
        return x, r

    compare(layers, 3, parts[rank], residual, weight, 0.1)  # each layer rounds, in two ways
    for function in (added_in_place, residual_in_place, into_residual, sum_written, input_written, weight_written, old_residual):
        compare(function, 1 if function is old_residual else 0, parts[rank], residual, weight)
    for function, times, x, r, w in ((layer, 1, parts[rank], residual, weight), (swapped, 1, parts[rank], residual, weight), (largest, 0, parts[rank], residual, weight),
                                     (used, 0, parts[rank], residual, weight), (layer, 0, parts[rank].double(), residual.double(), weight.double())):
        compare(function, times, x, r, w)


def compare(function, times, x, r, w, slack=2e-2):
    """The pass replaces so often, and what a function returns and leaves in its arguments stays."""
    torch._dynamo.reset()
    fused = mscclpp.torch_ops.fused("aot_eager")
    ours, theirs = [t.clone() for t in (x, r, w)], [t.clone() for t in (x, r, w)]
    with torch.no_grad():
        got, want = torch.compile(function, backend=fused, fullgraph=True)(*ours), function(*theirs)
    assert fused.replaced == times, (function.__name__, fused.replaced, times)
    for a, b in zip((*got, *ours), (*want, *theirs)):
        assert torch.allclose(a.float(), b.float(), slack, slack), function.__name__


def refusals():
    x, w = torch.zeros(4, 64, dtype=torch.bfloat16), torch.ones(64, dtype=torch.bfloat16)
    quant = ops.all_reduce_rms_norm_quant
    share = -(-4 // size)

    def own(t):
        return t[min(4, rank * share) : min(4, (rank + 1) * share)].contiguous()

    for text, call in (
        ("expected float16, bfloat16 or float32", lambda: ops.all_reduce_rms_norm(x.double(), None, w, EPSILON, "")),
        ("multiple of 8", lambda: ops.all_reduce_rms_norm(x[:, :60].contiguous(), None, w[:60], EPSILON, "")),
        ("rows without gaps", lambda: ops.all_reduce_rms_norm(x[:, :56], None, w[:56], EPSILON, "")),
        ("residual has torch.float32", lambda: ops.all_reduce_rms_norm(x, x.float(), w, EPSILON, "")),
        ("weight has", lambda: ops.all_reduce_rms_norm(x, None, w[:8], EPSILON, "")),
        ("float8_e4m3fn or int8", lambda: quant(x, None, w, EPSILON, torch.float8_e5m2, None, "")),
        ("one float32", lambda: quant(x, None, w, EPSILON, torch.int8, w, "")),
        ("residual has shape (4, 64)", lambda: ops.reduce_scatter_rms_norm(x, x, w, EPSILON, "")),
        ("input has shape (4, 64)", lambda: ops.all_gather_quant(x, 64, torch.int8, None, "")),
        ("residual has torch.float32", lambda: ops.reduce_scatter_rms_norm(x, own(x).float(), w, EPSILON, "")),
        ("64 elements, as this rank's", lambda: ops.reduce_scatter_rms_norm(x, own(x)[:, :56].contiguous(), w, EPSILON, "")),
        ("residual has torch.float16", lambda: ops.reduce_scatter_rms_norm_all_gather(x, own(x).half(), w, EPSILON, "")),
        ("rows without gaps", lambda: ops.all_reduce_rms_norm(x, x[:1].expand(4, 64), w, EPSILON, "")),
        ("overlap", lambda: ops.all_reduce_rms_norm_(x, x, w, EPSILON, "")),
        ("enable was called", lambda: ops.all_reduce_rms_norm(x, None, w, EPSILON, "nosuch")),
    ):
        try:
            call()
        except mscclpp.InvalidUsage as problem:
            assert text in str(problem), problem
        else:
            sys.exit(f"rank {rank}: expected {text!r}")


mscclpp.torch_ops.enable(device="cpu", scratch_bytes=1 << 20)
mscclpp.torch_ops.enable(device="cpu")
results()
rows()
traced()
fusion()
refusals()
mscclpp.torch_ops.disable()
dist.destroy_process_group()
print(f"rank {rank} is done")
