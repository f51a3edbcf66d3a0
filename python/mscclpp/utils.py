"""Kernels of the program, and small things, with the names of MSCCL++'s."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from . import _errors, _types
from ._buffers import resolve

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Kernel", "KernelBuilder", "compile_source", "pack", "get_device_arch", "torch_dtype_to_mscclpp_dtype", "is_torch_tensor"]


def _device(device) -> int:
    """Return the number of a GPU that is given as a number, as cuda:N or by a communicator; None for the current one of torch or CuPy, else 0."""
    if device is None:
        torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
        if torch is not None and torch.cuda.is_available():
            return torch.cuda.current_device()
        return cupy.cuda.runtime.getDevice() if cupy is not None else 0
    if isinstance(device, int):
        return device
    text = str(getattr(device, "device", device))
    kind, _, number = text.partition(":")
    if kind != "cuda" or not (number or "0").isdigit():
        raise _errors.invalid(f"device {text}: expected a GPU, such as cuda:0")
    return int(number or "0")


def get_device_arch(device: object = None) -> str:
    """Return the architecture of a GPU, such as sm_90.

    Raises:
        UnavailableError: there is no driver.
    """
    from ._driver import driver
    return "sm_%d%d" % driver().architecture(_device(device))


class Kernel:
    """A kernel of the program on one GPU.

    Args:
        image: machine code (cubin) or PTX.
        kernel_name: its name in the image; ``extern "C"`` leaves names as they are.
        device: number of the GPU, cuda:N, or a communicator; None for the current one of torch or CuPy, else 0.

    Raises:
        UnavailableError: there is no driver.
        FailedError: the driver does not take the image, or finds no such kernel.
    """

    def __init__(self, image: bytes, kernel_name: str, device: object = None) -> None:
        from ._driver import driver
        self._driver, self._number = driver(), _device(device)
        self._module = self._driver.load(self._number, bytes(image))
        self._function = self._driver.function(self._number, self._module, kernel_name)
        self.name = kernel_name

    def launch_kernel(self, params: bytes, nblocks: int | Sequence[int], nthreads: int | Sequence[int], shared: int = 0,
                      stream: object = None) -> None:
        """Put the kernel on a stream.

        Args:
            params: its arguments, as pack() returns them.
            nblocks, nthreads: of the grid and of a block; numbers, or up to three for x, y and z.
            shared: bytes of dynamic shared memory.
            stream: a number, or a stream of torch or CuPy; None for the default stream.
        """
        from . import _streams
        self._driver.launch(self._number, self._function, params, _three(nblocks), _three(nthreads), shared, _streams.pointer(stream))

    def __del__(self) -> None:
        module, self._module = getattr(self, "_module", None), None
        if module is not None and not sys.is_finalizing():
            try:
                with self._driver.on(self._number):
                    self._driver.cuModuleUnload(module)
            except _errors.Error:  # the device is lost
                pass


def _three(n) -> tuple[int, int, int]:
    values = (n,) if isinstance(n, int) else tuple(n)
    return (*values, 1, 1)[:3]


def compile_source(source: str, *, device: object = None, arch: str | None = None, name: str = "kernel.cu",
                   options: Iterable[str] = (), ptx: bool = False) -> bytes:
    """Compile CUDA C++ by NVRTC, and return machine code or PTX; ``#include <mscclpp/device.h>`` has the channels.

    Args:
        device: the GPU that it is for, as Kernel has it.
        arch: an architecture instead, such as sm_90, for which no GPU is needed.
        options: of NVRTC, such as -DSIZE=4.
        ptx: whether it is to be PTX, which the driver of a GPU translates when it loads it.

    Raises:
        InvalidUsage: the source has mistakes; the text is what the compiler says.
        UnavailableError: NVRTC is not installed, or there is no driver.
    """
    from . import _nvrtc
    text = (arch or get_device_arch(device)).rpartition("_")[2].rstrip("af")
    return _nvrtc.compile(source, name=name, arch=(int(text[:-1]), int(text[-1])), options=options, ptx=ptx)


class KernelBuilder:
    """Compiles a kernel from a file, or from source, with NVRTC.

    Args:
        file: the file's name; None with source.
        kernel_name: the kernel's name.
        file_dir: folder of the file; None for the current one.
        macro_dict: names and values of macros.
        source: the text itself.
        device: the GPU, as Kernel has it.
    """

    def __init__(self, file: str | None = None, kernel_name: str = "", file_dir: str | None = None, macro_dict: Mapping[str, object] | None = None, *,
                 source: str | None = None, device: object = None) -> None:
        if (file is None) == (source is None):
            raise _errors.invalid("KernelBuilder: expected either a file or source")
        self._device, self._name = device, kernel_name
        options = [f"-D{k}={v}" for k, v in (macro_dict or {}).items()]
        if source is None:
            path = os.path.join(file_dir or os.getcwd(), file)
            with open(path, encoding="utf-8") as f:
                source = f.read()
            options.append(f"--include-path={os.path.dirname(path)}")
        self._image = compile_source(source, device=device, name=file or f"{kernel_name}.cu", options=options)

    def get_compiled_kernel(self) -> Kernel:
        """Return the kernel, loaded on the GPU."""
        return Kernel(self._image, self._name, self._device)


def pack(*args: object) -> bytes:
    """Return arguments of a kernel as they lie in memory, one after the other: the program provides the gaps that alignment asks for.

    An int or bool has 32 bits, a float is a double, ctypes objects are as they are, arrays and tensors are 64-bit addresses, and bytes
    and device handles are what they contain.
    """
    parts = []
    for arg in args:
        if isinstance(arg, int):
            parts.append(struct.pack("i", arg))
        elif isinstance(arg, float):
            parts.append(struct.pack("d", arg))
        elif isinstance(arg, (bytes, bytearray)):
            parts.append(bytes(arg))
        elif isinstance(arg, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array)):
            parts.append(bytes(arg))
        elif isinstance(getattr(arg, "raw", None), bytes):
            parts.append(arg.raw)
        else:
            try:
                parts.append(struct.pack("P", resolve(arg, "pack").address))
            except _errors.InvalidUsage:
                raise RuntimeError(f"Unsupported type: {type(arg)}") from None
    return b"".join(parts)


def is_torch_tensor(tensor: object) -> bool:
    """Report whether something is a tensor of torch, which need not be installed."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def torch_dtype_to_mscclpp_dtype(dtype: object) -> _types.DataType:
    """Return the DataType for a dtype of torch; ValueError if there is none."""
    code = _types.of_dtype(dtype)
    if code is None:
        raise ValueError(f"Unknown data type: {dtype}")
    return _types.DataType(code)
