"""Collectives: how many chunks the buffers of the ranks have."""

from typing import Dict, List

from .internal.types import BufferType
from .rank import BaseBuffer


class Collective:
    """A collective. Those of a program's own give init_buffers."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = inplace
        self.name = "custom"

    def init_buffers(self) -> List[Dict[BufferType, BaseBuffer]]:
        """Return for each rank a dictionary with its input and output, whose sizes are in chunks."""

    def check(self, prog: object) -> None:
        """Exists for programs that call it."""

    def _buffers(self, input_size, output_size):
        return [{BufferType.input: BaseBuffer(rank, BufferType.input, 0, input_size),
                 BufferType.output: BaseBuffer(rank, BufferType.output, 0, output_size)} for rank in range(self.num_ranks)]


class TestCollective(Collective):
    """Buffers of given sizes, without a meaning."""

    __test__ = False  # for pytest

    def __init__(self, num_ranks: int, input_size: int, output_size: int) -> None:
        super().__init__(num_ranks, 1, False)
        self.name = "test"
        self.input_size = input_size
        self.output_size = output_size

    def init_buffers(self) -> List[Dict[BufferType, BaseBuffer]]:
        return self._buffers(self.input_size, self.output_size)


class AllGather(Collective):
    """Every rank gets the inputs of all."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "allgather"

    def init_buffers(self) -> List[Dict[BufferType, BaseBuffer]]:
        return self._buffers(self.chunk_factor, self.num_ranks * self.chunk_factor)


class AllReduce(Collective):
    """Every rank gets the reduction of all inputs."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "allreduce"

    def init_buffers(self) -> List[Dict[BufferType, BaseBuffer]]:
        return self._buffers(self.num_ranks * self.chunk_factor, self.num_ranks * self.chunk_factor)


class ReduceScatter(Collective):
    """Every rank gets its part of the reduction of all inputs."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "reducescatter"

    def init_buffers(self) -> List[Dict[BufferType, BaseBuffer]]:
        return self._buffers(self.num_ranks * self.chunk_factor, self.chunk_factor)


class AllToAll(Collective):
    """Every rank gets its part of each input."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "alltoall"

    def init_buffers(self) -> List[Dict[BufferType, BaseBuffer]]:
        return self._buffers(self.num_ranks * self.chunk_factor, self.num_ranks * self.chunk_factor)


class SendRecv(Collective):
    """Every rank gets the input of one other."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.name = "sendrecv"

    def init_buffers(self) -> List[Dict[BufferType, BaseBuffer]]:
        return self._buffers(self.chunk_factor, self.chunk_factor)
