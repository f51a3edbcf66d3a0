"""A layer with a mixture of experts, expert parallel, with random weights: dispatch, the experts of each rank, combine.

    mscclpp-run -n 2 -- python examples/python/moe_layer.py            on CPU
    torchrun --nproc-per-node 2 examples/python/moe_layer.py           on GPUs, where the program has some
"""

import os

import torch
import torch.distributed as dist
from torch.nn.functional import silu

import mscclpp.deep_ep as deep_ep  # with DeepEP: import deep_ep

TOKENS, HIDDEN, BETWEEN, EXPERTS, TOP = 6, 256, 128, 8, 2
GPU = torch.cuda.is_available()

if GPU:
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", 0))))
    dist.init_process_group("nccl")
else:
    dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
device = "cuda" if GPU else "cpu"
local = -(-EXPERTS // size)


def weights(expert):
    """Return the two matrices of an expert."""
    g = torch.Generator().manual_seed(expert)
    return tuple((torch.randn(rows, columns, generator=g) * rows**-0.5).to(device, torch.bfloat16) for rows, columns in ((HIDDEN, BETWEEN), (BETWEEN, HIDDEN)))


def expert(x, up, down):
    return silu(x @ up) @ down


def layer(buffer, x, router, mine):
    """Each token goes to the TOP experts that its router likes best."""
    likes = torch.softmax(x.float() @ router, -1)
    share, chosen = torch.topk(likes, TOP, -1)
    rows, count, handle, _, _ = buffer.low_latency_dispatch(x, chosen, TOKENS, EXPERTS, use_fp8=False, topk_weights=share)
    # All rows are computed, also those behind the count, whose results nothing reads: no count goes to the host.
    results = torch.stack([expert(rows[e], *mine[e]) for e in range(local)])
    return buffer.low_latency_combine(results, chosen, None, handle)[0], share, chosen


buffer = deep_ep.Buffer(dist.group.WORLD, num_rdma_bytes=deep_ep.Buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, size, EXPERTS), low_latency_mode=True, device=device)
router = torch.randn(HIDDEN, EXPERTS, generator=torch.Generator().manual_seed(99)).to(device)
own = torch.Generator().manual_seed(1000 + rank)
x = torch.randn(TOKENS - rank % 2, HIDDEN, generator=own).to(device, torch.bfloat16)
got, share, chosen = layer(buffer, x, router, [weights(min(rank * local + e, EXPERTS - 1)) for e in range(local)])

want = torch.zeros_like(x, dtype=torch.float32)
for k in range(TOP):
    for t in range(len(x)):
        want[t] += share[t, k] * expert(x[t : t + 1], *weights(chosen[t, k].item()))[0].float()
error = (got.float() - want).abs().max().item()
assert error < 0.05, error
if rank == 0:
    print(f"{size} ranks, {EXPERTS} experts: an error of {error:.4f} at most, {buffer.get_low_latency_rdma_size_hint(TOKENS, HIDDEN, size, EXPERTS) >> 10} KiB of memory")
buffer.destroy()
dist.destroy_process_group()
