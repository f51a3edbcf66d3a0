"""Experts: rows of tokens go to the ranks of the experts that they have chosen, and weighted sums of what comes of them return.

Arrays are those of NumPy, CuPy, torch, or with DLPack; rows of bfloat16 may have any type of two bytes. ``mscclpp.deep_ep`` has the same
with the interface of DeepEP.
"""

from __future__ import annotations

import ctypes
import enum
from ctypes import byref, c_size_t, c_uint64

from . import _errors, _streams
from ._buffers import resolve
from ._library import CombineCall, DispatchCall, MoeOptions, library
from ._objects import _Object
from ._types import DataType

__all__ = ["Experts", "Format", "Phase", "sizes"]


class Format(enum.IntEnum):
    """Rows stay bfloat16, become e4m3 with a scale for 128 elements, or are e4m3 with given scales."""

    BFLOAT16 = 0
    CAST_E4M3 = 1
    GIVEN_E4M3 = 2


class Phase(enum.IntEnum):
    """A call is made whole, or sends and later receives."""

    WHOLE = 0
    SEND = 1
    RECEIVE = 2


# The types that buffers may have; bytes are memory that has none.
_KINDS = {name: (kind, DataType.uint8) for kind, names in {
    DataType.float32: ("weights", "scales"), DataType.int32: ("sources", "received", "statistics"), DataType.int64: ("ranges",)}.items() for name in names}
_RESULTS = {"dispatch": ("output", "output_scales", "sources", "ranges", "received", "statistics", "handle"), "combine": ("output",)}


def sizes(tokens: int, hidden: int, experts: int, ranks: int) -> tuple[int, int]:
    """Return how many bytes Experts takes on each of so many ranks, and how many the handle of a dispatch has."""
    lib = library()
    memory, handle = c_size_t(), c_size_t()
    options = MoeOptions(ctypes.sizeof(MoeOptions), tokens, hidden, experts)
    lib.check(lib.moe_sizes(byref(options), ranks, byref(memory), byref(handle)))
    return memory.value, handle.value


