"""Communicators and their collectives."""

from __future__ import annotations

import ctypes
import warnings
from ctypes import byref, c_int32, c_size_t, c_void_p

from . import _errors, _lifetime, _streams, _types
from ._collectives import Collectives
from ._library import CommOptions, LogFunction, UniqueIdBytes, WriteFunction, library, no_caller
from ._objects import Objects, nanoseconds
from ._selection import Selection
from ._unique_id import UniqueId

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Communicator"]


class Communicator(Collectives, Objects, Selection):
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
        device: host, cuda, cuda:N, hip, hip:N or auto; None for host. The configuration's key "device" overrides it.
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

    def __init__(self, id: UniqueId | bytes | None = None, rank: int | None = None, size: int | None = None, *, device: str | None = None,
                 config: str | None = None, settings: Mapping[str, object] | Iterable[str] | None = None,
                 log: Callable[[int, str], object] | None = None, timeout: float | None = None, join: bool = True) -> None:
        self._closed = True  # until there is something to close
        lib = self._lib = library()
        o = CommOptions(size=ctypes.sizeof(CommOptions))
        if id is not None:
            if rank is None or size is None:
                raise _errors.invalid("communicator with an id: expected rank and size")
            raw = id.bytes if isinstance(id, UniqueId) else UniqueId(id).bytes
            o.id = ctypes.pointer(UniqueIdBytes.from_buffer_copy(raw))
            o.rank, o.ranks = _errors.whole(rank, "communicator: rank"), _errors.whole(size, "communicator: size")
        elif rank is not None or size is not None:
            raise _errors.invalid("communicator without an id: rank and size come from the launcher: expected neither, or an id")
        o.device = None if device is None else str(device).encode()
        o.config_file = None if config is None else str(config).encode()
        lines = [str(s).encode() for s in ([f"{k}={_text(v)}" for k, v in settings.items()] if hasattr(settings, "items") else settings or ())]
        o.settings = (ctypes.c_char_p * len(lines))(*lines)
        o.settings_count = len(lines)
        if log is not None and not callable(log):
            raise _errors.invalid(f"communicator: log {log!r}: expected a function of a level and a text")
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
        self._host = False
        self._index = None  # number of the GPU, -1 for the host
        self._device = None
        self._selector = None
        self._rank = self._size = None
        self._held = None  # buffers of an open group
        self._depth = 0
        self._parts = []
        self._caller = self._direct = no_caller  # makes calls in C; _direct at the moment, for a group has none
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
        self._caller = self._direct = self._lib.caller(self._handle, self._size, self._index)

    # State ----------------------------------------------------------------------------------------

    def _check(self, code: int) -> None:
        if code:
            raise self._error(code)

    def _error(self, code: int) -> BaseException:
        error = self._lib.error(code)
        problem = self._selector.problem() if self._selector is not None else None
        if problem is not None:
            if not isinstance(problem, Exception):  # KeyboardInterrupt, for one
                return problem
            error.__cause__ = problem
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

    def trace_start(self) -> None:
        """Write records of this rank's calls from now on, for mscclpp-run --trace, under which they are on, and mscclpp-run trace --job."""
        self._check(self._lib.trace_start(self._handle))

    def trace_stop(self) -> None:
        """Write no more records."""
        self._check(self._lib.trace_stop(self._handle))

    def trace_mark(self, text: str) -> None:
        """Write a text into the records while they are on: its first 31 bytes, of about a hundred different ones at most."""
        self._check(self._lib.trace_mark(self._handle, text.encode()))

    def split(self, color: int, key: int = 0) -> Communicator | None:
        """Divide the communicator: ranks with the same color form a new one, in the order of key, then of their rank.

        A rank with a negative color takes part, and gets None. Collective.
        """
        out = c_void_p()
        self._check(self._lib.comm_split(self._handle, _errors.whole(color, "split: color"), _errors.whole(key, "split: key"), byref(out)))
        if not out.value:
            return None
        new = self._relative(out.value)
        new._joined()
        return new

    def shrink(self, excluded: Iterable[int], *, abort: bool = False) -> Communicator:
        """Make a communicator without some ranks, in the order of their numbers, for when these have failed or are to leave.

        Only the ranks that stay call it, all with the same ranks; this communicator may have failed, and has to be ended by
        close() or abort(). Collective among those that stay.

        Args:
            excluded: numbers of the ranks that are left out.
            abort: whether calls that are in progress are stopped first.
        """
        ranks, out = [_errors.whole(r, "shrink: rank") for r in excluded], c_void_p()
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
        data = memoryview(data).tobytes()
        size, room = self.size, ctypes.create_string_buffer(max(1, len(data) * self.size))
        self._check(self._lib.comm_exchange(self._handle, data, len(data), room))
        return [room.raw[r * len(data):(r + 1) * len(data)] for r in range(size)]

    def settle(self, streams: Iterable[object] = (), timeout: float | None = None) -> None:
        """Wait until the given streams of the device have no work left, at most timeout seconds."""
        values = [_streams.pointer(s) for s in streams]
        self._check(self._lib.comm_settle(self._handle, (c_void_p * len(values))(*values), len(values), nanoseconds(timeout)))

    def close(self) -> None:
        """Leave in an orderly way, and free what was made with the communicator. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._caller = self._direct = no_caller
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
        self._end(self._lib.comm_abort, cause)

    def leave(self, cause: str = "") -> None:
        """End it for this rank alone, as abort does: the others go on. A call of theirs that needs this rank raises PeerError, with the cause."""
        self._end(self._lib.comm_leave, cause)

    def _end(self, function, cause: str) -> None:
        if not self._closed:
            self._closed, self._aborted = True, cause or "by the program"
            self._caller = self._direct = no_caller
            _lifetime.closed(self)
            self._check_end(function(self._handle, cause.encode() if cause else None))

    def __reduce__(self) -> tuple:
        raise TypeError("a communicator is neither copied nor pickled: expected UniqueId for other processes, and split() for one with the same ranks")

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: object) -> None:
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

    # Groups -----------------------------------------------------------------------------------------

    def group(self) -> _Group:
        """Return a context in which messages (send, recv, gather, scatter, all_to_all_v) are performed together, at its end.

        Groups nest. An exception that leaves the context aborts the communicator, for peers wait for what was not sent.
        """
        return _Group(self)

    def prepare(self, collective: str, dtype: object) -> None:
        """Load the kernels that calls of a collective may choose for a type, so that the first call need not, and may be captured."""
        self._check(self._lib.prepare(self._handle, collective.encode(), _types.data_type(dtype)))


class _Group:
    """The context of Communicator.group."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def __enter__(self) -> _Group:
        comm = self._comm
        comm._check(comm._lib.group_start(comm._handle))
        comm._depth += 1
        if comm._held is None:
            comm._held = []  # to which C would add nothing
            comm._direct = no_caller
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
                comm._held, comm._direct = None, comm._caller


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
