"""Programs."""

import json
from collections import defaultdict
from typing import Any, List

from ._compiler import Compiler as _Compiler
from .channel import *
from .collectives import *
from .internal.globals import set_program
from .internal.gpu import Gpu
from .rank import Semaphore
from .utils import AlgoSpec, ReplicationPolicy


class CollectiveProgram:
    """A program: calls within its with-statement add to it, and to_json gives its plan."""

    def __init__(self, name: str, collective: Collective, num_ranks: int, instances: int = 1, protocol: str = "Simple",
                 instr_fusion: bool = True, auto_sync: bool = True, replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved,
                 reuse_resources: bool = False, num_threads_per_block: int = 1024, use_double_scratch_buffer: bool = False,
                 buffer_alignment: int = 16, min_message_size: int = 0, max_message_size: int = 2**64 - 1) -> None:
        self.name = name
        self.collective = collective
        self.num_ranks = num_ranks
        self.instances = instances
        self.protocol = protocol
        self.instr_fusion = instr_fusion
        self.auto_sync = auto_sync
        self.replication_policy = replication_policy
        self.reuse_resources = reuse_resources
        self.num_threads_per_block = num_threads_per_block
        self.use_double_scratch_buffer = use_double_scratch_buffer
        self.buffer_alignment = buffer_alignment
        self.min_message_size = min_message_size
        self.max_message_size = max_message_size
        self.buffers = collective.init_buffers()
        self.gpus: List[Gpu] = [
            Gpu(rank, self.buffers[rank][BufferType.input].size, self.buffers[rank][BufferType.output].size) for rank in range(num_ranks)]
        self.loop_context = None
        self._groups: dict = {}
        self.compiler = _Compiler()
        self.compiler(
            "program", name=name, num_ranks=num_ranks, instances=instances, protocol=protocol, instr_fusion=instr_fusion, auto_sync=auto_sync,
            replication_policy=replication_policy.value, reuse_resources=reuse_resources, num_threads_per_block=num_threads_per_block,
            use_double_scratch_buffer=use_double_scratch_buffer, buffer_alignment=buffer_alignment, min_message_size=min_message_size,
            max_message_size=max_message_size, collective={
                "name": collective.name, "inplace": collective.inplace, "inputs": [gpu.input_chunks for gpu in self.gpus],
                "outputs": [gpu.output_chunks for gpu in self.gpus]})

    @classmethod
    def from_spec(cls, spec: AlgoSpec) -> "CollectiveProgram":
        """Make a program for a specification."""
        return cls(
            spec.name, spec.collective, spec.world_size, instances=spec.instances, protocol=spec.protocol, instr_fusion=spec.instr_fusion,
            auto_sync=spec.auto_sync, replication_policy=spec.replication_policy, reuse_resources=spec.reuse_resources,
            num_threads_per_block=spec.num_threads_per_block, use_double_scratch_buffer=spec.use_double_scratch_buffer,
            buffer_alignment=spec.buffer_alignment, min_message_size=spec.min_message_size, max_message_size=spec.max_message_size)

    def __enter__(self) -> "CollectiveProgram":
        set_program(self)
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        set_program(None)

    def group(self, tb_group: ThreadBlockGroup | None) -> int | None:
        """Return the compiler's number of a group, None for None."""
        if tb_group is None:
            return None
        blocks = tuple(tb_group.tb_list)
        if blocks not in self._groups:
            self._groups[blocks] = self.compiler("group", list=blocks)
        return self._groups[blocks]

    def to_json(self, indent: int | None = 2, **kwargs: Any) -> str:
        """Return the plan as JSON; the same text every time. Keywords are those of json.dumps."""
        return json.dumps(self.compiler("compile"), indent=indent, **kwargs)
