"""Execution plans, and executors that run them: docs/plans.md has the format and the meaning of its operations."""

from __future__ import annotations

import ctypes
import enum
import json
import weakref
from ctypes import byref, c_void_p

from . import _errors, _streams, _types
from ._buffers import resolve
from ._library import ExecuteOptions, WriteFunction, library
from ._objects import _Object

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from ._algorithms import Request

__all__ = ["ExecutionPlan", "Executor", "PacketType"]


class PacketType(enum.IntEnum):
    """Formats of packets, by their bytes: 4 of 8 or 8 of 16 are data."""

    LL8 = 8
    LL16 = 16


class ExecutionPlan:
    """A plan as it stands in a file.

    Args:
        planPath: a file, .json or .json.gz.
        rank: is not needed, for a plan has the operations of all ranks.

    Attributes:
        name, collective, protocol: as the plan has them.
        in_place: whether the plan says that input and output are one buffer.
        ranks: for how many ranks it is.
        min_message_size, max_message_size: limits of the size in bytes.
        buffer_alignment: sizes are multiples of it, in bytes.
        chunks: for each rank the numbers of "input", "output" and "scratch" chunks.

    Raises:
        InvalidUsage: the plan is wrong; the text has file, line and place.
        UnavailableError, FailedError: the file cannot be read.
    """

    def __init__(self, planPath: str, rank: int | None = None) -> None:
        self._begin(lambda lib, out: lib.plan_read(str(planPath).encode(), out))

    @classmethod
    def from_json(cls, text: str | bytes) -> ExecutionPlan:
        """Return the plan that is JSON text, as mscclpp.language makes it."""
        raw, plan = text.encode() if isinstance(text, str) else bytes(text), cls.__new__(cls)
        plan._begin(lambda lib, out: lib.plan_parse(raw, len(raw), out))
        return plan

    def _begin(self, read) -> None:
        self._lib, out = library(), c_void_p()
        self._lib.check(read(self._lib, byref(out)))
        self._handle = out.value
        weakref.finalize(self, self._lib.plan_free, self._handle).atexit = False
        said = self._answer("plan_describe")
        self.name: str = said["name"]
        self.collective: str = said["collective"]
        self.protocol: str = said["protocol"]
        self.in_place: bool = said["in_place"]
        self.ranks: int = said["ranks"]
        self.min_message_size: int = said["min_message_size"]
        self.max_message_size: int = said["max_message_size"]
        self.buffer_alignment: int = said["buffer_alignment"]
        self.chunks: list[dict] = said["chunks"]

    def _answer(self, name: str) -> dict:
        parts: list[bytes] = []
        take = WriteFunction(lambda _, text, size: parts.append(ctypes.string_at(text, size)))
        self._lib.check(getattr(self._lib, name)(self._handle, take, None))
        return json.loads(b"".join(parts))

    def check(self) -> dict:
        """Prove the plan, or find out why it is wrong; no device is needed.

        Returns:
            "verdict": right, right once, wrong, race, hang or refused; "reason"; "ranks"; "notes".
        """
        return self._answer("plan_check")

    def _takes(self, request: Request) -> bool:
        """Report whether the size of a call divides into the chunks of every rank, and its reduction is one that plans have."""
        whole = [self.buffer_alignment * max(1, c["input"]) for c in self.chunks]
        return all(request.message_size % w == 0 for w in whole) and (request.op is None or request.op < _types.ReduceOp.AVG)

    def __repr__(self) -> str:
        return f"<mscclpp.ExecutionPlan {self.name!r}, {self.collective} of {self.ranks} ranks>"


class _Prepared(_Object):
    """A plan on a communicator."""

    _free = "executor_free"


class Executor:
    """Runs plans on a communicator. The first call with a plan prepares it, and is collective, as all calls are.

    Args:
        comm: a Communicator, or what has one as its attribute ``communicator``.
    """

    def __init__(self, comm: object) -> None:
        self._comm = getattr(comm, "communicator", comm)
        self._prepared: dict = {}

    def _of(self, plan: ExecutionPlan) -> _Prepared:
        entry = self._prepared.get(id(plan))
        if entry is None:
            entry = self._prepared[id(plan)] = plan, _Prepared(self._comm, self._comm._make("executor_create", plan._handle))
        return entry[1]

    def run(self, plan: ExecutionPlan, send: object, recv: object = None, *, stream: object = None, op: int = _types.ReduceOp.SUM,
            packet_type: int = PacketType.LL16, keep_input: bool = False) -> None:
        """Run a plan on arrays, whose type is that of its reductions.

        Args:
            send: the plan's input; a multiple of its alignment and of its number of chunks.
            recv: the plan's output, of the same type; None for send.
            stream: of the GPU, as all_reduce has it.
            op: SUM, PROD, MIN or MAX, in the place of the plan's sums.
            packet_type: for plans of packets; the same on all ranks.
            keep_input: whether send is not to be written, whatever the plan does to it.
        """
        comm = self._comm
        a = resolve(send, "execute: send", stream)
        b = a if recv is None else resolve(recv, "execute: recv", stream)
        for buffer in (a, b):
            comm._place(buffer, "execute")
        if a.code is None or a.code != b.code:
            raise _errors.invalid(f"execute: send has {a.type}, recv {b.type}: expected one type that reductions have")
        if b.readonly:
            raise _errors.invalid(f"execute: {b.type} is read-only: expected memory that the result can be written to")
        if comm.device != "host":
            stream = _streams.choose(stream, (a, b), comm._index or 0)
        elif stream is not None:
            raise _errors.invalid(f"execute: stream {stream!r} for a communicator on the host: expected None")
        self._execute(plan, a.address, a.bytes, b.address, b.bytes, a.code, stream or 0, op, packet_type, keep_input)

    def execute(self, rank: int, send_buff: int, recv_buff: int, send_buff_size: int, recv_buff_size: int, data_type: int,
                plan: ExecutionPlan, stream: object = 0, packet_type: int = PacketType.LL16) -> None:
        """Run a plan on memory that is given by addresses and sizes in bytes, as MSCCL++ has it; ``rank`` is this one."""
        if rank != self._comm.rank:
            raise _errors.invalid(f"execute: rank {rank}: expected {self._comm.rank}, the communicator's")
        self._execute(plan, send_buff, send_buff_size, recv_buff, recv_buff_size, _types.data_type(data_type), _streams.pointer(stream),
                      _types.ReduceOp.SUM, packet_type, False)

    def _execute(self, plan, send, send_size, recv, recv_size, code, stream, op, packet_type, keep_input) -> None:
        options = ExecuteOptions(ctypes.sizeof(ExecuteOptions), stream or None, int(op), int(packet_type), int(keep_input))
        self._of(plan)._call("executor_execute", send, send_size, recv, recv_size, code, byref(options))

    def reset(self) -> None:
        """End what was prepared; a plan that is used again is prepared again."""
        for _, prepared in self._prepared.values():
            prepared.close()
        self._prepared.clear()
