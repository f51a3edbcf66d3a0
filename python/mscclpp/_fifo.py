"""A ring of triggers that the program reads itself."""

from __future__ import annotations

import threading
from collections import deque

from . import _errors

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from ._communicator import Communicator
    from ._objects import DeviceHandle

__all__ = ["Fifo", "ProxyTrigger"]


class ProxyTrigger:
    """What a kernel has pushed: two numbers, of 64 and 63 bits."""

    __slots__ = ("fst", "snd", "_position")

    def __init__(self, fst: int, snd: int, position: int) -> None:
        self.fst, self.snd, self._position = fst, snd, position

    def __repr__(self) -> str:
        return f"ProxyTrigger(fst={self.fst:#x}, snd={self.snd:#x})"


class Fifo:
    """A ring of triggers: kernels push, and the program takes. Communicator.proxy calls a function instead, which is what most programs want.

    Args:
        communicator: whose device pushes; the ring ends with it.
        size: how many triggers it has room for, a power of two.
    """

    def __init__(self, communicator: Communicator, size: int = 512) -> None:
        self._size, self._ready, self._arrived = size, deque(), threading.Semaphore(0)
        self._proxy = communicator.proxy(size, self._take)

    def _take(self, proxy, first: int, second: int, position: int) -> None:
        self._ready.append(ProxyTrigger(first, second, position))
        self._arrived.release()

    def poll(self, timeout: float = 0.0) -> ProxyTrigger | None:
        """Return the oldest trigger that was not popped; None if there is none within timeout seconds."""
        if not self._ready:
            if not self._arrived.acquire(timeout=timeout):
                return None
            self._arrived.release()
        return self._ready[0]

    def pop(self) -> None:
        """Say that the oldest trigger is done, so that the kernel's sync for it returns."""
        if not self._ready:
            raise _errors.invalid("fifo: pop of an empty ring: expected poll() to have returned a trigger")
        self._arrived.acquire()
        self._proxy.complete(self._ready.popleft()._position)

    def size(self) -> int:
        """Return for how many triggers there is room."""
        return self._size

    def push(self, fst: int, snd: int = 0) -> int:
        """Push a trigger from the host, and return its position."""
        return self._proxy.push(fst, snd)

    def device_handle(self) -> DeviceHandle:
        """Return the mscclpp::FifoHandle by which kernels push."""
        return self._proxy.device_handle()

    def close(self) -> None:
        """End the ring."""
        self._proxy.close()

    def __enter__(self) -> Fifo:
        return self

    def __exit__(self, *problem: object) -> None:
        _errors.ended(self.close, problem)
