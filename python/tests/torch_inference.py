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


def refusals():
    x, w = torch.zeros(4, 64, dtype=torch.bfloat16), torch.ones(64, dtype=torch.bfloat16)
    quant = ops.all_reduce_rms_norm_quant
    for text, call in (
        ("expected float16, bfloat16 or float32", lambda: ops.all_reduce_rms_norm(x.double(), None, w, EPSILON, "")),
        ("multiple of 8", lambda: ops.all_reduce_rms_norm(x[:, :60].contiguous(), None, w[:60], EPSILON, "")),
        ("rows without gaps", lambda: ops.all_reduce_rms_norm(x[:, :56], None, w[:56], EPSILON, "")),
        ("residual has torch.float32", lambda: ops.all_reduce_rms_norm(x, x.float(), w, EPSILON, "")),
        ("weight has", lambda: ops.all_reduce_rms_norm(x, None, w[:8], EPSILON, "")),
        ("float8_e4m3fn or int8", lambda: quant(x, None, w, EPSILON, torch.float8_e5m2, None, "")),
        ("one float32", lambda: quant(x, None, w, EPSILON, torch.int8, w, "")),
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
traced()
refusals()
mscclpp.torch_ops.disable()
dist.destroy_process_group()
print(f"rank {rank} is done")
