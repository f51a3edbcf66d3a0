"""Collectives and messages: how arguments become those of the C interface.

For arrays that it knows C does that itself, with the caller of the communicator. It leaves all others to what is here, and those with which something
is wrong, which is found here.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t

from . import _errors, _streams, _types
from ._buffers import Buffer, resolve
from ._library import CallOptions

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Iterable

# Calls of mscclpp_python_caller: MSCCLPP_PYTHON_ALL_REDUCE and so on.
_ALL_REDUCE, _REDUCE, _REDUCE_SCATTER, _ALL_GATHER, _BROADCAST, _ALL_TO_ALL, _SEND, _RECV = range(8)


class Collectives:
    """The collectives and messages of a communicator."""

    def all_reduce(self, send: object, recv: object = None, op: int = _types.ReduceOp.SUM,
                   *, stream: object = None, algorithm: str | None = None, scale: float | None = None) -> None:
        """Reduce the elements of all ranks, and give the result to all.

        Args:
            send: n elements.
            recv: n elements of the same type; None for the result in send.
            op: a ReduceOp.
            stream: of the GPU: a number, or a stream of torch or CuPy; None for the package's current one.
            algorithm: name of the algorithm; None lets the library choose.
            scale: with PREMUL_SUM: the factor of this rank's input; ranks may have different ones.

        Raises:
            InvalidUsage: the arguments cannot be right, or differ between ranks.
            UnsupportedError: no algorithm serves the type or operation.
            PeerError, TimeoutError, ClosedError: why the communicator has failed.
        """
        if algorithm is scale is None:
            if not (result := self._direct(_ALL_REDUCE, send, send if recv is None else recv, op, 0, stream)):
                return
            self._left_by_c(result)
        a = resolve(send, "all_reduce: send", stream)
        b = a if recv is None else resolve(recv, "all_reduce: recv", stream)
        count, code = self._sizes("all_reduce", a, b, 1, 1, reduces=True)
        self._call(self._lib.all_reduce, "all_reduce", (a.address, b.address, count, code, _types.reduction(op)), (a, b), b, stream, algorithm, scale)

    def reduce(self, send: object, recv: object = None, op: int = _types.ReduceOp.SUM, root: int = 0,
               *, stream: object = None, algorithm: str | None = None, scale: float | None = None) -> None:
        """Reduce n elements of all ranks to recv of root, where None is for the result in send. Arguments as all_reduce."""
        if algorithm is scale is None:
            if not (result := self._direct(_REDUCE, send, send if recv is None or self._rank != root else recv, op, root, stream)):
                return
            self._left_by_c(result)
        root = _errors.whole(root, "reduce: root")
        a = resolve(send, "reduce: send", stream)
        b = a if recv is None or self.rank != root else resolve(recv, "reduce: recv", stream)
        count, code = self._sizes("reduce", a, b, 1, 1, reduces=True)
        self._call(self._lib.reduce, "reduce", (a.address, b.address, count, code, _types.reduction(op), root), (a, b),
                   b if self.rank == root else None, stream, algorithm, scale)

    def reduce_scatter(self, send: object, recv: object = None, op: int = _types.ReduceOp.SUM,
                       *, stream: object = None, algorithm: str | None = None, scale: float | None = None) -> None:
        """Reduce size*n elements, and give each rank its own n of the result: in recv, or in its part of send for None."""
        if algorithm is scale is None:
            if not (result := self._direct(_REDUCE_SCATTER, send, recv, op, 0, stream)):
                return
            self._left_by_c(result)
        a = resolve(send, "reduce_scatter: send", stream)
        b = self._part(a, "reduce_scatter: send") if recv is None else resolve(recv, "reduce_scatter: recv", stream)
        count, code = self._sizes("reduce_scatter", a, b, self.size, 1, reduces=True)
        self._call(self._lib.reduce_scatter, "reduce_scatter", (a.address, b.address, count, code, _types.reduction(op)), (a, b), b, stream, algorithm, scale)

    def all_gather(self, send: object, recv: object, *, stream: object = None, algorithm: str | None = None) -> None:
        """Gather n elements of each rank in recv of all, which has size*n, in the order of ranks; send None: its part of recv."""
        if algorithm is None:
            if not (result := self._direct(_ALL_GATHER, send, recv, 0, 0, stream)):
                return
            self._left_by_c(result)
        b = resolve(recv, "all_gather: recv", stream)
        a = self._part(b, "all_gather: recv") if send is None else resolve(send, "all_gather: send", stream)
        count, code = self._sizes("all_gather", a, b, 1, self.size)
        self._call(self._lib.all_gather, "all_gather", (a.address, b.address, count, code), (a, b), b, stream, algorithm)

    def broadcast(self, send: object, recv: object = None, root: int = 0, *, stream: object = None, algorithm: str | None = None) -> None:
        """Copy n elements of root's send to recv of all, where None is for send itself. send is read on root alone, and may be None elsewhere."""
        if algorithm is None:
            if not (result := self._direct(_BROADCAST, send, send if recv is None else recv, 0, root, stream)):
                return
            self._left_by_c(result)
        root = _errors.whole(root, "broadcast: root")
        a = resolve(recv if send is None else send, "broadcast: send", stream)
        b = a if recv is None else resolve(recv, "broadcast: recv", stream)
        count, code = self._sizes("broadcast", a, b, 1, 1)
        self._call(self._lib.broadcast, "broadcast", (a.address, b.address, count, code, root), (a, b),
                   b if recv is not None or self.rank != root else None, stream, algorithm)

    def gather(self, send: object, recv: object = None, root: int = 0, *, stream: object = None, algorithm: str | None = None) -> None:
        """Collect n elements of each rank in root's recv, which has size*n, in the order of ranks. recv is used on root alone."""
        root = _errors.whole(root, "gather: root")
        a = resolve(send, "gather: send", stream)
        if self.rank == root:
            b = resolve(recv, "gather: recv", stream)
            count, code = self._sizes("gather", a, b, 1, self.size)
        else:
            b = None
            count, code = self._sizes("gather", a, a, 1, 1)
        self._call(self._lib.gather, "gather", (a.address, b.address if b else None, count, code, root), (a, b), b, stream, algorithm)

    def scatter(self, send: object, recv: object, root: int = 0, *, stream: object = None, algorithm: str | None = None) -> None:
        """Send n elements of root's send, which has size*n, to recv of each rank. send is used on root alone."""
        root = _errors.whole(root, "scatter: root")
        b = resolve(recv, "scatter: recv", stream)
        if self.rank == root:
            a = resolve(send, "scatter: send", stream)
            count, code = self._sizes("scatter", a, b, self.size, 1)
        else:
            a = None
            count, code = self._sizes("scatter", b, b, 1, 1)
        self._call(self._lib.scatter, "scatter", (a.address if a else None, b.address, count, code, root), (a, b), b, stream, algorithm)

    def all_to_all(self, send: object, recv: object, *, stream: object = None, algorithm: str | None = None) -> None:
        """Send the n elements at r*n of send to each rank r, and receive as many from it at r*n of recv."""
        if algorithm is None:
            if not (result := self._direct(_ALL_TO_ALL, send, recv, 0, 0, stream)):
                return
            self._left_by_c(result)
        a, b = resolve(send, "all_to_all: send", stream), resolve(recv, "all_to_all: recv", stream)
        count, code = self._sizes("all_to_all", a, b, self.size, self.size)
        self._call(self._lib.all_to_all, "all_to_all", (a.address, b.address, count, code), (a, b), b, stream, algorithm)

    def all_to_all_v(self, send: object, send_counts: Iterable[int], recv: object, recv_counts: Iterable[int],
                     send_offsets: Iterable[int] | None = None, recv_offsets: Iterable[int] | None = None,
                     *, stream: object = None, algorithm: str | None = None) -> None:
        """Send send_counts[r] elements at send_offsets[r] to each rank r, and receive recv_counts[r] at recv_offsets[r].

        Counts and offsets are in elements. Without offsets the parts lie one after the other.
        """
        a, b = resolve(send, "all_to_all_v: send", stream), resolve(recv, "all_to_all_v: recv", stream)
        unit, code = self._unit("all_to_all_v", a, b)
        n1, o1 = self._layout("all_to_all_v: send", a, unit, send_counts, send_offsets)
        n2, o2 = self._layout("all_to_all_v: recv", b, unit, recv_counts, recv_offsets)
        self._call(self._lib.all_to_all_v, "all_to_all_v", (a.address, n1, o1, b.address, n2, o2, code), (a, b), b, stream, algorithm)

    def send(self, buffer: object, peer: int, *, stream: object = None, algorithm: str | None = None) -> None:
        """Send a message to a peer. Messages between two ranks in one direction are matched in their order."""
        if algorithm is None:
            if not (result := self._direct(_SEND, buffer, buffer, 0, peer, stream)):
                return
            self._left_by_c(result)
        a = resolve(buffer, "send: buffer", stream)
        count, code = self._sizes("send", a, a, 1, 1)
        self._call(self._lib.send, "send", (a.address, count, code, _errors.whole(peer, "send: peer")), (a,), None, stream, algorithm)

    def recv(self, buffer: object, peer: int, *, stream: object = None, algorithm: str | None = None) -> None:
        """Receive a message of a peer, which has as many elements as buffer."""
        if algorithm is None:
            if not (result := self._direct(_RECV, buffer, buffer, 0, peer, stream)):
                return
            self._left_by_c(result)
        b = resolve(buffer, "recv: buffer", stream)
        count, code = self._sizes("recv", b, b, 1, 1)
        self._call(self._lib.recv, "recv", (b.address, count, code, _errors.whole(peer, "recv: peer")), (b,), b, stream, algorithm)

    def barrier(self, *, stream: object = None) -> None:
        """Wait, on the device, until all ranks have called it."""
        self._call(self._lib.barrier, "barrier", (), (), None, stream, None)

    # Common parts of collectives ---------------------------------------------------------------

    def _left_by_c(self, result: int) -> None:
        """Return if C has left a call to this class, and raise why it failed if C has made it."""
        if result > 0:
            raise self._error(result)

    def _call(self, function, name, arguments, buffers, target, stream, algorithm, scale=None) -> None:
        for b in buffers:
            if b is not None:
                self._place(b, name)
        if target is not None and target.readonly:
            raise _errors.invalid(f"{name}: {target.type} is read-only: expected memory that the result can be written to")
        if name in ("all_reduce", "reduce", "reduce_scatter") and (scale is None) == (arguments[4] == _types.ReduceOp.PREMUL_SUM):
            raise _errors.invalid(f"{name}: PREMUL_SUM without a scale" if scale is None else f"{name}: {_types.ReduceOp(arguments[4]).name} with a scale: expected PREMUL_SUM, or none")
        options = None
        if not self._host:
            stream = _streams.choose(stream, buffers, self._index or 0)
        elif stream is not None:
            raise _errors.invalid(f"{name}: stream {stream!r} for a communicator on the host: expected None")
        if stream or algorithm is not None or scale is not None:
            try:
                options = CallOptions(ctypes.sizeof(CallOptions), stream or None, algorithm and algorithm.encode(), 0.0 if scale is None else float(scale))
            except (AttributeError, TypeError, ValueError):
                raise _errors.invalid(f"{name}: algorithm {algorithm!r}, scale {scale!r}: expected a name and a number") from None
        result = function(self._handle, *arguments, None if options is None else byref(options))
        if result:
            raise self._error(result)
        if self._held is not None:
            self._held.append((buffers, arguments, options))

    def _place(self, b: Buffer, name: str) -> None:
        if self._rank is None or self._closed:
            self.rank
            raise self._error(3)
        if (b.device is None) == (self._device == "host") and (b.device in (None, -1) or self._device == f"cuda:{b.device}"):
            return
        there = "the host" if b.device is None else "a GPU" if b.device < 0 else f"cuda:{b.device}"
        raise _errors.invalid(f"{name}: {b.type} is memory of {there}: expected memory of {self._device}, the communicator's device")

    def _unit(self, name: str, a: Buffer, b: Buffer, reduces: bool = False) -> tuple[int, int]:
        """Return the bytes of what is counted, and its type; elements that the library has no type for go as bytes."""
        if a is not b and (a.code != b.code or a.itemsize != b.itemsize):
            raise _errors.invalid(f"{name}: send has {a.type}, recv {b.type}: expected one type")
        self._lib.learn(a.keep)
        if a.code is not None:
            return a.itemsize, a.code
        if reduces:
            raise _errors.invalid(f"{name}: {a.type}: expected one of {', '.join(t.name for t in _types.DataType)} in the byte order of this machine")
        return 1, int(_types.DataType.uint8)

    def _sizes(self, name: str, a: Buffer, b: Buffer, sends: int, receives: int, reduces: bool = False) -> tuple[int, int]:
        """Return the count of a call whose send has `sends` times, and whose recv `receives` times as many elements."""
        unit, code = self._unit(name, a, b, reduces)
        if a.bytes * receives != b.bytes * sends:
            raise _errors.invalid(f"{name}: send has {a.bytes} bytes, recv {b.bytes}: expected {sends} to {receives}")
        count, rest = divmod(a.bytes, unit * sends)
        if rest:
            raise _errors.invalid(f"{name}: {a.bytes // a.itemsize} elements for {sends} ranks: expected a multiple")
        return count, code

    def _part(self, whole: Buffer, what: str) -> Buffer:
        """Return this rank's part of a buffer that has one for each rank."""
        n, rest = divmod(whole.bytes, self.size)
        if rest or n % max(whole.itemsize, 1):
            raise _errors.invalid(f"{what}: {whole.bytes // whole.itemsize} elements for {self.size} ranks: expected a multiple")
        part = Buffer(whole.address + self.rank * n, n, whole.itemsize, whole.code, whole.device, whole.readonly, whole.keep, whole.type)
        part.stream = whole.stream
        return part

    def _layout(self, what: str, buffer: Buffer, unit: int, counts, offsets):
        """Return arrays of counts and offsets for C, in units, all of which lie in the buffer."""
        counts = [int(c) for c in counts]
        if offsets is None:
            offsets, at = [], 0
            for c in counts:
                offsets.append(at)
                at += c
        offsets = [int(o) for o in offsets]
        if len(counts) != self.size or len(offsets) != self.size:
            raise _errors.invalid(f"{what}: {len(counts)} counts and {len(offsets)} offsets: expected {self.size} each")
        total = buffer.bytes // max(buffer.itemsize, 1)
        for r, (c, o) in enumerate(zip(counts, offsets)):
            if c < 0 or o < 0 or o + c > total:
                raise _errors.invalid(f"{what}: {c} elements at {o} for rank {r}: expected them within the {total} of the buffer")
        scale = buffer.itemsize // unit
        array = c_size_t * self.size
        return array(*(c * scale for c in counts)), array(*(o * scale for o in offsets))
