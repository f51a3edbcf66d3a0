"""The CUDA driver, as far as Python needs it: kernels of the program, and the order between streams."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

from . import _errors


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)]


_FUNCTIONS = {
    "cuInit": [c_uint], "cuDeviceGet": [POINTER(c_int), c_int], "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int], "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxGetCurrent": [POINTER(c_void_p)], "cuCtxSetCurrent": [c_void_p], "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventRecord": [c_void_p, c_void_p], "cuEventDestroy_v2": [c_void_p], "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuStreamSynchronize": [c_void_p], "cuCtxSynchronize": [], "cuThreadExchangeStreamCaptureMode": [POINTER(c_int)],
    "cuModuleLoadDataEx": [POINTER(c_void_p), c_char_p, c_uint, c_void_p, c_void_p],
    "cuModuleGetFunction": [POINTER(c_void_p), c_void_p, c_char_p], "cuModuleUnload": [c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p], "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuFuncSetAttribute": [c_void_p, c_int, c_int],
    "cuLaunchKernelEx": [POINTER(LaunchConfig), c_void_p, c_void_p, POINTER(c_void_p)],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
}
_MAJOR, _MINOR, _DYNAMIC_SHARED = 75, 76, 8  # of CUdevice_attribute and CUfunction_attribute
_NO_TIMING = 2
_LOG, _LOG_SIZE = 5, 6  # of CUjit_option: where the text of a failure goes


class Driver:
    """The functions of libcuda.so.1, or of the library that MSCCLPP_CUDA_LIBRARY names, which raise what they return."""

    def __init__(self) -> None:
        path = os.environ.get("MSCCLPP_CUDA_LIBRARY") or "libcuda.so.1"
        try:
            self._file = ctypes.CDLL(path)
        except OSError as problem:
            raise _errors.make(1, f"CUDA driver: {problem}: expected a machine with a GPU, and NVIDIA's driver") from None
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self._file, name)
            function.argtypes, function.restype = arguments, c_int
        self._contexts: dict[int, c_void_p] = {}
        self.cuInit(0)

    def __getattr__(self, name: str):
        function = getattr(self._file, name)

        def call(*arguments):
            code = function(*arguments)
            if code:
                text = c_char_p()
                self._file.cuGetErrorName(code, byref(text))
                raise _errors.make(9, f"{name}: {(text.value or b'unknown error').decode()} ({code})")
        self.__dict__[name] = call
        return call

    def context(self, device: int) -> c_void_p:
        """Return the primary context of a GPU, which stays."""
        if device not in self._contexts:
            number, context = c_int(), c_void_p()
            self.cuDeviceGet(byref(number), device)
            self.cuDevicePrimaryCtxRetain(byref(context), number)
            self._contexts[device] = context
        return self._contexts[device]

    @contextlib.contextmanager
    def on(self, device: int):
        """Make the primary context of a GPU the current one meanwhile."""
        before = c_void_p()
        self.cuCtxGetCurrent(byref(before))
        self.cuCtxSetCurrent(self.context(device))
        try:
            yield
        finally:
            self.cuCtxSetCurrent(before)

    def architecture(self, device: int) -> tuple[int, int]:
        """Return the compute capability of a GPU: (9, 0)."""
        number, values = c_int(), []
        self.cuDeviceGet(byref(number), device)
        for attribute in (_MAJOR, _MINOR):
            value = c_int()
            self.cuDeviceGetAttribute(byref(value), attribute, number)
            values.append(value.value)
        return values[0], values[1]

    def order(self, device: int, before: int, after: int) -> None:
        """Let what comes on stream ``after`` wait for what is on stream ``before``."""
        event = c_void_p()
        with self.on(device):
            self.cuEventCreate(byref(event), _NO_TIMING)
            try:
                self.cuEventRecord(event, before)
                self.cuStreamWaitEvent(after, event, 0)
            finally:
                self.cuEventDestroy_v2(event)

    def finish(self, device: int) -> None:
        """Wait for what is on all streams of a GPU."""
        with self.on(device):
            self.cuCtxSynchronize()

    def read(self, device: int, address: int, size: int) -> bytes:
        """Return memory of a GPU, when the default stream has done what is on it."""
        room = ctypes.create_string_buffer(max(size, 1))
        with self.on(device):
            self.cuMemcpyDtoHAsync_v2(room, address, size, None)
            self.cuStreamSynchronize(None)
        return room.raw[:size]

    def write(self, device: int, address: int, source: int, size: int) -> None:
        """Copy memory of the host to a GPU, when the default stream has done what is on it, and wait for that."""
        with self.on(device):
            self.cuMemcpyHtoDAsync_v2(address, source, size, None)
            self.cuStreamSynchronize(None)

    def load(self, device: int, image: bytes) -> c_void_p:
        """Load machine code or PTX."""
        module, log = c_void_p(), ctypes.create_string_buffer(8192)
        options, values = (c_int * 2)(_LOG, _LOG_SIZE), (c_void_p * 2)(ctypes.addressof(log), len(log))
        try:
            with self.on(device):
                self.cuModuleLoadDataEx(byref(module), image, 2, options, values)
        except _errors.FailedError as problem:
            said = log.value.decode("utf-8", "replace").strip()
            raise _errors.make(9, f"{problem.text}: {said}") if said else problem from None
        return module

    def function(self, device: int, module: c_void_p, name: str) -> c_void_p:
        """Return a kernel of a module."""
        function = c_void_p()
        with self.on(device):
            self.cuModuleGetFunction(byref(function), module, name.encode())
        return function

    def launch(self, device: int, function: c_void_p, parameters: bytes, blocks, threads, shared: int, stream: int) -> None:
        """Put a kernel on a stream; parameters are its arguments as they lie in memory."""
        config = LaunchConfig((c_uint * 3)(*blocks), (c_uint * 3)(*threads), shared, stream or None)
        raw, size = ctypes.create_string_buffer(bytes(parameters), len(parameters)), c_size_t(len(parameters))
        # CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE and _END
        extra = (c_void_p * 5)(1, ctypes.addressof(raw), 2, ctypes.addressof(size), 0)
        with self.on(device):
            if shared > 48 << 10:
                self.cuFuncSetAttribute(function, _DYNAMIC_SHARED, shared)
            self.cuLaunchKernelEx(byref(config), function, None, extra)


_loaded: Driver | None = None
_lock = threading.Lock()


def driver() -> Driver:
    """Load the driver, once."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = Driver()
        return _loaded
