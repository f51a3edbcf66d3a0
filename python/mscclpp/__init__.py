"""Communication between processes and GPUs: collectives, channels and proxies over mscclpp-go's C library.

    import mscclpp, numpy

    with mscclpp.Communicator() as comm:
        sums = numpy.full(4, float(comm.rank))
        comm.all_reduce(sums)

Started by ``mscclpp-run -n 4 python program.py``. The package needs no other one; arrays of NumPy, torch, CuPy and JAX, and
whatever has the buffer protocol, ``__cuda_array_interface__`` or ``__dlpack__``, are used as they are. The C library is loaded
when it is first needed, so that importing costs little, and a process may fork until then.
"""

from ._communicator import Communicator
from ._environ import env
from ._errors import (ClosedError, Error, ErrorCode, FailedError, InProgressError, InvalidUsage, PeerError, PluginError,
                      TimeoutError, UnavailableError, UnsupportedError)
from ._objects import DeviceHandle, MemoryChannel, PortChannel, Proxy, RegisteredMemory, SwitchChannel, Window
from ._types import DataType, ReduceOp
from ._unique_id import UniqueId

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from . import utils
    from ._algorithms import Algorithm, AlgorithmCollection, AlgorithmCollectionBuilder, compile
    from ._fifo import Fifo
    from ._gpu_buffer import GpuBuffer, RawGpuBuffer
    from ._groups import CommGroup, Host2HostSemaphore
    from ._plans import ExecutionPlan, Executor, PacketType
    from .language.utils import AlgoSpec

__all__ = [
    "Communicator", "UniqueId", "DataType", "ReduceOp", "Error", "ErrorCode", "UnavailableError", "UnsupportedError",
    "InvalidUsage", "PeerError", "ClosedError", "PluginError", "TimeoutError", "InProgressError", "FailedError",
    "DeviceHandle", "RegisteredMemory", "Window", "MemoryChannel", "PortChannel", "SwitchChannel", "Proxy",
    "library_version", "supports", "get_include", "get_lib", "env", "version",
    "ExecutionPlan", "Executor", "PacketType", "CommGroup", "Host2HostSemaphore", "GpuBuffer", "RawGpuBuffer",
    "Algorithm", "AlgorithmCollection", "AlgorithmCollectionBuilder", "AlgoSpec", "Fifo", "compile",
]
__version__ = "0.1.0"
version = {"version": __version__, "git_commit": ""}
"""The package's version, as a dictionary; library_version() has the commit of the C library."""

_LATER = {
    "ExecutionPlan": "_plans", "Executor": "_plans", "PacketType": "_plans", "CommGroup": "_groups", "Host2HostSemaphore": "_groups",
    "GpuBuffer": "_gpu_buffer", "RawGpuBuffer": "_gpu_buffer", "utils": "",
    "Algorithm": "_algorithms", "AlgorithmCollection": "_algorithms", "AlgorithmCollectionBuilder": "_algorithms", "compile": "_algorithms", "Fifo": "_fifo",
    "AlgoSpec": "language.utils",
}


def __getattr__(name: str):
    """Load a part of the package when it is first used."""
    if name not in _LATER:
        text = f"module {__name__!r} has no attribute {name!r}"
        if not name.startswith("_"):
            from ._elsewhere import NAMES
            text += f": {NAMES[name]}" if name in NAMES else ""
        raise AttributeError(text)
    import importlib
    module = importlib.import_module(f"{__name__}.{_LATER[name] or name}")
    value = globals()[name] = getattr(module, name) if _LATER[name] else module
    return value


def library_version() -> str:
    """Return the version of the C library."""
    from ._library import library
    return library().version().decode()


def supports(ability: str) -> bool:
    """Report whether the C library has an ability, such as "split"; the header's mscclpp_supports lists them."""
    from ._library import library
    return bool(library().supports(ability.encode()))


def get_include() -> str:
    """Return the folder of mscclpp.h and mscclpp/*.h, for programs in C and for kernels."""
    from ._files import include
    return include()


def get_lib() -> str:
    """Return the folder of libmscclpp.so.1."""
    import os

    from ._library import library
    return os.path.dirname(library().path)
