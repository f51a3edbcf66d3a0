"""The C library: where it is, its functions, and what becomes of its results."""

from __future__ import annotations

import array
import ctypes
import os
import sys
import threading
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p, py_object

from . import _errors

ABI = 1
"""The MSCCLPP_ABI_VERSION that the functions below are declared for."""

PACKAGE = os.path.dirname(os.path.abspath(__file__))

LogFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
WriteFunction = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)
SelectorFunction = CFUNCTYPE(c_void_p, c_void_p, c_void_p)
ProxyFunction = CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64, c_uint64)


class UniqueIdBytes(ctypes.Structure):
    """mscclpp_unique_id_t."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class CommOptions(ctypes.Structure):
    """mscclpp_comm_options_t."""

    _fields_ = [
        ("size", c_size_t), ("id", POINTER(UniqueIdBytes)), ("rank", c_int32), ("ranks", c_int32),
        ("device", c_char_p), ("config_file", c_char_p), ("settings", POINTER(c_char_p)),
        ("settings_count", c_size_t), ("log", LogFunction), ("log_context", c_void_p), ("timeout", c_uint64),
    ]


class CallOptions(ctypes.Structure):
    """mscclpp_call_options_t."""

    _fields_ = [("size", c_size_t), ("stream", c_void_p), ("algorithm", c_char_p), ("scale", c_double)]


class ExecuteOptions(ctypes.Structure):
    """mscclpp_execute_options_t."""

    _fields_ = [("size", c_size_t), ("stream", c_void_p), ("op", c_int32), ("packet_bytes", c_int32), ("keep_input", c_int32)]


class RegisterOptions(ctypes.Structure):
    """mscclpp_register_options_t."""

    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("packet_bytes", c_int32)]


class SelectorRequest(ctypes.Structure):
    """mscclpp_request_t."""

    _fields_ = [
        ("size", c_size_t), ("collective", c_char_p), ("bytes", c_uint64), ("count", c_uint64), ("type", c_int32), ("op", c_int32), ("root", c_int32),
        ("ranks", c_int32), ("in_place", c_int32),
    ]


class WorkspaceOptions(ctypes.Structure):
    """mscclpp_workspace_options_t."""

    _fields_ = [("size", c_size_t), ("scratch_bytes", c_size_t)]


class NormCall(ctypes.Structure):
    """mscclpp_norm_call_t."""

    _fields_ = [
        ("size", c_size_t), ("stream", c_void_p), ("tokens", c_size_t), ("hidden", c_size_t), ("type", c_int32), ("norm", c_int32),
        ("quantization", c_int32), ("shots", c_int32), ("epsilon", c_float), ("input", c_void_p), ("residual", c_void_p),
        ("weight", c_void_p), ("bias", c_void_p), ("output", c_void_p), ("residual_out", c_void_p), ("scales", c_void_p), ("scale", c_void_p),
        ("rows", c_int32), ("reserved", c_int32),
    ]


class MoeOptions(ctypes.Structure):
    """mscclpp_moe_options_t."""

    _fields_ = [("size", c_size_t), ("tokens", c_size_t), ("hidden", c_size_t), ("experts", c_size_t)]


class DispatchCall(ctypes.Structure):
    """mscclpp_dispatch_call_t."""

    _fields_ = [
        ("size", c_size_t), ("stream", c_void_p), ("tokens", c_size_t), ("hidden", c_size_t), ("top_k", c_size_t), ("slots", c_size_t),
        ("row_scales", c_size_t), ("phase", c_int32), ("format", c_int32), ("index64", c_int32), ("round_scale", c_int32), ("exponents", c_int32),
        ("reserved", c_int32), ("ticket", POINTER(c_uint64)), ("input", c_void_p), ("scales", c_void_p), ("indices", c_void_p), ("weights", c_void_p),
        ("output", c_void_p), ("output_scales", c_void_p), ("sources", c_void_p), ("ranges", c_void_p), ("received", c_void_p),
        ("statistics", c_void_p), ("handle", c_void_p),
    ]


class CombineCall(ctypes.Structure):
    """mscclpp_combine_call_t."""

    _fields_ = [
        ("size", c_size_t), ("stream", c_void_p), ("tokens", c_size_t), ("hidden", c_size_t), ("top_k", c_size_t), ("slots", c_size_t),
        ("phase", c_int32), ("index64", c_int32), ("weighted", c_int32), ("reserved", c_int32), ("ticket", POINTER(c_uint64)),
        ("input", c_void_p), ("indices", c_void_p), ("weights", c_void_p), ("handle", c_void_p), ("output", c_void_p),
    ]


_handle, _out, _options = c_void_p, POINTER(c_void_p), c_void_p
_counts = POINTER(c_size_t)

# Names without mscclpp_, with the types of their arguments. Results are codes, except for the functions in _OTHERS.
FUNCTIONS = {
    "setting": [c_char_p, c_char_p, c_size_t],
    "unique_id_create": [POINTER(UniqueIdBytes), c_char_p],
    "comm_create": [POINTER(CommOptions), _out],
    "comm_join": [_handle],
    "comm_rank": [_handle, POINTER(c_int32)],
    "comm_size": [_handle, POINTER(c_int32)],
    "comm_query": [_handle, c_char_p, c_void_p, _counts],
    "comm_status": [_handle],
    "comm_check": [_handle],
    "comm_split": [_handle, c_int32, c_int32, _out],
    "comm_shrink": [_handle, POINTER(c_int32), c_size_t, c_uint32, _out],
    "comm_settle": [_handle, POINTER(c_void_p), c_size_t, c_uint64],
    "comm_destroy": [_handle],
    "comm_exchange": [_handle, c_void_p, c_size_t, c_void_p],
    "comm_abort": [_handle, c_char_p],
    "comm_leave": [_handle, c_char_p],
    "comm_dump": [_handle, WriteFunction, c_void_p],
    "comm_control": [_handle, _out],
    "trace_start": [_handle],
    "trace_stop": [_handle],
    "trace_mark": [_handle, c_char_p],
    "all_reduce": [_handle, c_void_p, c_void_p, c_size_t, c_int32, c_int32, _options],
    "reduce": [_handle, c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_int32, _options],
    "reduce_scatter": [_handle, c_void_p, c_void_p, c_size_t, c_int32, c_int32, _options],
    "all_gather": [_handle, c_void_p, c_void_p, c_size_t, c_int32, _options],
    "broadcast": [_handle, c_void_p, c_void_p, c_size_t, c_int32, c_int32, _options],
    "gather": [_handle, c_void_p, c_void_p, c_size_t, c_int32, c_int32, _options],
    "scatter": [_handle, c_void_p, c_void_p, c_size_t, c_int32, c_int32, _options],
    "all_to_all": [_handle, c_void_p, c_void_p, c_size_t, c_int32, _options],
    "all_to_all_v": [_handle, c_void_p, _counts, _counts, c_void_p, _counts, _counts, c_int32, _options],
    "send": [_handle, c_void_p, c_size_t, c_int32, c_int32, _options],
    "recv": [_handle, c_void_p, c_size_t, c_int32, c_int32, _options],
    "barrier": [_handle, _options],
    "group_start": [_handle],
    "group_end": [_handle],
    "prepare": [_handle, c_char_p, c_int32],
    "memory_alloc": [_handle, c_size_t, _out],
    "memory_register": [_handle, c_void_p, c_size_t, _out],
    "memory_range": [_handle, _out, _counts],
    "memory_free": [_handle],
    "memory_keep": [_handle, _out],
    "memory_release": [_handle],
    "memory_write": [_handle, c_size_t, c_void_p, c_size_t],
    "memory_read": [_handle, c_size_t, c_void_p, c_size_t],
    "window_create": [_handle, _handle, _out],
    "window_arrange": [_handle, _handle, c_uint32, _out],
    "window_flat": [_handle, _out, _counts],
    "window_peer": [_handle, c_int32, _out, _counts],
    "window_channels": [_handle, c_void_p, _counts],
    "window_free": [_handle],
    "memory_channel": [_handle, c_int32, _handle, _out],
    "port_channel": [_handle, c_int32, _handle, _handle, _out],
    "switch_channel": [_handle, _handle, _out],
    "channel_handle": [_handle, c_void_p, _counts],
    "channel_free": [_handle],
    "port_put": [_handle, c_size_t, c_size_t, c_size_t],
    "port_put_signal": [_handle, c_size_t, c_size_t, c_size_t],
    "port_signal": [_handle],
    "port_flush": [_handle, c_uint64],
    "port_wait": [_handle, c_uint64],
    "module_load": [_handle, c_char_p, c_size_t, _out],
    "module_kernel": [_handle, c_char_p, _out],
    "kernel_launch": [_handle, c_void_p, c_void_p, c_size_t],
    "module_free": [_handle],
    "proxy_create": [_handle, c_uint32, ProxyFunction, c_void_p, _out],
    "proxy_handle": [_handle, c_void_p, _counts],
    "proxy_push": [_handle, c_uint64, c_uint64, POINTER(c_uint64)],
    "proxy_complete": [_handle, c_uint64],
    "proxy_flush": [_handle, c_uint64, c_uint64],
    "proxy_free": [_handle],
    "plan_program_create": [_out],
    "plan_program_call": [_handle, c_char_p, c_size_t, WriteFunction, c_void_p],
    "plan_program_free": [_handle],
    "plan_read": [c_char_p, _out],
    "plan_parse": [c_char_p, c_size_t, _out],
    "plan_describe": [_handle, WriteFunction, c_void_p],
    "plan_check": [_handle, WriteFunction, c_void_p],
    "plan_free": [_handle],
    "executor_create": [_handle, _handle, _out],
    "executor_execute": [_handle, c_void_p, c_size_t, c_void_p, c_size_t, c_int32, _options],
    "executor_free": [_handle],
    "plan_register": [_handle, _handle, _options],
    "selector_register": [_handle, SelectorFunction, c_void_p],
    "workspace_create": [_handle, _options, _out],
    "workspace_free": [_handle],
    "all_reduce_norm": [_handle, _options],
    "moe_create": [_handle, _options, _out],
    "moe_free": [_handle],
    "moe_sizes": [_options, c_int32, _counts, _counts],
    "moe_dispatch": [_handle, _options],
    "moe_combine": [_handle, _options],
}
_OTHERS = {
    "abi_version": ([], c_uint32),
    "version": ([], c_char_p),
    "result_name": ([c_int32], c_char_p),
    "last_error": ([], c_char_p),
    "last_error_rank": ([], c_int32),
    "supports": ([c_char_p], c_int),
}
# Functions that Python calls as it holds its lock.
_UNDER_THE_LOCK = {
    "python_caller": ([_handle, c_int32, c_int32], py_object),
    "python_learn": ([py_object, c_int32, py_object], c_int),
}
_BUFFER, _TABLE, _CUPY = range(3)  # MSCCLPP_PYTHON_BUFFER and so on


def no_caller(*arguments) -> int:
    """Stand for the caller of a communicator where none of its calls is to be made that way."""
    return -1


def candidates() -> list[str]:
    """Return the paths at which the library is looked for, in this order."""
    name = "libmscclpp.so.1"
    paths = [os.path.join(PACKAGE, "lib", name)]
    home = os.environ.get("MSCCLPP_HOME")
    if home:
        paths += [os.path.join(home, "lib", name), os.path.join(home, "bin", "lib", name)]
    tree = os.path.dirname(os.path.dirname(PACKAGE))
    if os.path.isfile(os.path.join(tree, "capi", "mscclpp.h")):
        paths.append(os.path.join(tree, "bin", "lib", name))
    return paths


class Library:
    """The functions of the loaded library, each without its prefix mscclpp_."""

    def __init__(self) -> None:
        tried = []
        for path in [p for p in candidates() if os.path.exists(p)] or ["libmscclpp.so.1"]:
            try:
                self.file = ctypes.CDLL(path)
                self.path = path
                break
            except OSError as problem:
                tried.append(str(problem))
        else:
            raise _errors.make(1, f"load the C library: {'; '.join(tried)}: expected it at {', '.join(candidates())}, "
                                  "or where the loader looks: make build puts it into bin/lib of the source tree")
        for name, arguments in FUNCTIONS.items():
            self._declare(name, arguments, c_int32)
        for name, (arguments, result) in _OTHERS.items():
            self._declare(name, arguments, result)
        calling = ctypes.PyDLL(self.path)
        for name, (arguments, result) in _UNDER_THE_LOCK.items():
            self._declare(name, arguments, result, calling)
        self._learned = {array.array, bytearray, memoryview}
        for kind in self._learned:
            self.python_learn(kind, _BUFFER, None)
        if self.abi_version() != ABI:
            raise _errors.make(2, f"load {self.path}: version {self.abi_version()} of its interface: expected {ABI}")

    def _declare(self, name: str, arguments: list, result, file=None) -> None:
        try:
            function = getattr(file or self.file, "mscclpp_" + name)
        except AttributeError:
            raise _errors.make(2, f"load {self.path}: no function mscclpp_{name}: expected a library as new as this package") from None
        function.argtypes, function.restype = arguments, result
        setattr(self, name, function)

    def caller(self, handle: int, ranks: int, gpu: int):
        """Return the function by which C makes calls of a communicator itself, of arrays whose types it has learned; -1 for the host instead of a GPU."""
        try:
            return self.python_caller(handle, ranks, gpu)
        except ValueError:  # no CPython
            return no_caller

    def learn(self, array) -> None:
        """Let callers take such an array from now on, if its type is one of those for which C knows a way."""
        kind = type(array)
        if kind in self._learned:
            return
        package, how = sys.modules.get(kind.__module__.partition(".")[0]), None
        name = getattr(package, "__name__", "")
        if name == "torch" and kind is package.Tensor:
            how, way = _TABLE, getattr(kind, "__dlpack_c_exchange_api__", None)  # torch 2.9 has none
        elif name == "numpy" and kind is package.ndarray:
            how, way = _BUFFER, None
        elif name == "cupy" and kind is package.ndarray:
            how, way = _CUPY, package.cuda.get_current_stream
        if how is not None:
            self._learned.add(kind)
            self.python_learn(kind, how, way)

    def error(self, code: int) -> _errors.Error:
        """Return the exception for the result of this thread's last call."""
        rank = self.last_error_rank()
        return _errors.make(code, (self.last_error() or b"").decode("utf-8", "replace"), None if rank < 0 else rank)

    def check(self, code: int) -> None:
        """Raise the exception for a result that is none of success."""
        if code:
            raise self.error(code)


_loaded: Library | None = None
_lock = threading.Lock()


def library() -> Library:
    """Load the library, once; it stays for the life of the process."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = Library()
    return _loaded
