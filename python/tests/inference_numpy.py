"""The all-reduce with a norm, on arrays of NumPy: right, in place, quantized, and refused."""

import sys

import numpy as np

import mscclpp
from mscclpp.inference import Norm, Quantization, Workspace

comm = mscclpp.Communicator()
comm.join()
rank, size = comm.rank, comm.size
EPSILON = 1e-5


def aligned(shape, dtype):
    """Return an array that begins at a multiple of 64."""
    n = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(n + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + n].view(dtype).reshape(shape)


def filled(shape, dtype, seed):
    out = aligned(shape, dtype)
    out[:] = np.random.default_rng(seed).standard_normal(shape)
    return out


def refused(text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except mscclpp.InvalidUsage as problem:
        assert text in str(problem), problem
        return
    sys.exit(f"rank {rank}: {text}: nothing was raised")


with comm, Workspace(comm, 1 << 20) as space:
    for dtype, slack in ((np.float32, 1e-5), (np.float16, 2e-3)):
        shape = (5, 72)
        parts, residual, weight, bias = [filled(shape, dtype, r) for r in range(size)], filled(shape, dtype, 90), filled(shape[1:], dtype, 91), filled(shape[1:], dtype, 92)
        total = sum(p.astype(float) for p in parts) + residual.astype(float)
        out, summed = aligned(shape, dtype), aligned(shape, dtype)
        space.all_reduce_norm(parts[rank], residual, weight, out, summed, epsilon=EPSILON)
        s = summed.astype(float)
        norm = s / np.sqrt((s**2).mean(-1, keepdims=True) + EPSILON) * weight.astype(float)
        assert np.allclose(s, total, slack, slack) and np.allclose(out.astype(float), norm, slack, slack)
        quantized, scales = aligned(shape, np.int8), aligned((5,), np.float32)
        space.all_reduce_norm(parts[rank], residual, weight, quantized, summed, epsilon=EPSILON, quantization=Quantization.INT8_PER_TOKEN, scales=scales)
        assert (np.abs(quantized * scales[:, None].astype(float) - norm) <= scales[:, None] * 0.51 + slack * np.abs(norm)).all()
        space.all_reduce_norm(parts[rank], residual, weight, out, summed, epsilon=EPSILON, norm=Norm.LAYER, bias=bias, shots=2)
        want = (s - s.mean(-1, keepdims=True)) / np.sqrt(s.var(-1, keepdims=True) + EPSILON) * weight.astype(float) + bias.astype(float)
        assert np.allclose(out.astype(float), want, 5 * slack, 5 * slack)
        x, r = parts[rank], residual
        space.all_reduce_norm(x, r, weight, x, r, epsilon=EPSILON)
        assert np.allclose(x.astype(float), norm, slack, slack) and np.allclose(r.astype(float), total, slack, slack)
    refused("expected f16, bf16 or f32", space.all_reduce_norm, aligned((2, 8), np.float64), None, aligned(8, np.float64), aligned((2, 8), np.float64), aligned((2, 8), np.float64))
    x, w = aligned((2, 8), np.float32), aligned(8, np.float32)
    refused("residual has 32 bytes", space.all_reduce_norm, x, w, w, x, aligned((2, 8), np.float32))
    refused("not contiguous", space.all_reduce_norm, x[:, ::2], None, w, x, x)
    refused("multiple of 8", space.all_reduce_norm, aligned((2, 6), np.float32), None, aligned(6, np.float32), aligned((2, 6), np.float32), aligned((2, 6), np.float32))
    refused("expected all of them", space.all_reduce_norm, x, None, w, x, None)
print(f"rank {rank} is done")
