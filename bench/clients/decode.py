"""A decode step of a Llama-like model, tensor parallel, as one CUDA graph: its time with the all-reduces and without.

    decode.py [BATCH…]     default: 1 8 64

16 layers of Llama-70B's sizes (hidden 8192, 64 heads of which 8 for keys and values, 28672 between), f16, a cache of 512 keys. Each
layer has two all-reduces of the hidden state, on all ranks, as inference servers have them.
"""
import sys

import torch
import torch.distributed as dist

from common import DEVICE, SIZE, expect, finish, graph_of, median, row, say, start, time_of

LAYERS, HIDDEN, BETWEEN, HEADS, KV, HEAD, KEYS = 16, 8192, 28672, 64, 8, 128, 512
start()
torch.manual_seed(1)
heads, kv, between = HEADS // SIZE, KV // SIZE, BETWEEN // SIZE


def weight(*shape):
    return torch.empty(*shape, dtype=torch.float16, device=DEVICE).normal_(std=0.01)


class Layer:
    def __init__(self):
        self.qkv = weight(HIDDEN, (heads + 2 * kv) * HEAD)
        self.out = weight(heads * HEAD, HIDDEN)
        self.up = weight(HIDDEN, 2 * between)
        self.down = weight(between, HIDDEN)
        self.norms = torch.ones(2, HIDDEN, dtype=torch.float16, device=DEVICE)


layers = [Layer() for _ in range(LAYERS)]


def forward(x, caches, communicate):
    batch = x.shape[0]
    for layer, (keys, values) in zip(layers, caches):
        h = torch.nn.functional.rms_norm(x, (HIDDEN,), layer.norms[0])
        q, k, v = (h @ layer.qkv).split([heads * HEAD, kv * HEAD, kv * HEAD], dim=1)
        keys[:, :, -1] = k.view(batch, kv, HEAD)
        values[:, :, -1] = v.view(batch, kv, HEAD)
        # The queries that share a key head are the rows of one.
        a = torch.nn.functional.scaled_dot_product_attention(q.view(batch, kv, heads // kv, HEAD), keys, values)
        part = a.reshape(batch, heads * HEAD) @ layer.out
        if communicate:
            dist.all_reduce(part)
        x = x + part
        gate, up = (torch.nn.functional.rms_norm(x, (HIDDEN,), layer.norms[1]) @ layer.up).chunk(2, dim=1)
        part = (torch.nn.functional.silu(gate) * up) @ layer.down
        if communicate:
            dist.all_reduce(part)
        x = x + part
    return x


def measure(batch):
    """Times the step of a batch both ways, and returns what to say of it."""
    caches = [(weight(batch, kv, KEYS, HEAD), weight(batch, kv, KEYS, HEAD)) for _ in range(LAYERS)]
    torch.manual_seed(2)
    x = weight(batch, HIDDEN)
    out, graphs, times = {}, {}, {False: [], True: []}
    for communicate in times:

        def step():
            out[communicate] = forward(x, caches, communicate)

        graphs[communicate] = graph_of(step)
        time_of(graphs[communicate], 5)
    for _ in range(10):  # by turns: clocks and heat are those of both
        dist.barrier()
        torch.cuda.synchronize()
        for communicate in times:
            times[communicate] += time_of(graphs[communicate], 5)
    # All ranks sum the same values, and have the same bits.
    sums = [None] * SIZE
    dist.all_gather_object(sums, out[True].double().sum().item())
    expect(len(set(sums)) == 1 and sums[0] == sums[0], f"one result on all ranks, not {sums}")
    without, with_ = median(times[False]) / 1000, median(times[True]) / 1000
    row(decode=batch, without_ms=round(without, 4), with_ms=round(with_, 4), added_ms=round(with_ - without, 4), sum=sums[0])
    return f"batch {batch}: {with_:.3f} ms, of which {with_ - without:.3f} communication"


done = []
for batch in [int(b) for b in sys.argv[1:]] or [1, 8, 64]:
    done.append(measure(batch))
    torch.cuda.empty_cache()
say("decode", "; ".join(done))
finish()
