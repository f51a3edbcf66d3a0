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


def choose(stream, buffers, device: int) -> int:
    """Return the stream that a call uses, which waits for those on which its buffers are made.

    It is the given one, else the current one of the package that has made the buffers, else the one that a buffer names.
    """
    chosen = None if stream is None else pointer(stream)
    named = []
    for b in buffers:
        if b is None:
            continue
        if chosen is None:
            package = type(b.keep).__module__.partition(".")[0]
            if package == "torch":
                chosen = sys.modules["torch"].cuda.current_stream(b.device).cuda_stream
            elif package == "cupy":
                chosen = sys.modules["cupy"].cuda.get_current_stream().ptr
        if b.stream is not None:
            named.append(b.stream)
    if chosen is None:
        chosen = named[0] if named else 0
    for other in set(named) - {chosen}:
        from ._driver import driver
        driver().order(device, other, chosen)
    return chosen
