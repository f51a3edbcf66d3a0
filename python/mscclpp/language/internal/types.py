"""The enumerations and small records of the language."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, List, Set


class _Named(Enum):
    def __str__(self):
        return self.value


class SyncType(_Named):
    """Where the threads of a block are joined: before an operation, after it, both, or not at all."""

    none = "none"
    before = "before"
    after = "after"
    both = "both"

    def _combine(self, other, how):
        if not isinstance(other, SyncType):
            return NotImplemented
        members = list(SyncType)  # in the order of their two bits
        return members[how(members.index(self), members.index(other))]

    def __or__(self, other):
        return self._combine(other, int.__or__)

    def __and__(self, other):
        return self._combine(other, int.__and__)

    def __xor__(self, other):
        return self._combine(other, int.__xor__)


class ReduceOperationType(_Named):
    """The operation of a reduction."""

    sum = "sum"
    min = "min"
    max = "max"


class BufferType(_Named):
    """The buffers of a rank."""

    input = "i"
    output = "o"
    scratch = "s"

    def __lt__(self, other):
        return self.value < other.value

    def __gt__(self, other):
        return self.value > other.value


class ChannelType(_Named):
    """The types of channels."""

    port = "port"
    memory = "memory"
    switch = "switch"
    none = "none"


class ReplicationPolicy(_Named):
    """What instances of a program work on: alternating chunks, or the same."""

    interleaved = "interleaved"
    none = "none"


class Instruction(_Named):
    """The operations of a plan."""

    start = "start"
    nop = "nop"
    copy = "copy"
    copy_packet = "cpkt"
    unpack_packet = "upkt"
    reduce = "re"
    reduce_packet = "repkt"
    reduce_copy_packet = "recpkt"
    sem_acquire = "sem_acquire"
    sem_release = "sem_release"
    signal = "signal"
    wait = "wait"
    relaxed_signal = "rlxsignal"
    relaxed_wait = "rlxwait"
    barrier = "barrier"
    flush = "flush"
    get = "get"
    put = "put"
    put_packet = "ppkt"
    read_put_packet = "rppkt"
    put_with_signal = "pws"
    put_with_signal_and_flush = "pwsf"
    reduce_send = "res"
    reduce_send_packet = "respkt"
    reduce_copy_send_packet = "recspkt"
    read_reduce = "rre"
    read_reduce_send = "rres"
    group_store = "gstore"
    group_store_packet = "gstorepkt"
    group_load_reduce = "glre"
    group_load_reduce_store = "glres"
    pipeline = "pipeline"


class DataAccessType(_Named):
    """How an operation accesses data."""

    read = "r"
    write = "w"
    both = "b"

    def __or__(self, other):
        if not isinstance(other, DataAccessType):
            return NotImplemented
        return self if self is other else DataAccessType.both


@dataclass(unsafe_hash=True)
class Chunk:
    """A run of chunks of a buffer of a rank."""

    rank: int
    buffer: BufferType
    index: int
    size: int

    def to_dict(self) -> Dict[str, object]:
        return {"rank": self.rank, "type": self.buffer.value, "index": self.index, "size": self.size}


@dataclass
class RankGroup:
    """The ranks of a switch channel."""

    size: int
    ranks: List[int]

    def to_dict(self) -> Dict[str, object]:
        return {"size": self.size, "ranks": self.ranks}


@dataclass
class RemoteBuffer:
    """A buffer of another rank, and over which channels it is accessed."""

    local_rank: int
    remote_rank: int
    type: BufferType
    channel_access: Set[ChannelType] = field(default_factory=set)


@dataclass
class DataAccess:
    """An access to a run of chunks, both ends inclusive."""

    operation_id: int
    start: int
    end: int
    buffer_type: BufferType
    data_access_type: DataAccessType


@dataclass
class LocalChunk:
    """A local operand."""

    type: BufferType
    index: int
    size: int

    def to_dict(self) -> Dict[str, object]:
        return {"type": self.type.value, "index": self.index, "size": self.size}


@dataclass
class RemoteChunk(LocalChunk):
    """An operand in a remote buffer of the block."""

    buffer_id: int

    def to_dict(self) -> Dict[str, object]:
        return {"buffer_id": self.buffer_id, "index": self.index, "size": self.size}


@dataclass
class ThreadBlockGroupInfo:
    """The part of an operation that a thread block of a group does."""

    tb_id: int
    tbg_size: int

    def to_dict(self) -> Dict[str, object]:
        return {"tb_id": self.tb_id, "tbg_size": self.tbg_size}
