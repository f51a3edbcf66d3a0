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

from ._torch_work import seconds

_MARK = 0.1  # seconds between two events by which the time limit of calls on the current stream is watched


class Streams:
    """What is asked of torch.cuda; tests have another one."""

    def current(self, device):
        return torch.cuda.current_stream(device)

    def new(self, device):
        return torch.cuda.Stream(device)

    def event(self, stream):
        """Return an event that is recorded on a stream."""
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def use(self, stream):
        """Return a context in which a stream is the current one."""
        return torch.cuda.stream(stream)

    def capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def relax(self) -> None:
        """Let this thread ask about events while another one captures."""
        from ctypes import byref, c_int

        from ._driver import driver
        driver().cuThreadExchangeStreamCaptureMode(byref(c_int(2)))

    def future(self, device):
        return Future(devices=[device])


class CudaWork(dist.Work):
    """An operation that is on a stream. Until it is waited for it keeps its tensors, whose memory torch could give to others else."""

    def __init__(self, lane, event, results, tensors, what: str) -> None:
        super().__init__()
        self._lane, self._event, self._results, self._tensors, self._what = lane, event, results, tensors, what
        self._future = None

    def is_completed(self) -> bool:
        return self._event.query()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self):
        return self._lane.problem()

    def wait(self, timeout=None) -> bool:
        """Let the current stream wait for it; with a time limit, wait here until it is done."""
        lane, limit = self._lane, seconds(timeout)
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
        self._tensors = None
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
        self._lock = threading.RLock()
        self._marks: deque = deque()  # (when, event, what) of calls that may be under way
        self._marked = 0.0
        self._relaxed = threading.local()

    def do(self, what: str, function, results, asynchronous: bool, tensors=()):
        """Put an operation on a stream; return it if it is asynchronous, else None."""
        streams, current = self.streams, self.streams.current(self.device)
        with self._lock:
            stream = self.side if asynchronous else current
            if asynchronous:
                self.side.wait_event(streams.event(current))
            self.moves.stream = stream
            with streams.use(stream):
                function(self.moves)
            if not asynchronous:
                self._mark(what, stream)
                return None
            event = streams.event(stream)
            if not streams.capturing():
                self._marks.append((time.monotonic(), event, what))
            return CudaWork(self, event, results, tensors, what)

    def _mark(self, what: str, stream) -> None:
        """Remember that there is a call on the current stream, by an event now and then."""
        now = time.monotonic()
        if now - self._marked > _MARK and not self.streams.capturing():
            self._marked = now
            self._marks.append((now, self.streams.event(stream), what))

    def overdue(self, limit: float) -> str | None:
        """Return which call has been under way for longer than a limit, None if none has. For a thread that does nothing else."""
        if not getattr(self._relaxed, "done", False):
            self._relaxed.done = True
            self.streams.relax()
        while self._marks:
            begun, event, what = self._marks[0]
            if not event.query():
                return what if time.monotonic() - begun > limit else None
            self._marks.popleft()
        return None

    def problem(self):
        """Return what the communicator has failed with."""
        try:
            self.group._guard()
            if not self.streams.capturing():
                self.moves.communicator.check()
        except Exception as problem:
            return problem
        return None

    def finish(self) -> None:
        """Wait, on this thread, for what is on the streams."""
        self.streams.current(self.device).synchronize()
        self.side.synchronize()
