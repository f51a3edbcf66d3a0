"""Communicators and their collectives."""

from __future__ import annotations

import ctypes
import sys
import warnings
from ctypes import byref, c_int32, c_size_t, c_void_p

from . import _errors, _lifetime, _streams, _types
from ._buffers import Buffer, from_buffer, resolve
from ._library import CallOptions, CommOptions, LogFunction, UniqueIdBytes, WriteFunction, library
from ._objects import Objects, nanoseconds
from ._unique_id import UniqueId

__all__ = ["Communicator"]

_known = _types.cache
_ndarray = None  # numpy.ndarray, once one was seen
_tensor = None  # torch.Tensor likewise
_current_stream = None  # of torch, by the number of a GPU
_on_stream: dict = {}
_counts: dict[int, c_size_t] = {}
_OTHERWISE = (KeyError, TypeError, ValueError, BufferError)  # of arrays that do not take the short way


def _count(n: int) -> c_size_t:
    """Return a count as an object for C; the usual ones are kept."""
    if len(_counts) > 1000:
        _counts.clear()
    _counts[n] = count = c_size_t(n)
    return count


def _learn(array, code: int | None) -> None:
    """Remember the type of a NumPy array and of its elements: such arrays take a shorter way from now on."""
    global _ndarray, _tensor, _current_stream
    package = type(array).__module__
    if package == "numpy":
        _ndarray = sys.modules["numpy"].ndarray
        _known[array.dtype] = code
    elif package == "torch":
        torch = sys.modules["torch"]
        _tensor, _current_stream = torch.Tensor, getattr(torch._C, "_cuda_getCurrentRawStream", None)
        _known[array.dtype] = code


def _stream_options(stream: int):
    """Return the options of a call on a stream, which nobody changes; those of some streams are kept."""
    if len(_on_stream) > 100:
        _on_stream.clear()
    _on_stream[stream] = options = byref(CallOptions(ctypes.sizeof(CallOptions), stream or None, None, 0.0))
    return options


