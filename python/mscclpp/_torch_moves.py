"""What the operations of torch.distributed are made of: calls of a communicator, and copies where tensors do not lie as these need them."""

from __future__ import annotations

import contextlib
import threading

import torch
import torch.distributed as dist

from . import _errors
from ._types import ReduceOp

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.SUM, dist.ReduceOp.PRODUCT: ReduceOp.PROD, dist.ReduceOp.MIN: ReduceOp.MIN,
    dist.ReduceOp.MAX: ReduceOp.MAX, dist.ReduceOp.AVG: ReduceOp.AVG,
}
_BITS = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or, dist.ReduceOp.BXOR: torch.bitwise_xor}
_TYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64,
                    torch.uint32, torch.uint64})

_NATIVE = {(dtype, op): code for dtype in _TYPES for op, code in _OPS.items() if op != dist.ReduceOp.AVG or dtype.is_floating_point}
"""The reductions that the library has."""

DIRECT = 32768
"""Parts of this many bytes and more go as messages of their own, without being put together first."""

_KEPT = 64 << 20  # bytes: larger scratch is freed after its use


class Moves:
    """The operations over one communicator. On a GPU ``stream`` is the one that they are put on, and also the current one of torch."""

    def __init__(self, communicator) -> None:
        self.communicator = communicator
        self.stream = None
        self._me, self._n = communicator.rank, communicator.size
        self._lock = threading.Lock()
        self._bytes = None

    # Memory -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _scratch(self, like, times: int):
        """Yield memory for a tensor of each rank, in one dimension. It is kept: new memory would cost more than what it is for."""
        size = like.nbytes * times
        with self._lock:
            kept = self._bytes
            if kept is None or kept.numel() < size:
                kept = like.new_empty(max(size, 1), dtype=torch.uint8)
                if size <= _KEPT and self.stream is None:  # on a GPU torch keeps it, for each stream
                    self._bytes = kept
            yield kept[:size].view(like.dtype)

    @contextlib.contextmanager
    def _together(self, parts):
        """Yield the elements of a list of tensors, one after the other."""
        with self._scratch(parts[0], len(parts)) as whole:
            for part, place in zip(parts, whole.chunk(len(parts))):
                place.copy_(part.reshape(-1))
            yield whole

    def _of_one_size(self, what: str, tensors, n: int) -> None:
        if any(t.numel() != n for t in tensors):
            raise _errors.invalid(f"{what}: a list of {[t.numel() for t in tensors]} elements: expected {n} of each rank")

    def _messages(self, sends: dict, receives: dict) -> None:
        """Send a tensor to each of some ranks, and receive one of others; what is this rank's own is copied."""
        with contextlib.ExitStack() as dense:
            targets = [(r, dense.enter_context(Dense(t))) for r, t in receives.items() if r != self._me]
            sources = [(r, t.contiguous()) for r, t in sends.items() if r != self._me]
            with self.communicator.group():
                for r, t in sources:
                    self.communicator.send(t, r, stream=self.stream)
                for r, t in targets:
                    self.communicator.recv(t, r, stream=self.stream)
        if self._me in receives and self._me in sends:
            receives[self._me].copy_(sends[self._me].view(receives[self._me].shape))

    # Reductions -------------------------------------------------------------------------------------

    def all_reduce(self, tensor, op) -> None:
        code = _NATIVE.get((tensor.dtype, getattr(op, "op", op)))
        if code is not None and tensor.is_contiguous():
            self.communicator.all_reduce(tensor, None, code, stream=self.stream)
        elif kind(op) == dist.ReduceOp.PREMUL_SUM:
            with Dense(tensor) as t:
                source, how = scaled(t, op)
                self.communicator.all_reduce(source, t, stream=self.stream, **how)
        elif native(tensor, op):
            with Dense(tensor) as t:
                self.communicator.all_reduce(t, op=_OPS[kind(op)], stream=self.stream)
        else:
            tensor.copy_(self._gathered(tensor, op))

    def reduce(self, tensor, op, root: int) -> None:
        if kind(op) == dist.ReduceOp.PREMUL_SUM:
            with Dense(tensor, write=self._me == root) as t:
                source, how = scaled(t, op)
                self.communicator.reduce(source, t, root=root, stream=self.stream, **how)
        elif native(tensor, op):
            with Dense(tensor, write=self._me == root) as t:
                self.communicator.reduce(t, op=_OPS[kind(op)], root=root, stream=self.stream)
        else:
            result = self._gathered(tensor, op)
            if self._me == root:
                tensor.copy_(result)

    def reduce_scatter(self, output, source, op) -> None:
        """Reduce a tensor, or a list of one for each rank, and give this rank its part."""
        if isinstance(source, list):
            self._of_one_size("reduce_scatter", source, output.numel())
            with self._together(source) as whole:
                self.reduce_scatter(output, whole, op)
        elif kind(op) == dist.ReduceOp.PREMUL_SUM:
            source, how = scaled(source.contiguous(), op)
            with Dense(output) as out:
                self.communicator.reduce_scatter(source, out, stream=self.stream, **how)
        elif native(source, op):
            with Dense(output) as out:
                self.communicator.reduce_scatter(source.contiguous(), out, op=_OPS[kind(op)], stream=self.stream)
        else:
            part = self._gathered(source, op).reshape(-1).view(self._n, -1)[self._me]
            output.copy_(part.view(output.shape))

    def _gathered(self, tensor, op):
        """Return a reduction that the library does not have: of complex numbers, booleans, 16 bits, and of bits."""
        which = kind(op)
        every = tensor.new_empty((self._n, *tensor.shape))
        self.communicator.all_gather(tensor.contiguous(), every, stream=self.stream)
        if which in _BITS:
            function = _BITS[which]
        elif which == dist.ReduceOp.SUM:
            function = torch.logical_or if tensor.dtype is torch.bool else torch.add
        elif which == dist.ReduceOp.PRODUCT:
            function = torch.logical_and if tensor.dtype is torch.bool else torch.mul
        elif which == dist.ReduceOp.MIN:
            function = torch.minimum
        elif which == dist.ReduceOp.MAX:
            function = torch.maximum
        else:
            raise _errors.make(2, f"reduction {kind(op)} of {tensor.dtype}: expected another operation or type")
        result = every[0]
        for other in every[1:]:
            result = function(result, other)
        return result

    # Moves ------------------------------------------------------------------------------------------

    def broadcast(self, tensor, root: int) -> None:
        with Dense(tensor) as t:
            self.communicator.broadcast(t, root=root, stream=self.stream)

    def all_gather(self, output, source) -> None:
        """Gather in a tensor, or in a list of one for each rank."""
        if not isinstance(output, list):
            with Dense(output) as out:
                self.communicator.all_gather(source.contiguous(), out, stream=self.stream)
            return
        self._of_one_size("all_gather", output, source.numel())
        with self._scratch(source, self._n) as whole:
            self.communicator.all_gather(source.contiguous(), whole, stream=self.stream)
            self._apart(whole, output)

    def _apart(self, whole, outputs) -> None:
        for out, part in zip(outputs, whole.chunk(self._n)):
            out.copy_(part.view(out.shape))

    def gather(self, outputs, source, root: int) -> None:
        """Gather in the outputs of root, of which the others have none."""
        if self._me == root:
            self._of_one_size("gather", outputs, source.numel())
        if source.nbytes >= DIRECT:
            self._messages({root: source}, dict(enumerate(outputs)))
        elif self._me != root:
            self.communicator.gather(source.contiguous(), None, root=root, stream=self.stream)
        else:
            with self._scratch(source, self._n) as whole:
                self.communicator.gather(source.contiguous(), whole, root=root, stream=self.stream)
                self._apart(whole, outputs)

    def scatter(self, output, parts, root: int) -> None:
        """Give every rank its own of the parts of root, of which the others have none."""
        if self._me == root:
            self._of_one_size("scatter", parts, output.numel())
        if output.nbytes >= DIRECT:
            self._messages(dict(enumerate(parts)), {root: output})
            return
        with Dense(output) as out:
            if self._me != root:
                self.communicator.scatter(None, out, root=root, stream=self.stream)
            else:
                with self._together(parts) as whole:
                    self.communicator.scatter(whole, out, root=root, stream=self.stream)

    def all_to_all(self, outputs, parts) -> None:
        self._messages(dict(enumerate(parts)), dict(enumerate(outputs)))

    def all_to_all_single(self, output, source, output_sizes, input_sizes) -> None:
        with Dense(output) as out:
            if not output_sizes and not input_sizes:
                self.communicator.all_to_all(source.contiguous(), out, stream=self.stream)
            else:
                self.communicator.all_to_all_v(source.contiguous(), self._splits(source, input_sizes),
                                               out, self._splits(out, output_sizes), stream=self.stream)

    def _splits(self, tensor, sizes):
        """Return counts of elements for sizes along the first dimension; without sizes all are equal."""
        rows = tensor.shape[0] if tensor.dim() else 1
        row = tensor.numel() // rows if rows else 0
        if not sizes:
            if rows % self._n:
                raise _errors.invalid(f"all_to_all_single: {rows} rows for {self._n} ranks: expected a multiple, or sizes")
            sizes = [rows // self._n] * self._n
        if sum(sizes) != rows:
            raise _errors.invalid(f"all_to_all_single: sizes with the sum {sum(sizes)}: expected {rows}, the rows of the tensor")
        return [s * row for s in sizes]

    def send(self, tensor, peer: int) -> None:
        self.communicator.send(tensor.contiguous(), peer, stream=self.stream)

    def recv(self, tensor, peer: int) -> None:
        with Dense(tensor) as t:
            self.communicator.recv(t, peer, stream=self.stream)

    def barrier(self) -> None:
        self.communicator.barrier(stream=self.stream)


def kind(op):
    """Return the kind of a reduction of torch, which may carry a factor as well."""
    return getattr(op, "op", op)


def scaled(tensor, op):
    """Return what a reduction with a factor for each rank reduces, and the arguments that say how."""
    factor = op.__getstate__()[1]
    if not tensor.dtype.is_floating_point:
        raise _errors.make(2, f"reduction {kind(op)} of {tensor.dtype}: expected floating-point numbers")
    if isinstance(factor, torch.Tensor):  # its value may not be known yet
        return tensor * factor.to(tensor.dtype), {"op": ReduceOp.SUM}
    return tensor, {"op": ReduceOp.PREMUL_SUM, "scale": factor}


def native(tensor, op) -> bool:
    """Report whether the library has a reduction."""
    return (tensor.dtype, kind(op)) in _NATIVE


class Dense:
    """A tensor as contiguous memory: itself, or a copy whose contents it gets in the end."""

    def __init__(self, tensor, write: bool = True) -> None:
        self._tensor, self._write = tensor, write

    def __enter__(self):
        self._dense = self._tensor.contiguous()
        return self._dense

    def __exit__(self, kind, value, trace) -> None:
        if kind is None and self._write and self._dense is not self._tensor:
            self._tensor.copy_(self._dense)
