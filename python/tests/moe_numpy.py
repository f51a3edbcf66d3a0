"""Dispatch and combine on arrays of NumPy, whole and in two phases; buffers that are too small are refused."""

import os
import sys

import numpy as np

import mscclpp
from mscclpp.moe import Experts, Format, Phase, sizes

if "apart" in sys.argv:  # each rank says that it is on a host of its own
    os.environ["MSCCLPP_BOOTSTRAP__HOST_ID"] = "host-" + os.environ["RANK"]
comm = mscclpp.Communicator()
comm.join()
rank, size = comm.rank, comm.size
TOKENS, HIDDEN, EXPERTS, TOP = 4, 64, 6, 2


def rows_of(r):
    """Return rows of bfloat16, as the bits of small integers, and their experts and weights."""
    n = TOKENS - r % 2
    values = ((np.arange(n * HIDDEN).reshape(n, HIDDEN) * 7 + r) % 100).astype(np.float32)
    chosen = (np.arange(n * TOP).reshape(n, TOP) * 5 + r) % EXPERTS
    return (values.view(np.uint32) >> 16).astype(np.uint16), chosen.astype(np.int32), np.full((n, TOP), 0.5, np.float32), values


def aligned(shape, dtype):
    """Return an array that begins at a multiple of 64."""
    n = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(n + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + n].view(dtype).reshape(shape)


def refused(text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except mscclpp.InvalidUsage as problem:
        assert text in str(problem), problem
        return
    sys.exit(f"rank {rank}: {text}: nothing was raised")


def given(space, chosen):
    """Rows of 8 bits and their scales come as they are, also where a rank has none."""
    n = 0 if rank == 1 else len(chosen)
    x, scales = aligned((n, HIDDEN), np.uint8), aligned((n, 4), np.float32)
    x[:], scales[:] = rank + 1, rank + 2
    local, slots = space.local, TOKENS * size
    out, out_scales = aligned((local, slots, HIDDEN), np.uint8), aligned((local, 4, slots), np.float32)
    received = aligned(local, np.int32)
    space.dispatch(x, chosen[:n], out, aligned((local, slots), np.int32), aligned((local, size), np.int64), received, aligned(space.handle_bytes, np.uint8),
                   hidden=HIDDEN, top_k=TOP, scales=scales, output_scales=out_scales, format=Format.GIVEN_E4M3)
    for e in range(local):
        want = [r for r in range(size) if r != 1 for _ in np.argwhere(rows_of(r)[1] == rank * local + e)]
        assert received[e] == len(want), (e, received, want)
        for row, r in enumerate(want):
            assert (out[e, row] == r + 1).all() and (out_scales[e, :, row] == r + 2).all(), (e, row)


with comm, Experts(comm, TOKENS, HIDDEN, EXPERTS) as space:
    assert sizes(TOKENS, HIDDEN, EXPERTS, size)[1] == space.handle_bytes
    local, slots = space.local, TOKENS * size
    bits, chosen, weights, values = rows_of(rank)
    x = aligned(bits.shape, np.uint16)
    x[:] = bits
    out, sources = aligned((local, slots, HIDDEN), np.uint16), aligned((local, slots), np.int32)
    ranges, received, handle = aligned((local, size), np.int64), aligned(local, np.int32), aligned(space.handle_bytes, np.uint8)
    combined = aligned(bits.shape, np.uint16)
    for split in (False, True):
        out[:] = 0
        results = (out, sources, ranges, received, handle)
        if split:
            ticket = space.dispatch(x, chosen, *results, hidden=HIDDEN, top_k=TOP, phase=Phase.SEND)
            space.dispatch(x, chosen, *results, hidden=HIDDEN, top_k=TOP, phase=Phase.RECEIVE, ticket=ticket)
        else:
            space.dispatch(x, chosen, *results, hidden=HIDDEN, top_k=TOP)
        for e in range(local):
            want = [(r, t) for r in range(size) for t, k in np.argwhere(rows_of(r)[1] == rank * local + e)]
            assert received[e] == len(want) and sources[e, : len(want)].tolist() == [t for _, t in want], (e, received, want)
            for row, (r, t) in enumerate(want):
                assert (out[e, row] == rows_of(r)[0][t]).all(), (e, row)
        space.combine(out, chosen, handle, combined, hidden=HIDDEN, top_k=TOP, weights=weights)
        assert (combined == bits).all(), (combined, bits)
    refused("expected int32 or int64", space.dispatch, x, chosen.astype(np.int16), *results, hidden=HIDDEN, top_k=TOP)
    refused("output has", space.dispatch, x, chosen, out[:0], *results[1:], hidden=HIDDEN, top_k=TOP)
    refused("received has", space.dispatch, x, chosen, *results[:3], received[:0], handle, hidden=HIDDEN, top_k=TOP)
    few = {"hidden": HIDDEN, "top_k": TOP}
    refused("indices have", space.dispatch, x, chosen.astype(np.float32), *results, **few)
    refused("weights has", space.dispatch, x, chosen, *results, weights=np.zeros((4, TOP), np.float64), **few)
    refused("ranges has", space.dispatch, x, chosen, out, sources, ranges.view(np.float64), received, handle, **few)
    refused("input has", space.dispatch, x[:2], chosen, *results, **few)
    refused("input has", space.dispatch, x, chosen[:2], *results, **few)
    refused("handle has", space.dispatch, x, chosen, *results[:4], aligned(space.handle_bytes + 16, np.uint8), **few)
    refused("input and output overlap", space.dispatch, out.reshape(-1, HIDDEN)[: len(chosen)], chosen, *results, **few)
    refused("input and output overlap", space.combine, out, chosen, handle, out.reshape(-1, HIDDEN)[: len(chosen)], weights=weights, **few)
    given(space, chosen)
    refused("handle has", space.combine, out, chosen, handle[:16], combined, hidden=HIDDEN, top_k=TOP, weights=weights)
print(f"rank {rank} is done")
