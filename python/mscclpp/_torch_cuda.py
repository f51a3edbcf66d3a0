"""Operations on CUDA tensors: which stream they are put on, and who waits for them.

A call that is not asynchronous goes on the current stream. An asynchronous one goes on a stream of the group, which first waits for the
current one; ``work.wait()`` lets the then current stream wait for it, and returns at once. So both behave as with the backend nccl.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import torch
import torch.distributed as dist
from torch.futures import Future

from . import _errors
from ._torch_work import Worker, seconds

_MARK = 0.1  # seconds between two events by which the time limit of calls on the current stream is watched


class Streams:
    """What is asked of torch.cuda; tests have another one."""

    _known: dict = {}

    def current(self, device):
        number, index, kind = torch._C._cuda_getCurrentStream(device.index)
        stream = self._known.get((number, index))
        if stream is None:  # of which there are few
            stream = self._known[number, index] = torch.cuda.Stream(stream_id=number, device_index=index, device_type=kind)
        return stream

    def pointer(self, device) -> int:
        """Return the CUstream of the current stream, for which torch need not make an object."""
        return torch._C._cuda_getCurrentRawStream(device.index)

    def new(self, device):
        return torch.cuda.Stream(device)

    def event(self, stream, again=None):
        """Return an event that is recorded on a stream: a new one, or one that nobody needs as it was recorded before."""
        event = torch.cuda.Event() if again is None else again
        event.record(stream)
        return event

    def use(self, stream):
        """Return a context in which a stream is the current one."""
        return torch.cuda.stream(stream)

    def capturing(self) -> bool:
        return torch._C._cuda_isCurrentStreamCapturing()

    def relax(self) -> None:
        """Let this thread ask about events while another one captures."""
        from ctypes import byref, c_int

        from ._driver import driver
        driver().cuThreadExchangeStreamCaptureMode(byref(c_int(2)))

    def future(self, device):
        return Future(devices=[device])


class CudaWork(dist.Work):
    """An operation that is on a stream, or that a thread of its line puts there.

    Its tensors are kept until it is waited for or done, for torch could give their memory to others.
    """

    def __init__(self, lane, results, tensors, later: bool = False) -> None:
        super().__init__()
        self._lane, self._results, self.kept = lane, results, [tensors]
        self._event = self._future = self._problem = None
        self._placed = threading.Event() if later else None

    def place(self, event) -> None:
        """Say that it is on a stream: an event behind it."""
        self._event = event

    def _finish(self, problem) -> None:
        self._problem = problem
        self._placed.set()

    def is_completed(self) -> bool:
        return (self._placed is None or self._placed.is_set()) and (self._event is None or self._event.query())

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self):
        return self._problem or self._lane.problem()

    def _await(self, limit) -> None:
        """Wait until it is on a stream."""
        if self._placed is None:
            return
        group = self._lane.group
        if not self._placed.wait(group._limit if limit is None else limit) and not self._placed.is_set():
            group._expire(limit)
            raise group._overdue(limit)
        if self._problem is not None:
            raise self._problem

    def wait(self, timeout=None) -> bool:
        """Let the current stream wait for it; with a time limit, wait here until it is done."""
        lane, limit = self._lane, None if timeout is None else seconds(timeout)
        if self._placed is not None:
            self._await(limit)
        if limit is not None:
            until = time.monotonic() + limit
            while not self._event.query():
                if time.monotonic() > until:
                    lane.group._expire(limit)
                    raise lane.group._overdue(limit)
                time.sleep(0.0005)
        problem = lane.problem()
        if problem is not None:
            raise problem
        lane.streams.current(lane.device).wait_event(self._event)
        self.kept[0] = None
        return True

    synchronize = wait

    def block_current_stream(self) -> None:
        self.wait()

    def result(self):
        self.wait()
        return self._results

    def get_future(self):
        if self._future is None:
            lane = self._lane
            self._await(None)
            self._future = lane.streams.future(lane.device)
            with lane.streams.use(lane.side):  # the future's readers wait for what is on it
                self._future.set_result(self._results)
        return self._future

    def source_rank(self) -> int:
        return -1


class Lane:
    """The communicator of a group for a GPU, and the streams on which its calls are.

    Attributes:
        moves: the operations over the communicator.
        side: the stream of asynchronous calls.
    """

    def __init__(self, group, device, moves, streams=None) -> None:
        self.group, self.device, self.moves = group, device, moves
        self.streams = streams or Streams()
        self.side = self.streams.new(device)
        self._side_pointer = self.side.cuda_stream
        self._before = None  # the event by which the side stream waits for the current one
        self._lock = threading.RLock()
        self._marks: deque = deque()  # (when, event, what, tensors) of calls that may be under way
        self._marked = 0.0
        self._relaxed = threading.local()

    def do(self, what: str, function, results, asynchronous: bool, tensors=(), plain: bool = False):
        """Put an operation on a stream; return it if it is asynchronous, else None.

        Args:
            plain: whether it is a call of the communicator alone, so that the stream need not be torch's current one.
        """
        streams = self.streams
        if asynchronous:
            work = CudaWork(self, results, tensors)
            with self._lock:
                self._before = streams.event(streams.current(self.device), self._before)
                self.place(work, what, function, self._before, streams.capturing(), plain)
            return work
        with self._lock:
            self.moves.stream = streams.pointer(self.device)
            function(self.moves)
            now = time.monotonic()
            if now - self._marked > _MARK:
                self._mark(what, now)
        return None

    def place(self, work: CudaWork, what: str, function, after, captured: bool = False, plain: bool = False) -> None:
        """Put an operation on the stream of the group, behind an event."""
        with self._lock:
            self.side.wait_event(after)
            self.moves.stream = self._side_pointer
            if plain:
                function(self.moves)
            else:
                with self.streams.use(self.side):
                    function(self.moves)
            event = self.streams.event(self.side)
            if not captured:
                self._marks.append((time.monotonic(), event, what, work.kept))
        work.place(event)

    def _mark(self, what: str, now: float) -> None:
        """Remember that there is a call on the current stream, by an event now and then."""
        if not self.streams.capturing():
            self._marked = now
            self._marks.append((now, self.streams.event(self.streams.current(self.device)), what, None))

    def overdue(self, limit: float) -> str | None:
        """Return which call has been under way for longer than a limit, None if none has. For a thread that does nothing else."""
        if not getattr(self._relaxed, "done", False):
            self._relaxed.done = True
            self.streams.relax()
        while self._marks:
            begun, event, what, _ = self._marks[0]
            if not event.query():
                return what if time.monotonic() - begun > limit else None
            self._marks.popleft()
        return None

    def problem(self):
        """Return what the communicator has failed with."""
        try:
            self.group._guard()
            if self.moves is not None and not self.streams.capturing():
                self.moves.communicator.check()
        except Exception as problem:
            return problem
        return None

    def finish(self) -> None:
        """Wait, on this thread, for what is on the streams."""
        self.streams.current(self.device).synchronize()
        self.side.synchronize()


class Line(Lane):
    """Messages from one rank to another: a communicator of the two, which is made at the first one, and a stream.

    Ranks make their first messages in different orders, so that a ring of ranks which met on their own threads would wait for itself. A
    thread of the line lets the two meet, and puts on the stream what has come meanwhile. Each direction has a line, so that two ranks
    may both send first.

    Attributes:
        worker: the thread.
    """

    def __init__(self, group, device, meet, name: str) -> None:
        super().__init__(group, device, None)
        self._meet, self.worker = meet, Worker(name)

    def message(self, what: str, function, results, tensor) -> CudaWork:
        """Put a message on the stream, or let the thread do that."""
        if self.moves is not None and self.worker.idle:
            return self.group._timed(lambda: self.do(what, function, results, True, tensor), what)
        if self.streams.capturing():
            raise _errors.invalid(f"{what}: the first message between two ranks cannot be captured: expected one before")
        self.group._guard()
        work, after = CudaWork(self, results, tensor, later=True), self.streams.event(self.streams.current(self.device))

        def perform():
            if self.moves is None:
                self.moves = self._meet()
            self.place(work, what, function, after)
        self.worker.put(lambda: self.group._timed(perform, what), work)
        return work
