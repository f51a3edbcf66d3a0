"""Ranks, their buffers and semaphores."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Dict, List

from ._compiler import RankError, chunk as _chunk
from .internal.globals import get_program
from .internal.operations import *
from .thread_block_group import *


@dataclass
class Rank:
    """A rank, for operations on its own buffers."""

    rank: int

    def __post_init__(self) -> None:
        get_program().compiler("rank", rank=self.rank)

    def get_input_buffer(self) -> "BaseBuffer":
        """Return the input of the rank."""
        return get_program().buffers[self.rank][BufferType.input]

    def get_output_buffer(self) -> "BaseBuffer":
        """Return the output of the rank."""
        return get_program().buffers[self.rank][BufferType.output]

    def _copy(self, call, dst_chunk, src_chunk, tb, tb_group):
        program = get_program()
        program.compiler(call, rank=self.rank, dst=_chunk(dst_chunk), src=_chunk(src_chunk), tb=tb, tb_group=program.group(tb_group))

    def copy(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Copy a chunk of the rank to another one."""
        self._copy("copy", dst_chunk, src_chunk, tb, tb_group)

    def unpack_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Wait for packets in scratch, and copy their data."""
        self._copy("unpack_packets", dst_chunk, src_chunk, tb, tb_group)

    def copy_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Make packets in scratch."""
        self._copy("copy_packets", dst_chunk, src_chunk, tb, tb_group)

    def reduce(self, src_chunk: Chunk, other_chunks: List[Chunk], tb: int | None = None, tb_group: ThreadBlockGroup | None = None,
               dst_chunk: Chunk | None = None, reduce_op: ReduceOperationType = ReduceOperationType.sum, packet: bool = False) -> None:
        """Reduce a chunk with others, which with packet are packets in scratch, to dst_chunk or the chunk itself."""
        program = get_program()
        program.compiler(
            "reduce", rank=self.rank, dst=_chunk(src_chunk if dst_chunk is None else dst_chunk), src=_chunk(src_chunk),
            others=[_chunk(c) for c in other_chunks], tb=tb, tb_group=program.group(tb_group), reduce_op=reduce_op.value, packet=packet)

    def barrier(self, tb_list: List[int]) -> None:
        """Make thread blocks wait for each other; join the threads of a single one."""
        get_program().compiler("barrier", rank=self.rank, list=list(tb_list))


class BaseBuffer:
    """A buffer of a rank: slices of it are chunks. As in MSCCL++, size is the end of the buffer."""

    def __init__(self, rank: int, buffer_type: BufferType, offset: int, size: int) -> None:
        self.rank = rank
        self.buffer_type = buffer_type
        self.offset = offset
        self.size = offset + size

    def __getitem__(self, key: slice) -> Chunk:
        if not isinstance(key, slice):
            raise TypeError(f"Buffer indices must be slices, not {type(key).__name__}")
        if key.step is not None and key.step != 1:
            raise ValueError(f"Buffer slicing does not support step != 1 (got step={key.step})")
        start = 0 if key.start is None else key.start
        stop = self.size - self.offset if key.stop is None else key.stop
        if start < 0 or stop < 0:
            raise ValueError(f"Buffer slicing does not support negative indices (got start={key.start}, stop={key.stop})")
        if start > stop:
            raise ValueError(f"Buffer slice start ({start}) must be <= stop ({stop})")
        if self.offset + stop > self.size:
            raise RuntimeError(f"Index range from {self.offset + start} - {self.offset + stop} is out of bounds for buffer "
                               f"{self.buffer_type}. Buffer size: {self.size}")
        return Chunk(self.rank, self.buffer_type, self.offset + start, stop - start)


class Buffer(BaseBuffer):
    """Scratch of a rank."""

    def __init__(self, rank: int, size: int) -> None:
        program = get_program()
        super().__init__(rank, BufferType.scratch, program.compiler("scratch", rank=rank, size=size), size)
        program.gpus[rank].scratch_chunks = self.size


class Semaphore:
    """A counter with which thread blocks of a rank wait for each other."""

    def __init__(self, rank: int, initial_value: int) -> None:
        made = get_program().compiler("semaphore", rank=rank, initial_value=initial_value)
        self._handle, self.id = made["handle"], made["id"]
        self.rank = rank
        self.initial_value = initial_value

    def acquire(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Wait until the semaphore is above zero, and take one from it."""
        get_program().compiler("acquire", handle=self._handle, tb=tb, data_sync=data_sync.value)

    def release(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Add one to the semaphore."""
        get_program().compiler("release", handle=self._handle, tb=tb, data_sync=data_sync.value)
