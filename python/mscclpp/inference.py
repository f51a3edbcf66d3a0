"""Operators between the layers of a model: a reduction over the ranks, and in the same kernel the next steps.

Arrays are those of NumPy, CuPy, torch, or with DLPack. docs/inference.md says when to use which.
"""

from __future__ import annotations

import ctypes
import enum
from ctypes import byref

from . import _errors, _streams
from ._buffers import resolve
from ._library import NormCall, WorkspaceOptions
from ._objects import _Object

__all__ = ["Norm", "Quantization", "Rows", "Workspace"]


class Norm(enum.IntEnum):
    """How rows are normalized."""

    RMS = 0
    LAYER = 1
    NONE = 2


class Rows(enum.IntEnum):
    """Which rows the buffers of a rank have: all, or of some buffers those that it owns.

    A rank owns ceil(tokens / ranks) rows, the first rank the first ones; of the last ranks some may own fewer.
    """

    ALL = 0
    OWN_RESIDUAL = 1  # of residual and sum: reduce-scatter, norm, all-gather
    OWN_ROWS = 2  # of the output, too: reduce-scatter, norm
    OWN_INPUT = 3  # of all but the output; inputs are not added up: norm, all-gather
    LOCAL = 4  # all, and there is no communication

    def of(self, tokens: int, rank: int, size: int) -> dict[str, int]:
        """Return how many rows input, residual and output of a rank have."""
        share = -(-tokens // size)
        own = max(0, min(share, tokens - rank * share))
        return {"input": own if self == 3 else tokens, "residual": own if self in (1, 2, 3) else tokens, "output": own if self == 2 else tokens}


class Quantization(enum.IntEnum):
    """The elements of an output, if not those of the input: 8-bit floats or integers, with a scale per token or per tensor."""

    NONE = 0
    E4M3_PER_TOKEN = 1
    E4M3_PER_TENSOR = 2
    INT8_PER_TOKEN = 3
    INT8_PER_TENSOR = 4

    @property
    def per_token(self) -> bool:
        """Whether the scales of rows are written."""
        return self in (1, 3)


class Workspace(_Object):
    """Kernels, and memory that the ranks have opened to each other. Collective.

    Args:
        comm: a Communicator, or an object that has one as its attribute ``communicator``.
        scratch_bytes: of the memory that each rank opens to the others; 0: 64 MiB on GPUs, 8 MiB on the host.

    Raises:
        UnavailableError: not all ranks reach each other's memory, or there are no kernels for the device.
    """

    _free = "workspace_free"

    def __init__(self, comm: object, scratch_bytes: int = 0) -> None:
        comm = getattr(comm, "communicator", comm)
        options = WorkspaceOptions(ctypes.sizeof(WorkspaceOptions), scratch_bytes)
        super().__init__(comm, comm._make("workspace_create", byref(options)))

    def all_reduce_norm(self, input: object, residual: object, weight: object, output: object, residual_out: object, *, hidden: int | None = None,
                        epsilon: float = 1e-6, norm: int = Norm.RMS, bias: object = None, quantization: int = Quantization.NONE,
                        scales: object = None, scale: object = None, shots: int = 0, stream: object = None, rows: int = Rows.ALL,
                        tokens: int | None = None) -> None:
        """Add up the inputs of all ranks and the residual, and normalize the rows of that: the same bits on all ranks.

        Args:
            input: rows of this rank, to be added up: of float16, bfloat16 or float32.
            residual: rows that are the same on all ranks; None: there are none.
            weight: one row; its length is that of a row, if ``hidden`` is None.
            output: the normalized rows; may be input.
            residual_out: the sum, and the residual; may be residual.
            epsilon: added to the mean of squares, or the variance.
            norm: RMS, LAYER, or NONE, which needs no weight but hidden, and residual_out may be None.
            bias: one row, added behind the weight.
            quantization: of the output, which then has bytes.
            scales: float32, one for each row, written: of quantization per token.
            scale: float32, one: of quantization per tensor.
            shots: 1: every rank adds up all rows; 2: a row is added up by one rank; 0: chosen by the size.
            stream: of the GPU, as all_reduce of Communicator has it.
            rows: which rows buffers have.
            tokens: rows of the call; None: those of input, which has all of them.
        """
        named = {"input": input, "residual": residual, "weight": weight, "bias": bias, "output": output, "residual_out": residual_out,
                 "scales": scales, "scale": scale}
        found = {}
        for name, value in named.items():
            if value is not None:
                found[name] = resolve(value, f"all_reduce_norm: {name}", stream)
                self._comm._place(found[name], "all_reduce_norm")
        first, columns = found.get("input"), found.get("weight")
        plain = norm == Norm.NONE
        if first is None or (columns is None or "residual_out" not in found) and not plain or "output" not in found:
            raise _errors.invalid("all_reduce_norm: input, weight, output and residual_out: expected all of them")
        if hidden is None and columns is None or tokens is None and rows == Rows.OWN_INPUT:
            raise _errors.invalid("all_reduce_norm: expected hidden where there is no weight, and tokens where input has some of them")
        hidden = columns.bytes // columns.itemsize if hidden is None else hidden
        if tokens is None:
            tokens = first.bytes // first.itemsize // hidden if hidden > 0 else 0
        self._fits(found, Rows(rows).of(tokens, self._comm.rank, self._comm.size), hidden, Quantization(quantization))
        if self._comm.device != "host":
            stream = _streams.choose(stream, tuple(found.values()), self._comm._index or 0)
        elif stream is not None:
            raise _errors.invalid(f"all_reduce_norm: stream {stream!r} for a communicator on the host: expected None")
        at = {name: buffer.address for name, buffer in found.items()}
        self._norm(at, tokens, hidden, first.code, epsilon, norm, quantization, shots, stream or 0, rows)

    def _norm(self, at: dict, tokens: int, hidden: int, code: int, epsilon: float, norm: int, quantization: int, shots: int, stream: int, rows: int = 0) -> None:
        """Make the call with addresses."""
        call = NormCall(ctypes.sizeof(NormCall), stream or None, tokens, hidden, code, norm, quantization, shots, epsilon, rows=rows, **at)
        self._call("all_reduce_norm", byref(call))

    def _fits(self, found: dict, rows: dict, hidden: int, quantization: Quantization) -> None:
        """Refuse buffers of other sizes or types than those of the rows."""
        first = found["input"]
        row = hidden * first.itemsize
        sizes = {"input": rows["input"] * row, "residual": rows["residual"] * row, "residual_out": rows["residual"] * row, "weight": row, "bias": row,
                 "output": rows["output"] * (row if quantization == 0 else hidden), "scales": 4 * rows["output"], "scale": 4}
        for name, buffer in found.items():
            if buffer.bytes != sizes[name]:
                raise _errors.invalid(f"all_reduce_norm: {name} has {buffer.bytes} bytes: expected {sizes[name]}, for rows of {hidden} {first.type}")
            if name not in ("scales", "scale", "output") and buffer.code != first.code or first.code is None:
                raise _errors.invalid(f"all_reduce_norm: {name} has {buffer.type}, input {first.type}: expected one of float16, bfloat16 and float32")
            if name in ("output", "residual_out", "scales") and buffer.readonly:
                raise _errors.invalid(f"all_reduce_norm: {name} is read-only: expected memory that the result can be written to")
