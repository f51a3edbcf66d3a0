"""Memory of GPUs without a communicator of the program: GpuBuffer and RawGpuBuffer."""

from __future__ import annotations

import threading

from ._communicator import Communicator
from ._unique_id import UniqueId
from .utils import _device

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["GpuBuffer", "RawGpuBuffer"]

_owners: dict = {}
_lock = threading.Lock()


def _owner(device) -> Communicator:
    """Return the communicator of one rank that memory of a device belongs to; it stays open until the process ends."""
    name = "host" if device == "host" else f"cuda:{_device(device)}"
    with _lock:
        comm = _owners.get(name)
        if comm is None or comm.closed:
            comm = _owners[name] = Communicator(UniqueId.create("127.0.0.1"), 0, 1, device=name)
        return comm


class RawGpuBuffer:
    """Zeroed memory of a GPU that other ranks can be given access to: Communicator.register takes it.

    Args:
        nelems: bytes.
        device: number of a GPU, cuda:N, a communicator, or "host"; None for the current GPU of torch or CuPy, else 0.

    Raises:
        UnavailableError: there is no such device, or not enough memory.
    """

    def __init__(self, nelems: int, device: object = None) -> None:
        if not isinstance(nelems, int) or nelems <= 0:
            raise ValueError("Shape must be positive.")
        self._memory = _owner(device).alloc(nelems)

    def nelems(self) -> int:
        """Return the size in bytes, as bytes() does."""
        return self._memory.size()

    bytes = nelems

    def data(self) -> int:
        """Return the address."""
        return self._memory.data()

    def device_id(self) -> int:
        """Return the number of the GPU, -1 for the host."""
        kind, number = self._memory.__dlpack_device__()
        return number if kind == 2 else -1

    def to_dlpack(self, data_type: object = "uint8", shape: Sequence[int] | None = None, strides: Sequence[int] | None = None) -> object:
        """Return a capsule of DLPack, which keeps the memory: torch.utils.dlpack.from_dlpack(b.to_dlpack("torch.float16"))."""
        return self._memory._capsule(self, data_type, shape or None, strides or None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("memory of mscclpp is given as it is: expected no copy")
        return self.to_dlpack()

    def __mscclpp_buffer__(self):
        found = self._memory.__mscclpp_buffer__()
        found.keep = self
        return found

    @property
    def __cuda_array_interface__(self) -> dict:
        return self._memory.__cuda_array_interface__

    @property
    def __array_interface__(self) -> dict:
        return self._memory.__array_interface__

    def __del__(self) -> None:
        memory = getattr(self, "_memory", None)
        if memory is not None and not memory._comm.closed:
            memory.close()


def GpuBuffer(shape: int | Sequence[int], dtype: object = float, strides: Sequence[int] | None = None, order: str = "C",
              device: object = None) -> Any:
    """Return an array of CuPy on zeroed memory that other ranks can be given access to; it has the arguments of cupy.ndarray.

    Args:
        shape: an int or a tuple.
        dtype: of CuPy.
        strides: in bytes; None for those of the order.
        order: C or F.

    Raises:
        ValueError: the shape is not positive, or no shape.
        ImportError: there is no CuPy.
    """
    if isinstance(shape, int):
        shape = (shape,)
    if not hasattr(shape, "__iter__"):
        raise ValueError("Shape must be a tuple-like or an integer.")
    shape = tuple(int(n) for n in shape)
    if any(n <= 0 for n in shape):
        raise ValueError("Shape must be positive.")
    import cupy
    import numpy  # CuPy has it
    size = numpy.dtype(dtype).itemsize
    for n in shape:
        size *= n
    raw = RawGpuBuffer(size, device)
    pointer = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(raw.data(), size, (raw, raw._memory._lasting()), raw.device_id()), 0)
    return cupy.ndarray(shape, dtype=dtype, memptr=pointer, strides=strides, order=order)
