"""NVIDIA's compiler as a library, where it is installed: with CUDA, with torch and CuPy, or as the package nvidia-cuda-nvrtc."""

from __future__ import annotations

import ctypes
import glob
import os
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

from . import _errors, _files

_FUNCTIONS = {
    "nvrtcCreateProgram": [POINTER(c_void_p), c_char_p, c_char_p, c_int, c_void_p, c_void_p],
    "nvrtcCompileProgram": [c_void_p, c_int, POINTER(c_char_p)], "nvrtcDestroyProgram": [POINTER(c_void_p)],
    "nvrtcGetProgramLogSize": [c_void_p, POINTER(c_size_t)], "nvrtcGetProgramLog": [c_void_p, c_char_p],
    "nvrtcGetCUBINSize": [c_void_p, POINTER(c_size_t)], "nvrtcGetCUBIN": [c_void_p, c_char_p],
    "nvrtcGetPTXSize": [c_void_p, POINTER(c_size_t)], "nvrtcGetPTX": [c_void_p, c_char_p],
    "nvrtcAddNameExpression": [c_void_p, c_char_p], "nvrtcGetLoweredName": [c_void_p, c_char_p, POINTER(c_char_p)],
}
_STANDARD = b"""#pragma once
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
typedef long long intptr_t; typedef unsigned long long uintptr_t;
#define UINT32_MAX 0xffffffffu
#define UINT64_MAX 0xffffffffffffffffull
#define offsetof(type, member) __builtin_offsetof(type, member)
"""
"""The standard headers that the package's own ones include, which NVRTC does not have."""
_HEADERS = ("stddef.h", "stdint.h", "cstdint", "cstddef")
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def candidates() -> list[str]:
    """Return the paths at which NVRTC is looked for; names without a folder are the loader's to find."""
    named = os.environ.get("MSCCLPP_NVRTC_LIBRARY")
    if named:
        return [named]
    paths = []
    for folder in sys.path:
        if folder.endswith("-packages"):
            paths += sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so.1[23]")), reverse=True)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    paths += [os.path.join(home, "lib64", n) for n in _NAMES]
    return [p for p in paths if os.path.exists(p)] + list(_NAMES)


_loaded = None
_lock = threading.Lock()


def library():
    """Load NVRTC, once.

    Raises:
        UnavailableError: it is not installed.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            tried = candidates()
            for path in tried:
                try:
                    # Its second part, which it opens by name alone, is not always found.
                    for part in glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so.*")) if os.path.dirname(path) else ():
                        ctypes.CDLL(part)
                    file = ctypes.CDLL(path)
                except OSError:
                    continue
                for name, arguments in _FUNCTIONS.items():
                    function = getattr(file, name)
                    function.argtypes, function.restype = arguments, c_int
                file.nvrtcGetErrorString.argtypes, file.nvrtcGetErrorString.restype = [c_int], c_char_p
                _loaded = file
                break
            else:
                raise _errors.make(1, f"NVRTC: not found as {', '.join(tried)}: expected CUDA, the package nvidia-cuda-nvrtc, "
                                      "or the library's path in MSCCLPP_NVRTC_LIBRARY")
        return _loaded


def compile(source: str, *, name: str = "kernel.cu", arch: tuple[int, int] = (9, 0), options=(), headers: bool = True, ptx: bool = False) -> bytes:
    """Compile CUDA C++ to machine code of GPUs, or to PTX, and return it.

    Args:
        source: the text; ``#include <mscclpp/device.h>`` has the channels.
        name: what messages of the compiler call it.
        arch: the compute capability, as Driver.architecture returns it.
        options: more options of NVRTC, such as ``-DSIZE=4``.
        headers: whether the folder of the package's headers is one for includes.
        ptx: whether it is to be PTX, which the driver translates when it loads it.

    Raises:
        InvalidUsage: the source has mistakes; the text is what the compiler says.
        UnavailableError: NVRTC is not installed.
    """
    lib, program = library(), c_void_p()
    # A chip's own features, where it has such, so that multicast and the like are there.
    suffix = "a" if arch >= (9, 0) else ""
    flags = [f"--gpu-architecture={'compute' if ptx else 'sm'}_{arch[0]}{arch[1]}{suffix}", "--std=c++17", *options]
    if headers:
        flags.append(f"--include-path={_files.include()}")
        kernels = os.path.join(_files.TREE, "framework", "kernel", "include")
        if os.path.isdir(kernels):
            flags.append(f"--include-path={kernels}")
    n = len(_HEADERS) if headers else 0
    texts, names = (c_char_p * n)(*[_STANDARD] * n), (c_char_p * n)(*(h.encode() for h in _HEADERS[:n]))
    _check(lib, lib.nvrtcCreateProgram(byref(program), source.encode(), name.encode(), n, texts, names), "create the program")
    try:
        code = lib.nvrtcCompileProgram(program, len(flags), (c_char_p * len(flags))(*(f.encode() for f in flags)))
        if code:
            log = _read(lib, program, "Log", "ProgramLog").rstrip(b"\0").decode("utf-8", "replace").strip()
            raise _errors.invalid(f"NVRTC: {name} for {flags[0].rpartition('=')[2]}: {lib.nvrtcGetErrorString(code).decode()}: {log}")
        return _read(lib, program, "PTX", "PTX") if ptx else _read(lib, program, "CUBIN", "CUBIN")
    finally:
        lib.nvrtcDestroyProgram(byref(program))


def _check(lib, code: int, what: str) -> None:
    if code:
        raise _errors.make(9, f"NVRTC: {what}: {lib.nvrtcGetErrorString(code).decode()}")


def _read(lib, program, what: str, name: str) -> bytes:
    size = c_size_t()
    _check(lib, getattr(lib, f"nvrtcGet{name}Size")(program, byref(size)), f"read {what}")
    text = ctypes.create_string_buffer(size.value)
    _check(lib, getattr(lib, f"nvrtcGet{name}")(program, text), f"read {what}")
    return text.raw
