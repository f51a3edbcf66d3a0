"""Communicators that are open: what becomes of them at exit, after a fork, and on Ctrl-C."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref

_open: weakref.WeakSet = weakref.WeakSet()
_registered = False
_watcher = None
_forks: list = []

# A call that has not ended this many seconds after Ctrl-C is ended by an abort of its communicator.
_PATIENCE = 0.3


def opened(comm) -> None:
    """Note an open communicator; the first one brings what happens at exit and on Ctrl-C."""
    global _registered
    _open.add(comm)
    if not _registered:
        _registered = True
        atexit.register(_end, True)
        threading._register_atexit(_end, False)  # before threads are waited for, which atexit comes after
    _watch()


def closed(comm) -> None:
    """Forget a communicator that was closed or aborted."""
    _open.discard(comm)


def cause(kind, value) -> str:
    """Return what the other ranks are told about an exception."""
    text = str(value)
    return f"{kind.__name__}: {text}" if text else kind.__name__


def _end(orderly: bool) -> None:
    """After an exception that nobody caught, tell the other ranks, for which threads of this one may wait; else close what the program has left open, if it is time."""
    value = getattr(sys, "last_value", None)
    for comm in list(_open):
        try:
            if value is not None:
                comm.abort(cause(type(value), value))
            elif orderly:
                comm.close()
        except Exception as problem:  # the interpreter ends whatever happens
            print(f"mscclpp: at exit: {problem}", file=sys.stderr)


def _watch() -> None:
    """Let Ctrl-C end a call that waits, if this is the main thread, and the program does not do so itself.

    Python runs its handler when the call returns, which it may never do. The number of a signal is written to a pipe at once,
    and a thread that reads it ends the call. A program that has a descriptor of its own for signals (asyncio, while its loop
    runs) keeps it, and one that handles SIGINT in another way than by KeyboardInterrupt is left alone.
    """
    global _watcher
    if threading.current_thread() is not threading.main_thread():
        return
    if _watcher is not None and _watcher[0] == os.getpid():
        ours = _watcher[1]
    else:
        reader, ours = os.pipe()
        os.set_blocking(ours, False)
        _watcher = (os.getpid(), ours)
        if not _forks:
            _forks.append(True)
            os.register_at_fork(after_in_child=_forget)
        threading.Thread(target=_read, args=(reader, threading.main_thread().ident), name="mscclpp-interrupt", daemon=True).start()
    before = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
    if before not in (-1, ours):
        signal.set_wakeup_fd(before)


def _forget() -> None:
    """Take the pipe from a forked child, whose signals are not this process's."""
    ours = _watcher[1]
    try:
        before = signal.set_wakeup_fd(-1)
        if before not in (-1, ours):
            signal.set_wakeup_fd(before)
    except ValueError:  # not in the main thread of the interpreter
        pass


def _read(reader: int, main: int) -> None:
    while True:
        numbers = os.read(reader, 64)
        if not numbers:
            return
        if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _end_call(main)


def _waiting(main: int):
    """Return the frame and the communicator of the call in which the main thread is; None if it is in none."""
    frame = sys._current_frames().get(main)
    if frame is None or frame.f_globals.get("__package__") != "mscclpp":
        return None
    owner = frame.f_locals.get("self")
    comm = getattr(owner, "_comm", owner)
    return (frame, comm) if comm in _open else None


def _end_call(main: int) -> None:
    """Abort the communicator on which the main thread waits, if it still does so after a moment."""
    first = _waiting(main)
    if first is None:
        return
    moment = threading.Event()
    for _ in range(6):
        moment.wait(_PATIENCE / 6)
        now = _waiting(main)
        if now is None or now[0] is not first[0]:
            return
    first[1].abort("KeyboardInterrupt")
