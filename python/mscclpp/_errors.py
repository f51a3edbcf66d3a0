"""Exceptions: one class for each code of the C interface."""

from __future__ import annotations

import builtins
import enum
from operator import index

__all__ = [
    "ErrorCode", "Error", "UnavailableError", "UnsupportedError", "InvalidUsage", "PeerError", "ClosedError",
    "PluginError", "TimeoutError", "InProgressError", "FailedError",
]


class ErrorCode(enum.IntEnum):
    """The results of the C interface, ``mscclpp_result_t``."""

    Unavailable = 1
    Unsupported = 2
    InvalidUsage = 3
    Peer = 4
    Closed = 5
    Plugin = 6
    Timeout = 7
    InProgress = 8
    Failed = 9


class Error(Exception):
    """Base of all exceptions of this package; ``args`` is ``(code, text)``.

    Attributes:
        code: an ErrorCode.
        text: operation, transport, peer, and what was expected.
        rank: the rank that failed, None if the failure is not attributed to one.
    """

    def __init__(self, code: int, text: str, rank: int | None = None) -> None:
        super().__init__(code, text)
        self.code = ErrorCode(code)
        self.text = text
        self.rank = rank

    def __str__(self) -> str:
        return self.text

    def __reduce__(self):
        return _again, (int(self.code), self.text, self.rank)


class UnavailableError(Error):
    """Possible in principle, but not on this machine, or not now."""


class UnsupportedError(Error):
    """Never done by this library, device or transport."""


class InvalidUsage(Error, ValueError):
    """A mistake of the caller."""


class PeerError(Error):
    """Another rank failed or died."""


class ClosedError(Error):
    """Used after it was aborted or closed."""


class PluginError(Error):
    """The process of a transport is gone."""


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001 - the interface's name
    """The time for a call that waits for other ranks has passed."""


class InProgressError(Error):
    """The communicator was not joined yet."""


class FailedError(Error):
    """Anything else; the text says what."""


_CLASSES = {
    1: UnavailableError, 2: UnsupportedError, 3: InvalidUsage, 4: PeerError, 5: ClosedError,
    6: PluginError, 7: TimeoutError, 8: InProgressError, 9: FailedError,
}


def make(code: int, text: str, rank: int | None = None) -> Error:
    """Return the exception for a code; an unknown code of a newer library is FailedError."""
    if code not in _CLASSES:
        text, code = f"result {code}: {text}", 9
    return _CLASSES[code](code, text, rank)


_again = make


def invalid(text: str) -> InvalidUsage:
    """Return the exception for a mistake that is found before the library is called."""
    return InvalidUsage(3, text)


def whole(value: object, what: str, low: int = -2**31, high: int = 2**31 - 1) -> int:
    """Return a whole number that C has room for, which would take its last bits alone; its range is the library's to check."""
    try:
        number = index(value)
    except TypeError:
        raise invalid(f"{what} {value!r}: expected a whole number") from None
    if not low <= number <= high:
        raise invalid(f"{what} {number}: expected a number from {low} to {high}")
    return number


def size(value: object, what: str) -> int:
    """Return a number of bytes, or an offset."""
    return whole(value, what, 0, 2**63 - 1)


def ended(close, problem) -> None:
    """Close what a block had. An exception that ends the block says more than one of close, which is dropped then: the communicator may be gone."""
    try:
        close()
    except Error:
        if problem[1] is None:
            raise
