"""Pipelines."""

from .internal.globals import *
from .internal.operations import PipelineOperation


class LoopIterationContext:
    """The operations of its with-statement run for every unit of bytes of num_chunks chunks."""

    def __init__(self, unit: int, num_chunks: int) -> None:
        self.unit = unit
        self.num_chunks = num_chunks

    def __enter__(self) -> None:
        program = get_program()
        program.compiler("begin_loop", unit=self.unit, num_chunks=self.num_chunks)
        program.loop_context = self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        program = get_program()
        program.loop_context = None
        program.compiler("end_loop")
