"""What programs read of their ranks."""

from dataclasses import dataclass


@dataclass
class Gpu:
    """A rank and the numbers of chunks of its buffers."""

    id: int
    input_chunks: int = 0
    output_chunks: int = 0
    scratch_chunks: int = 0
