"""A Llama-like decode, tensor parallel, with random weights: each layer has two all-reduces, each in one kernel with residual and norm.

    mscclpp-run -n 2 -- python examples/python/llama_decode.py            on CPU
    torchrun --nproc-per-node 2 examples/python/llama_decode.py           on GPUs, where the program has some
"""

import os

import torch
import torch.distributed as dist
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

import mscclpp.torch_ops

EPSILON = 1e-5
LAYERS, HIDDEN, HEADS, HEAD, BETWEEN, KEYS, BATCH, STEPS = 2, 256, 4, 64, 512, 16, 3, 4
GPU = torch.cuda.is_available()

if GPU:
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", 0))))
    dist.init_process_group("nccl")
else:
    dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
device, dtype = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
heads, between = HEADS // size, BETWEEN // size


def part(seed, rows, columns, dim):
    """Return this rank's part of a weight that is split along a dimension."""
    whole = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * columns**-0.5
    return whole.chunk(size, dim)[rank].to(device, dtype).contiguous()


class Layer:
    """Attention and a feed-forward part: matrices that end a part are split by rows, so that their results have to be added up."""

    def __init__(self, seed):
        self.q, self.k, self.v = (part(10 * seed + i, HIDDEN, HEADS * HEAD, 1) for i in range(3))
        self.out = part(10 * seed + 3, HEADS * HEAD, HIDDEN, 0)
        self.gate, self.up = (part(10 * seed + i, HIDDEN, BETWEEN, 1) for i in (4, 5))
        self.down = part(10 * seed + 6, BETWEEN, HIDDEN, 0)
        self.norms = [torch.ones(HIDDEN, device=device, dtype=dtype) for _ in range(2)]  # behind attention, and behind the feed-forward part
        self.keys, self.values = (torch.zeros(BATCH, heads, KEYS, HEAD, device=device, dtype=dtype) for _ in range(2))

    def attention(self, x, step):
        q, k, v = ((x @ w).view(BATCH, heads, 1, HEAD) for w in (self.q, self.k, self.v))
        self.keys[:, :, step], self.values[:, :, step] = k[:, :, 0], v[:, :, 0]
        a = scaled_dot_product_attention(q, self.keys[:, :, : step + 1], self.values[:, :, : step + 1])
        return a.reshape(BATCH, heads * HEAD) @ self.out

    def forward(self, x):
        return (silu(x @ self.gate) * (x @ self.up)) @ self.down


def fused(partial, residual, weight):
    return torch.ops.mscclpp.all_reduce_rms_norm(partial, residual, weight, EPSILON, "")


def separate(partial, residual, weight):
    total = partial.clone()
    dist.all_reduce(total)
    total += residual
    return rms_norm(total, (HIDDEN,), weight, EPSILON), total


def decode(reduce):
    """Return the hidden states of some steps, each of which is the input of the next one."""
    layers = [Layer(seed) for seed in range(1, LAYERS + 1)]
    residual = torch.randn(BATCH, HIDDEN, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    states = []
    for step in range(STEPS):
        x = rms_norm(residual, (HIDDEN,), eps=EPSILON)
        for layer in layers:
            x, residual = reduce(layer.attention(x, step), residual, layer.norms[0])
            x, residual = reduce(layer.forward(x), residual, layer.norms[1])
        states.append(x)
        residual = x
    return torch.stack(states)


mscclpp.torch_ops.enable()
with torch.inference_mode():
    one, other = decode(fused), decode(separate)
difference = (one - other).abs().max().item()
assert difference < (0.1 if GPU else 1e-3), difference
mscclpp.torch_ops.disable()
dist.destroy_process_group()
print(f"rank {rank} of {size}: {STEPS} steps, and the same with separate kernels but for {difference:.1g}\nrank {rank} is done", flush=True)
