"""The operands of operations. The operations themselves are the compiler's."""

from .types import *


@dataclass
class PipelineOperation:
    """A pipeline under MSCCL++'s name, for programs that import it: the one of a program is the compiler's."""

    unit_size: int
    num_chunks: int
    operations: List = field(default_factory=list)