class Communicator(Objects):
    """All ranks of a job, or of a part of it.

    Without an id the launcher's variables say rank, size and the meeting point: those of mscclpp-run, torchrun, mpirun
    and Slurm; without such variables the job has one rank. Collectives are made by all ranks in the same order with the
    same count, type, operation and root. On the host a call returns when it is done, on a GPU when it is on the stream.

    Used in a ``with`` statement it is closed at its end, or aborted if an exception leaves it, so that the other
    ranks get a PeerError with its text instead of waiting.

    Args:
        id: a UniqueId that rank 0 has made, or its 128 bytes; rank and size belong to it.
        rank: number of this rank, from 0.
        size: how many ranks there are.
        device: host, cuda, cuda:N or auto; None for host. The configuration's key "device" overrides it.
        config: a configuration file; None for the one that MSCCLPP_CONFIG names, if any.
        settings: keys of the configuration and their values; they override all others.
        log: function(level, text) for log messages, called on any thread; levels are 0 debug, 1 info, 2 warn, 3 error.
        timeout: seconds, of each call that waits for other ranks to get ready; None for the configuration's.
        join: False returns before the other ranks are there; join() waits for them.

    Raises:
        InvalidUsage: a configuration, device name or place cannot be right.
        TimeoutError, PeerError: ranks are missing; the text names them.
        UnavailableError: this machine lacks the device, a plugin or a kernel.
    """

    def __init__(self, id=None, rank=None, size=None, *, device=None, config=None, settings=None, log=None, timeout=None, join=True):
        self._closed = True  # until there is something to close
        lib = self._lib = library()
        o = CommOptions(size=ctypes.sizeof(CommOptions))
        if id is not None:
            if rank is None or size is None:
                raise _errors.invalid("communicator with an id: expected rank and size")
            raw = id.bytes if isinstance(id, UniqueId) else UniqueId(id).bytes
            o.id = ctypes.pointer(UniqueIdBytes.from_buffer_copy(raw))
            o.rank, o.ranks = rank, size
        elif rank is not None or size is not None:
            raise _errors.invalid("communicator without an id: rank and size come from the launcher: expected neither, or an id")
        o.device = None if device is None else str(device).encode()
        o.config_file = None if config is None else str(config).encode()
        lines = [str(s).encode() for s in ([f"{k}={_text(v)}" for k, v in settings.items()] if hasattr(settings, "items") else settings or ())]
        o.settings = (ctypes.c_char_p * len(lines))(*lines)
        o.settings_count = len(lines)
        self._log = LogFunction(_logger(log)) if log is not None else LogFunction(0)
        o.log = self._log
        if timeout is not None:
            o.timeout = nanoseconds(timeout)
        handle = c_void_p()
        lib.check(lib.comm_create(byref(o), byref(handle)))
        self._begin(handle.value)
        if join:
            try:
                self.join()
            except BaseException:
                self.close()
                raise

    def _begin(self, handle: int) -> None:
        self._handle = handle
        self._closed = False
        self._aborted = None
        self._host = False  # the short way of NumPy's arrays is open
        self._index = None  # likewise of torch's tensors: the number of the GPU, -1 for the host
        self._device = None
        self._rank = self._size = None
        self._held = None  # buffers of an open group
        self._depth = 0
        self._parts = []
        self._quick = self._lib.quick_all_reduce
        self._pointer = c_void_p(handle)
        _lifetime.opened(self)

    def join(self) -> None:
        """Wait for all ranks, start the transports and prepare collectives. Joining again does what the first time did."""
        self._check(self._lib.comm_join(self._handle))
        self._joined()

    def _joined(self) -> None:
        rank, size = c_int32(), c_int32()
        self._check(self._lib.comm_rank(self._handle, byref(rank)))
        self._check(self._lib.comm_size(self._handle, byref(size)))
        self._rank, self._size = rank.value, size.value
        self._device = self.query("device")
        self._host = self._device == "host"
        self._index = -1 if self._host else int(self._device.rpartition(":")[2])

    # State ----------------------------------------------------------------------------------------

    def _check(self, code: int) -> None:
        if code:
            raise self._error(code)

    def _error(self, code: int) -> _errors.Error:
        error = self._lib.error(code)
        if self._closed and code == 3:
            why = f"aborted: {self._aborted}" if self._aborted is not None else "closed"
            return _errors.make(5, f"the communicator was {why}")
        return error

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        if self._rank is None:
            raise self._error(3) if self._closed else _errors.invalid("the communicator was not joined yet: expected join() first")
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        self.rank
        return self._size

    @property
    def device(self) -> str:
        """The device whose memory collectives use: host, or cuda:N."""
        self.rank
        return self._device

    @property
    def closed(self) -> bool:
        """Whether it was closed or aborted."""
        return self._closed

    @property
    def handle(self) -> int:
        """The mscclpp_comm_t, for functions of the C interface."""
        return self._handle

    def query(self, property: str) -> str:
        """Return a property: device, device.name, transports, shared, name, host, or algorithms.COLLECTIVE."""
        room = c_size_t(256)
        while True:
            text, had = ctypes.create_string_buffer(room.value), room.value
            code = self._lib.comm_query(self._handle, property.encode(), text, byref(room))
            if not code:
                return text.value.decode()
            if room.value <= had:
                raise self._error(code)

    def status(self) -> None:
        """Return if the communicator works, and raise why it cannot be used any more. It never waits."""
        self._check(self._lib.comm_status(self._handle))

    def check(self) -> None:
        """Do as status(), and raise errors of kernels that have run since a call on a GPU returned, each once."""
        self._check(self._lib.comm_check(self._handle))

    def dump(self) -> str:
        """Return the state of the communicator and its channels, and the last call of each rank: why a job hangs."""
        parts = []
        self._check(self._lib.comm_dump(self._handle, WriteFunction(lambda _, text, size: parts.append(ctypes.string_at(text, size))), None))
        return b"".join(parts).decode("utf-8", "replace")

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Divide the communicator: ranks with the same color form a new one, in the order of key, then of their rank.

        A rank with a negative color takes part, and gets None. Collective.
        """
        out = c_void_p()
        self._check(self._lib.comm_split(self._handle, color, key, byref(out)))
        if not out.value:
            return None
        new = self._relative(out.value)
        new._joined()
        return new

    def shrink(self, excluded, *, abort: bool = False) -> Communicator:
        """Make a communicator without some ranks, in the order of their numbers, for when these have failed or are to leave.

        Only the ranks that stay call it, all with the same ranks; this communicator may have failed, and has to be ended by
        close() or abort(). Collective among those that stay.

        Args:
            excluded: numbers of the ranks that are left out.
            abort: whether calls that are in progress are stopped first.
        """
        ranks, out = [int(r) for r in excluded], c_void_p()
        self._check(self._lib.comm_shrink(self._handle, (c_int32 * len(ranks))(*ranks), len(ranks), 1 if abort else 0, byref(out)))
        new = self._relative(out.value)
        try:
            new.join()
        except BaseException:
            new.close()
            raise
        return new

    def _relative(self, handle: int) -> Communicator:
        """Return the object of a communicator that was made from this one, and uses its functions."""
        new = Communicator.__new__(Communicator)
        new._lib, new._log = self._lib, self._log
        new._begin(handle)
        return new

    def exchange(self, data: bytes) -> list[bytes]:
        """Return the bytes of every rank, in the order of ranks; all give as many. For what ranks agree on, in memory of the host. Collective."""
        data = bytes(data)
        size, room = self.size, ctypes.create_string_buffer(max(1, len(data) * self.size))
        self._check(self._lib.comm_exchange(self._handle, data, len(data), room))
        return [room.raw[r * len(data):(r + 1) * len(data)] for r in range(size)]

    def settle(self, streams=(), timeout: float | None = None) -> None:
        """Wait until the given streams of the device have no work left, at most timeout seconds."""
        values = [_streams.pointer(s) for s in streams]
        self._check(self._lib.comm_settle(self._handle, (c_void_p * len(values))(*values), len(values), nanoseconds(timeout)))

    def close(self) -> None:
        """Leave in an orderly way, and free what was made with the communicator. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._host, self._index = False, None
            _lifetime.closed(self)
            self._check_end(self._lib.comm_destroy(self._handle))

    def _check_end(self, code: int) -> None:
        for part in self._parts:
            part._ended()
        self._parts.clear()
        if code:
            raise self._lib.error(code)

    def abort(self, cause: str = "") -> None:
        """End the communicator at once, from any thread, also while others are in a call. The other ranks learn the cause."""
        if not self._closed:
            self._closed, self._aborted = True, cause or "by the program"
            self._host, self._index = False, None
            _lifetime.closed(self)
            self._check_end(self._lib.comm_abort(self._handle, cause.encode() if cause else None))

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind, value, trace) -> None:
        if kind is None:
            self.close()
        else:
            self.abort(_lifetime.cause(kind, value))

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
            self.close()

    def __repr__(self) -> str:
        if self._closed:
            return "<mscclpp.Communicator, closed>"
        if self._rank is None:
            return "<mscclpp.Communicator, not joined>"
        return f"<mscclpp.Communicator, rank {self._rank} of {self._size} on {self._device}>"

    # Collectives ----------------------------------------------------------------------------------

    def all_reduce(self, send, recv=None, op=_types.ReduceOp.SUM, *, stream=None, algorithm=None, scale=None) -> None:
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
        if self._host and type(send) is _ndarray and stream is algorithm is scale is self._held and isinstance(op, int):
            try:
                code, count = _known[send.dtype], send.size
                at = to = from_buffer(send)
                if recv is not None and recv is not send:
                    to = from_buffer(recv) if type(recv) is _ndarray and recv.size == count and recv.dtype is send.dtype else None
            except _OTHERWISE:
                code = None
            if code is not None and to is not None:
                result = self._quick(self._pointer, at, to, _counts.get(count) or _count(count), code, op, None)
                if result:
                    raise self._error(result)
                return
        if type(send) is _tensor and algorithm is scale is None and isinstance(op, int):
            short = self._tensors(send, send if recv is None else recv, 1, 1, stream)
            if short is not None:
                return self._short(self._lib.quick_all_reduce, short[:4] + (op,), short[4])
        a = resolve(send, "all_reduce: send", stream)
        b = a if recv is None else resolve(recv, "all_reduce: recv", stream)
        count, code = self._sizes("all_reduce", a, b, 1, 1, reduces=True)
        self._call(self._lib.all_reduce, "all_reduce", (a.address, b.address, count, code, int(op)), (a, b), b, stream, algorithm, scale)

    def reduce(self, send, recv=None, op=_types.ReduceOp.SUM, root: int = 0, *, stream=None, algorithm=None, scale=None) -> None:
        """Reduce n elements of all ranks to recv of root, where None is for the result in send. Arguments as all_reduce."""
        if algorithm is scale is None and type(root) is int and isinstance(op, int):
            short = self._arrays(send, send if recv is None or self._rank != root else recv, 1, 1, stream)
            if short is not None:
                return self._short(self._lib.quick_reduce, short[:4] + (op, root), short[4])
        a = resolve(send, "reduce: send", stream)
        b = a if recv is None or self.rank != root else resolve(recv, "reduce: recv", stream)
        count, code = self._sizes("reduce", a, b, 1, 1, reduces=True)
        self._call(self._lib.reduce, "reduce", (a.address, b.address, count, code, int(op), root), (a, b),
                   b if self.rank == root else None, stream, algorithm, scale)

    def reduce_scatter(self, send, recv=None, op=_types.ReduceOp.SUM, *, stream=None, algorithm=None, scale=None) -> None:
        """Reduce size*n elements, and give each rank its own n of the result: in recv, or in its part of send for None."""
        if self._host and type(send) is type(recv) is _ndarray and stream is algorithm is scale is self._held and isinstance(op, int):
            try:
                code, count = _known[recv.dtype], recv.size
                if send.size != count * self._size or send.dtype is not recv.dtype:
                    code = None
                at, to = from_buffer(send), from_buffer(recv)
            except _OTHERWISE:
                code = None
            if code is not None:
                result = self._lib.quick_reduce_scatter(self._pointer, at, to, _counts.get(count) or _count(count), code, op, None)
                if result:
                    raise self._error(result)
                return
        if type(send) is _tensor and algorithm is scale is None and isinstance(op, int):
            short = self._tensors(send, recv, self._size or 1, 1, stream)
            if short is not None:
                return self._short(self._lib.quick_reduce_scatter, short[:4] + (op,), short[4])
        a = resolve(send, "reduce_scatter: send", stream)
        b = self._part(a, "reduce_scatter: send") if recv is None else resolve(recv, "reduce_scatter: recv", stream)
        count, code = self._sizes("reduce_scatter", a, b, self.size, 1, reduces=True)
        self._call(self._lib.reduce_scatter, "reduce_scatter", (a.address, b.address, count, code, int(op)), (a, b), b, stream, algorithm, scale)

    def all_gather(self, send, recv, *, stream=None, algorithm=None) -> None:
        """Gather n elements of each rank in recv of all, which has size*n, in the order of ranks; send None: its part of recv."""
        if self._host and type(send) is type(recv) is _ndarray and stream is algorithm is self._held:
            try:
                code, count = _known[send.dtype], send.size
                if recv.size != count * self._size or send.dtype is not recv.dtype:
                    code = None
                at, to = from_buffer(send), from_buffer(recv)
            except _OTHERWISE:
                code = None
            if code is not None:
                result = self._lib.quick_all_gather(self._pointer, at, to, _counts.get(count) or _count(count), code, None)
                if result:
                    raise self._error(result)
                return
        if type(send) is _tensor and algorithm is None:
            short = self._tensors(send, recv, 1, self._size, stream)
            if short is not None:
                return self._short(self._lib.quick_all_gather, short[:4], short[4])
        b = resolve(recv, "all_gather: recv", stream)
        a = self._part(b, "all_gather: recv") if send is None else resolve(send, "all_gather: send", stream)
        count, code = self._sizes("all_gather", a, b, 1, self.size)
        self._call(self._lib.all_gather, "all_gather", (a.address, b.address, count, code), (a, b), b, stream, algorithm)

    def broadcast(self, send, recv=None, root: int = 0, *, stream=None, algorithm=None) -> None:
        """Copy n elements of root's send to recv of all, where None is for send itself. send is read on root alone, and may be None elsewhere."""
        if algorithm is None and type(root) is int:
            short = self._arrays(send, send if recv is None else recv, 1, 1, stream)
            if short is not None:
                return self._short(self._lib.quick_broadcast, short[:4] + (root,), short[4])
        a = resolve(recv if send is None else send, "broadcast: send", stream)
        b = a if recv is None else resolve(recv, "broadcast: recv", stream)
        count, code = self._sizes("broadcast", a, b, 1, 1)
        self._call(self._lib.broadcast, "broadcast", (a.address, b.address, count, code, root), (a, b),
                   b if recv is not None or self.rank != root else None, stream, algorithm)

    def gather(self, send, recv=None, root: int = 0, *, stream=None, algorithm=None) -> None:
        """Collect n elements of each rank in root's recv, which has size*n, in the order of ranks. recv is used on root alone."""
        a = resolve(send, "gather: send", stream)
        if self.rank == root:
            b = resolve(recv, "gather: recv", stream)
            count, code = self._sizes("gather", a, b, 1, self.size)
        else:
            b = None
            count, code = self._sizes("gather", a, a, 1, 1)
        self._call(self._lib.gather, "gather", (a.address, b.address if b else None, count, code, root), (a, b), b, stream, algorithm)

    def scatter(self, send, recv, root: int = 0, *, stream=None, algorithm=None) -> None:
        """Send n elements of root's send, which has size*n, to recv of each rank. send is used on root alone."""
        b = resolve(recv, "scatter: recv", stream)
        if self.rank == root:
            a = resolve(send, "scatter: send", stream)
            count, code = self._sizes("scatter", a, b, self.size, 1)
        else:
            a = None
            count, code = self._sizes("scatter", b, b, 1, 1)
        self._call(self._lib.scatter, "scatter", (a.address if a else None, b.address, count, code, root), (a, b), b, stream, algorithm)

    def all_to_all(self, send, recv, *, stream=None, algorithm=None) -> None:
        """Send the n elements at r*n of send to each rank r, and receive as many from it at r*n of recv."""
        if algorithm is None:
            short = self._arrays(send, recv, self._size or 1, self._size, stream)
            if short is not None:
                return self._short(self._lib.quick_all_to_all, short[:4], short[4])
        a, b = resolve(send, "all_to_all: send", stream), resolve(recv, "all_to_all: recv", stream)
        count, code = self._sizes("all_to_all", a, b, self.size, self.size)
        self._call(self._lib.all_to_all, "all_to_all", (a.address, b.address, count, code), (a, b), b, stream, algorithm)

    def all_to_all_v(self, send, send_counts, recv, recv_counts, send_offsets=None, recv_offsets=None, *, stream=None, algorithm=None) -> None:
        """Send send_counts[r] elements at send_offsets[r] to each rank r, and receive recv_counts[r] at recv_offsets[r].

        Counts and offsets are in elements. Without offsets the parts lie one after the other.
        """
        a, b = resolve(send, "all_to_all_v: send", stream), resolve(recv, "all_to_all_v: recv", stream)
        unit, code = self._unit("all_to_all_v", a, b)
        n1, o1 = self._layout("all_to_all_v: send", a, unit, send_counts, send_offsets)
        n2, o2 = self._layout("all_to_all_v: recv", b, unit, recv_counts, recv_offsets)
        self._call(self._lib.all_to_all_v, "all_to_all_v", (a.address, n1, o1, b.address, n2, o2, code), (a, b), b, stream, algorithm)

    def send(self, buffer, peer: int, *, stream=None, algorithm=None) -> None:
        """Send a message to a peer. Messages between two ranks in one direction are matched in their order."""
        if algorithm is None and type(peer) is int:
            short = self._arrays(buffer, buffer, 1, 1, stream)
            if short is not None:
                return self._short(self._lib.quick_send, short[1:4] + (peer,), short[4])
        a = resolve(buffer, "send: buffer", stream)
        count, code = self._sizes("send", a, a, 1, 1)
        self._call(self._lib.send, "send", (a.address, count, code, peer), (a,), None, stream, algorithm)

    def recv(self, buffer, peer: int, *, stream=None, algorithm=None) -> None:
        """Receive a message of a peer, which has as many elements as buffer."""
        if algorithm is None and type(peer) is int:
            short = self._arrays(buffer, buffer, 1, 1, stream)
            if short is not None:
                return self._short(self._lib.quick_recv, short[1:4] + (peer,), short[4])
        b = resolve(buffer, "recv: buffer", stream)
        count, code = self._sizes("recv", b, b, 1, 1)
        self._call(self._lib.recv, "recv", (b.address, count, code, peer), (b,), b, stream, algorithm)

    def barrier(self, *, stream=None) -> None:
        """Wait, on the device, until all ranks have called it."""
        self._call(self._lib.barrier, "barrier", (), (), None, stream, None)

    def group(self) -> _Group:
        """Return a context in which messages (send, recv, gather, scatter, all_to_all_v) are performed together, at its end.

        Groups nest. An exception that leaves the context aborts the communicator, for peers wait for what was not sent.
        """
        return _Group(self)

    def prepare(self, collective: str, dtype) -> None:
        """Load the kernels that calls of a collective may choose for a type, so that the first call need not, and may be captured."""
        self._check(self._lib.prepare(self._handle, collective.encode(), _types.data_type(dtype)))

    def _arrays(self, send, recv, sends: int, receives: int, stream):
        """Return pointers, count, type and options for C where two arrays of NumPy, or tensors, can take the short way."""
        if type(send) is _tensor:
            return self._tensors(send, recv, sends, receives, stream)
        if not self._host or type(send) is not _ndarray or type(recv) is not _ndarray or self._held is not None or stream is not None:
            return None
        try:
            code, total = _known[send.dtype], send.size
            count = total // sends
            if code is None or recv.dtype is not send.dtype or count * sends != total or recv.size != count * receives:
                return None
            at = from_buffer(send)
            return at, at if recv is send else from_buffer(recv), _counts.get(count) or _count(count), code, None
        except _OTHERWISE:
            return None

    def _tensors(self, send, recv, sends: int, receives: int, stream):
        """Do as _arrays for dense tensors of torch on the communicator's device."""
        index = self._index
        if index is None or type(recv) is not _tensor or self._held is not None:
            return None
        try:
            dtype = send.dtype
            code, total = _known[dtype], send.numel()
            count = total if sends == 1 else total // sends
            if code is None or not send.is_contiguous() or send.is_neg() or count * sends != total:
                return None
            at = to = c_void_p(send.data_ptr())
            if recv is not send:
                if recv.dtype is not dtype or recv.numel() != count * receives or not recv.is_contiguous() or recv.is_neg():
                    return None
                to = c_void_p(recv.data_ptr())
            if index < 0:
                options = None
                if stream is not None or not send.is_cpu or not recv.is_cpu:
                    return None
            else:
                if not send.is_cuda or send.get_device() != index or recv.get_device() != index:
                    return None
                number = _current_stream(index) if stream is None else _streams.pointer(stream)
                options = _on_stream.get(number) or _stream_options(number)
            return at, to, _counts.get(count) or _count(count), code, options
        except (KeyError, RuntimeError, TypeError):  # a layout without memory, a type that is not known yet
            return None

    def _short(self, function, arguments, options) -> None:
        result = function(self._pointer, *arguments, options)
        if result:
            raise self._error(result)

    # Common parts of collectives ---------------------------------------------------------------

    def _call(self, function, name, arguments, buffers, target, stream, algorithm, scale=None) -> None:
        for b in buffers:
            if b is not None:
                self._place(b, name)
        if target is not None and target.readonly:
            raise _errors.invalid(f"{name}: {target.type} is read-only: expected memory that the result can be written to")
        if scale is None and name in ("all_reduce", "reduce", "reduce_scatter") and arguments[4] == _types.ReduceOp.PREMUL_SUM:
            raise _errors.invalid(f"{name}: PREMUL_SUM without a scale")
        options = None
        if not self._host:
            stream = _streams.choose(stream, buffers, self._index or 0)
        elif stream is not None:
            raise _errors.invalid(f"{name}: stream {stream!r} for a communicator on the host: expected None")
        if stream or algorithm is not None or scale is not None:
            options = CallOptions(ctypes.sizeof(CallOptions), stream or None, algorithm and algorithm.encode(), 0.0 if scale is None else float(scale))
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
        _learn(a.keep, a.code)
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


class _Group:
    """The context of Communicator.group."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def __enter__(self) -> _Group:
        comm = self._comm
        comm._check(comm._lib.group_start(comm._handle))
        comm._depth += 1
        if comm._held is None:
            comm._held = []
        return self

    def __exit__(self, kind, value, trace) -> None:
        comm = self._comm
        comm._depth -= 1
        try:
            if kind is not None:
                comm.abort(_lifetime.cause(kind, value))
            else:
                comm._check(comm._lib.group_end(comm._handle))
        finally:
            if comm._depth == 0:
                comm._held = None


def _text(value) -> str:
    """Return a value of the configuration as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(_text(v) for v in value)
    return str(value)


def _logger(function):
    def log(_, level, text):
        function(level, text.decode("utf-8", "replace"))
    return log
