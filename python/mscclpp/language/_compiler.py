"""The compiler in the C library, by messages: docs/c-api.md."""

from __future__ import annotations

import ctypes
import json
import weakref

from .. import _library

_encode = json.JSONEncoder(separators=(",", ":")).encode


class RankError(RuntimeError, AttributeError):
    """A rank that the program does not have. MSCCL++ raises AttributeError where it means RuntimeError."""


class SwitchRankError(RuntimeError, KeyError):
    """A rank that is not in the group of a switch channel: at_rank of MSCCL++ raises RuntimeError; its operations do not look, and a dictionary raises KeyError."""

    __str__ = Exception.__str__


_KINDS = {kind.__name__: kind for kind in (RuntimeError, ValueError, TypeError, IndexError, AssertionError)}


class Compiler:
    """One program in the making."""

    def __init__(self) -> None:
        self._library = _library.library()
        handle = ctypes.c_void_p()
        self._library.check(self._library.plan_program_create(ctypes.byref(handle)))
        self._handle = handle
        self._answer = answer = []
        self._take = _library.WriteFunction(lambda context, text, size: answer.append(ctypes.string_at(text, size)))
        weakref.finalize(self, self._library.plan_program_free, handle).atexit = False

    def __call__(self, call: str, **fields):
        """Make a call with those of the fields that are not None, and return its value."""
        message = _encode({"call": call, **{name: value for name, value in fields.items() if value is not None}}).encode()
        self._answer.clear()
        self._library.check(self._library.plan_program_call(self._handle, message, len(message), self._take, None))
        answer = json.loads(b"".join(self._answer))
        mistake = answer.get("error")
        if mistake is None:
            return answer.get("value")
        text = mistake["text"]
        raise _kind(call, mistake["kind"], text)(text)


def _kind(call: str, name: str, text: str) -> type:
    if text.startswith("Rank ") and "is out of bounds" in text:
        return RankError
    if call != "switch_at" and text.startswith("Rank ") and "is not part of this SwitchChannel" in text:
        return SwitchRankError
    return _KINDS.get(name, RuntimeError)


def chunk(value) -> list:
    """Return a chunk as messages have it."""
    return [value.rank, value.buffer.value, value.index, value.size]
