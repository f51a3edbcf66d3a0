"""Unique ids, by which processes meet that no launcher has started."""

from __future__ import annotations

from ctypes import byref

from . import _errors
from ._library import UniqueIdBytes, library

__all__ = ["UniqueId"]


class UniqueId:
    """Names a job, and says how to join it. It is a password: any process that has it can join.

    Args:
        value: the 128 bytes of an id that another process has made.
    """

    __slots__ = ("bytes",)

    def __init__(self, value: bytes) -> None:
        if len(value) != 128:
            raise _errors.invalid(f"unique id of {len(value)} bytes: expected 128")
        self.bytes = bytes(value)

    @classmethod
    def create(cls, address: str | None = None) -> UniqueId:
        """Make an id in the process that will be rank 0, which listens from then on. An id serves one job.

        Args:
            address: IP address or host name at which others reach this process; None for those of this host's interfaces.
        """
        lib, raw = library(), UniqueIdBytes()
        lib.check(lib.unique_id_create(byref(raw), None if address is None else address.encode()))
        return cls(bytes(raw.bytes))

    def __repr__(self) -> str:
        return "UniqueId(...)"

    def __eq__(self, other) -> bool:
        return isinstance(other, UniqueId) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)

    def __reduce__(self):
        return UniqueId, (self.bytes,)
