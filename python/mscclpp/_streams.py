"""Streams of GPUs: how other packages name them, and which one is current."""

from __future__ import annotations

import sys

from . import _errors


def pointer(stream) -> int:
    """Return the CUstream of a number, or of a stream of torch, CuPy or cuda.core; 0 is the default stream."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):
        value = getattr(stream, name, None)
        if isinstance(value, int):
            return value
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair = protocol() if callable(protocol) else protocol
        return int(pair[1])
    raise _errors.invalid(f"stream {stream!r}: expected a number, or a stream of torch, CuPy, or with __cuda_stream__")


def choose(stream, buffers) -> int:
    """Return the stream that a call uses: the given one, else the current one of the package that has made the buffers."""
    if stream is not None:
        return pointer(stream)
    for b in buffers:
        if b is None:
            continue
        name = type(b.keep).__module__.partition(".")[0]
        if name == "torch":
            return sys.modules["torch"].cuda.current_stream(b.device).cuda_stream
        if name == "cupy":
            return sys.modules["cupy"].cuda.get_current_stream().ptr
    return 0
