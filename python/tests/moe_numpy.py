"""Dispatch and combine on arrays of NumPy, whole and in two phases; buffers that are too small are refused."""

import sys

import numpy as np

import mscclpp
from mscclpp.moe import Experts, Phase, sizes

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
    refused("handle has", space.combine, out, chosen, handle[:16], combined, hidden=HIDDEN, top_k=TOP, weights=weights)
print(f"rank {rank} is done")
