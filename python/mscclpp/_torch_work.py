"""Operations of a process group: those that are under way, and the threads that perform them."""

from __future__ import annotations

import collections
import datetime
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch.futures import Future

_settling = threading.Lock()  # of works and their futures; it is held for moments
LONGEST = 100 * 365 * 86400.0  # seconds; a group without a time limit has this one


def seconds(timeout) -> float | None:
    """Return a time limit of torch in seconds, None for one that says that there is none."""
    if timeout is None:
        return None
    value = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
    return value if value > 0 else None


class Work(dist.Work):
    """An operation: done, or under way on a thread of its group."""

    def __init__(self, group, results, done: bool = False) -> None:
        super().__init__()
        self._group, self._results = group, results
        self._problem = None
        self._is_done = done
        self._worker = None  # that will do it, or does
        self._waiting = None  # an event, once somebody waits
        self._future = None

    def _finish(self, problem: BaseException | None):
        """Note that it is done, and return its future, if there is one, for _settle."""
        with _settling:
            self._problem = problem
            self._is_done, self._worker = True, None
            waiting, future = self._waiting, self._future
        if waiting is not None:
            waiting.set()
        return future

    def _ends(self, limit: float) -> bool:
        """Wait until it is done, at most so many seconds, and report whether it is."""
        with _settling:
            if self._is_done:
                return True
            if self._waiting is None:
                self._waiting = threading.Event()
            waiting = self._waiting
        return waiting.wait(limit) or self._is_done

    def _settle(self, future) -> None:
        if self._problem is None:
            future.set_result(self._results)
        else:
            future.set_exception(self._problem)

    def is_completed(self) -> bool:
        return self._is_done

    def is_success(self) -> bool:
        return self.is_completed() and self._problem is None

    def exception(self):
        return self._problem

    def wait(self, timeout=None) -> bool:
        """Wait until it is done, at most timeout; raise what it failed with.

        What its worker has not begun this thread does itself, which saves two wake-ups. A call with a time limit of its own leaves it to the worker.
        """
        if not self._is_done:
            limit, worker = seconds(timeout), self._worker
            if limit is None and worker is not None:
                worker.help(self)
            if not self._is_done and not self._ends(self._group._limit if limit is None else limit):
                self._group._expire(limit)
                self._ends(10)  # the abort ends it
                if self._problem is None:
                    raise self._group._overdue(limit)
        if self._problem is not None:
            raise self._problem
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self):
        self.wait()
        return self._results

    def get_future(self):
        with _settling:
            new = self._future is None
            if new:
                self._future = Future()
            settle = new and self.is_completed()
        if settle:  # its callbacks may ask for other futures
            self._settle(self._future)
        return self._future

    def source_rank(self) -> int:
        return -1


class Worker:
    """A thread that does what it is given, in this order; or one that waits for a work does it, where the thread has not begun.

    A callback of a future may wait for the future of a later job, or of one that it puts. While all threads are in callbacks there is one more.
    """

    def __init__(self, name: str) -> None:
        self._jobs: collections.deque = collections.deque()
        self._turn = threading.Lock()  # of whoever does a job
        self._wake: queue.SimpleQueue = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._name = name
        self._threads: list = []
        self._free = 0  # threads that are not in callbacks
        self._offer()

    @property
    def idle(self) -> bool:
        return self._waiting == 0

    def _offer(self) -> None:
        """Have a thread that looks at the jobs."""
        if self._free == 0:
            with self._lock:
                if self._free == 0:
                    self._free = 1
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    self._threads.append(thread)
                    thread.start()
        self._wake.put(True)

    def put(self, function, work: Work) -> None:
        with self._lock:
            self._waiting += 1
        work._worker = self
        self._jobs.append((function, work))
        self._offer()

    def help(self, work: Work) -> None:
        """Do jobs up to a work, until it is done or another thread does one."""
        while not work._is_done and self._turn.acquire(False):
            self._next(0)
        if self._jobs:  # for which a thread was woken, when it was not its turn
            self._offer()

    def _next(self, own: int) -> None:
        """Do the first job, if there is one. The caller has taken the turn, which ends before the work's callbacks are called.

        own: 1 on a thread of the worker's, 0 on another one.
        """
        try:
            if not self._jobs:
                return
            function, work = self._jobs.popleft()
            problem = None
            try:
                function()
            except BaseException as p:  # it is raised where the work is waited for
                problem = p
            with self._lock:
                self._waiting -= 1
        finally:
            self._turn.release()
        future = work._finish(problem)
        if future is None:
            return
        with self._lock:
            self._free -= own
        try:
            if self._jobs:  # which a callback may wait for
                self._offer()
            work._settle(future)
        finally:
            with self._lock:
                self._free += own

    def _run(self) -> None:
        while self._wake.get():
            while self._jobs and self._turn.acquire(False):
                self._next(1)
        self._wake.put(False)  # for the other threads
        while self._jobs:
            self._turn.acquire()
            self._next(1)

    def stop(self) -> None:
        self._wake.put(False)

    def join(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))


class Together(Work):
    """Several operations as one."""

    def __init__(self, group, works, results) -> None:
        super().__init__(group, results, done=True)
        self._works = works

    def is_completed(self) -> bool:
        return all(w.is_completed() for w in self._works)

    def is_success(self) -> bool:
        return all(w.is_success() for w in self._works)

    def exception(self):
        return next((w.exception() for w in self._works if w.exception() is not None), None)

    def wait(self, timeout=None) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def get_future(self):
        results = self._results
        return torch.futures.collect_all([w.get_future() for w in self._works]).then(lambda f: (f.value(), results)[1])