class Experts(_Object):
    """Kernels, and memory that the ranks have opened to each other. Collective: all ranks pass the same numbers.

    Args:
        comm: a Communicator, or an object that has one as its attribute ``communicator``.
        tokens: of a rank, at most.
        hidden: elements of a row, at most.
        experts: of all ranks, which have equally many, but for the last ones if their number does not divide.

    Raises:
        UnavailableError: not all ranks reach each other's memory, or are joined by port channels; or there are no kernels for the device.
    """

    _free = "moe_free"

    def __init__(self, comm: object, tokens: int, hidden: int, experts: int) -> None:
        comm = getattr(comm, "communicator", comm)
        options = MoeOptions(ctypes.sizeof(MoeOptions), tokens, hidden, experts)
        super().__init__(comm, comm._make("moe_create", byref(options)))
        self.tokens, self.hidden, self.experts = tokens, hidden, experts
        self.local = -(-experts // comm.size)
        _, self.handle_bytes = sizes(tokens, hidden, experts, comm.size)

    def dispatch(self, input: object, indices: object, output: object, sources: object, ranges: object, received: object, handle: object, *,
                 hidden: int, top_k: int, weights: object = None, scales: object = None, output_scales: object = None, statistics: object = None,
                 format: int = Format.BFLOAT16, round_scale: bool = False, exponents: bool = False, slots: int = 0, phase: int = Phase.WHOLE,
                 ticket: int = 0, stream: object = None) -> int:
        """Send the rows of tokens to the ranks of their experts. Return the ticket of a call that only sends, for that which receives.

        Args:
            input: a row for each token.
            indices: top_k experts of each token, int64 or int32; -1 is none.
            output: [local expert][slots] rows: the first ones are used, in the order of ranks and tokens.
            sources: int32 [local expert][slots]: the token of a row.
            ranges: int64 [local expert][rank]: the first row << 32 | rows.
            received: int32 [local expert]: rows.
            handle: handle_bytes bytes, for combine.
            hidden: elements of a row.
            top_k: experts of a token, at most 16.
            weights: float32, of the indices; None: combine brings them, which takes it longer.
            scales: float32, of given e4m3.
            output_scales: [local expert][scale][slots] float32, or [local expert][scale / 4][slots] words of exponents.
            statistics: int32 [local expert], to which received is added.
            format: of the rows that are sent.
            round_scale: scales that are made are powers of two.
            exponents: and are given out as exponents, bytes, four to a word.
            slots: rows that an expert has room for; 0: tokens times ranks.
            phase: whole, send or receive; a call that receives has the same buffers.
            ticket: of the call that has sent.
            stream: of the GPU, as all_reduce of Communicator has it.
        """
        named = {"input": input, "indices": indices, "weights": weights, "scales": scales, "output": output, "output_scales": output_scales,
                 "sources": sources, "ranges": ranges, "received": received, "statistics": statistics, "handle": handle}
        found = self._resolved("dispatch", named, stream)
        tokens, wide = self._chosen("dispatch", found, top_k)
        element = 1 if format == Format.GIVEN_E4M3 else 2
        out_element = 2 if format == Format.BFLOAT16 else 1
        rows = self.local * (slots or self.tokens * self._comm.size)
        self._are("dispatch", found, {"input": tokens * hidden * element, "weights": 4 * tokens * top_k, "handle": self.handle_bytes})
        self._have("dispatch", found, {"output": rows * hidden * out_element, "sources": 4 * rows, "ranges": 8 * self.local * self._comm.size,
                                       "received": 4 * self.local, "statistics": 4 * self.local})
        given = 0
        if format == Format.GIVEN_E4M3 and "scales" in found and "output_scales" in found:  # a rank without tokens learns from the output
            given = found["scales"].bytes // 4 // tokens if tokens else found["output_scales"].bytes // 4 // rows
            self._are("dispatch", found, {"scales": 4 * tokens * given})
        if "output_scales" in found:
            self._have("dispatch", found, {"output_scales": rows * (hidden // 128 if format == Format.CAST_E4M3 else given) * (1 if exponents else 4)})
        at = {name: buffer.address for name, buffer in found.items()}
        return self._dispatch(at, tokens, hidden, top_k, wide, format, given, round_scale, exponents, slots, phase, ticket, self._stream(found, stream))

    def combine(self, input: object, indices: object, handle: object, output: object, *, hidden: int, top_k: int, weights: object = None,
                weighted: bool = False, slots: int = 0, phase: int = Phase.WHOLE, ticket: int = 0, stream: object = None) -> int:
        """Send weighted sums of rows of experts to the ranks of their tokens, and add them up there.

        Args:
            input: [local expert][slots] rows of bfloat16.
            indices: as for the dispatch.
            handle: of the dispatch.
            output: a row of bfloat16 for each token.
            hidden: elements of a row.
            top_k: experts of a token.
            weights: float32, of the indices.
            weighted: the dispatch has brought the weights.
            slots: as for the dispatch.
            phase: whole, send or receive.
            ticket: of the call that has sent.
            stream: of the GPU.
        """
        found = self._resolved("combine", {"input": input, "indices": indices, "weights": weights, "handle": handle, "output": output}, stream)
        tokens, wide = self._chosen("combine", found, top_k)
        self._are("combine", found, {"handle": self.handle_bytes, "output": tokens * hidden * 2, "weights": 4 * tokens * top_k})
        self._have("combine", found, {"input": self.local * (slots or self.tokens * self._comm.size) * hidden * 2})
        at = {name: buffer.address for name, buffer in found.items()}
        return self._combine(at, tokens, hidden, top_k, wide, weighted, slots, phase, ticket, self._stream(found, stream))

    def _resolved(self, op: str, named: dict, stream) -> dict:
        found = {}
        for name, value in named.items():
            if value is not None:
                found[name] = resolve(value, f"{op}: {name}", stream)
                self._comm._place(found[name], f"{op}: {name}")
        for name, kinds in _KINDS.items():
            if name in found and found[name].code not in kinds:
                raise _errors.invalid(f"{op}: {name} has {found[name].type}: expected {kinds[0].name}")
        for name in _RESULTS[op]:
            if name in found and found[name].readonly:
                raise _errors.invalid(f"{op}: {name} is read-only: expected memory that the result can be written to")
        return found

    def _stream(self, found: dict, stream) -> int:
        if self._comm.device != "host":
            return _streams.choose(stream, tuple(found.values()), self._comm._index or 0) or 0
        if stream is not None:
            raise _errors.invalid(f"dispatch or combine: stream {stream!r} for a communicator on the host: expected None")
        return 0

    def _chosen(self, op: str, found: dict, top_k: int) -> tuple[int, bool]:
        """Return how many tokens have indices, and whether these have 64 bits."""
        indices = found["indices"]
        if indices.code not in (DataType.int32, DataType.int64) or top_k <= 0 or indices.bytes % (indices.itemsize * top_k):
            raise _errors.invalid(f"{op}: indices have {indices.bytes} bytes of {indices.type}: expected int32 or int64, {top_k} for each token")
        return indices.bytes // indices.itemsize // top_k, indices.itemsize == 8

    def _have(self, op: str, found: dict, least: dict) -> None:
        """Refuse buffers that are smaller than what is read or written."""
        for name, size in least.items():
            if name in found and found[name].bytes < size:
                raise _errors.invalid(f"{op}: {name} has {found[name].bytes} bytes: expected {size} or more")

    def _are(self, op: str, found: dict, sizes: dict) -> None:
        """Refuse buffers of other sizes: they belong to another call."""
        for name, size in sizes.items():
            if name in found and found[name].bytes != size:
                raise _errors.invalid(f"{op}: {name} has {found[name].bytes} bytes: expected {size}")

    def _dispatch(self, at: dict, tokens: int, hidden: int, top_k: int, wide: bool, format: int, row_scales: int, round_scale: bool, exponents: bool,
                  slots: int, phase: int, ticket: int, stream: int) -> int:
        """Make the call with addresses."""
        number = c_uint64(ticket)
        call = DispatchCall(ctypes.sizeof(DispatchCall), stream or None, tokens, hidden, top_k, slots, row_scales, phase, format, wide, round_scale, exponents, 0,
                            ctypes.pointer(number), **at)
        self._call("moe_dispatch", byref(call))
        return number.value

    def _combine(self, at: dict, tokens: int, hidden: int, top_k: int, wide: bool, weighted: bool, slots: int, phase: int, ticket: int, stream: int) -> int:
        """Make the call with addresses."""
        number = c_uint64(ticket)
        call = CombineCall(ctypes.sizeof(CombineCall), stream or None, tokens, hidden, top_k, slots, phase, wide, weighted, 0, ctypes.pointer(number), **at)
        self._call("moe_combine", byref(call))
        return number.value
