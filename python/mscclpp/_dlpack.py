"""Memory of this package for others, as DLPack: capsules that own a reference to it."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p, py_object

from . import _errors
from ._buffers import _CPU, _CUDA, _DLTensor

_Deleter = CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", _Deleter)]


_kept: dict = {}  # by the address of what was given away: it, and what it refers to


@_Deleter
def _delete(address) -> None:
    _kept.pop(address, None)


# Prototypes of its own, for in a destructor the capsule has no references, and must not be given one.
_valid = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_Destructor = ctypes.PYFUNCTYPE(None, c_void_p)


@_Destructor
def _forget(capsule) -> None:
    if _valid(capsule, b"dltensor"):  # the consumer has not taken it
        _delete(_pointer(capsule, b"dltensor"))


_new = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, _Destructor)(("PyCapsule_New", ctypes.pythonapi))

# Names of types, with DLPack's code and bits. The 8-bit floats that DLPack 0.8 does not know go as bytes.
_TYPES = {
    "float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "float64": (2, 64), "int8": (0, 8), "uint8": (1, 8), "int32": (0, 32),
    "uint32": (1, 32), "int64": (0, 64), "uint64": (1, 64), "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8), "fp8_e4m3b15": (1, 8), "float8_e4m3b15": (1, 8),
}


def capsule(address: int, size: int, device: int | None, keep, data_type: str = "uint8", shape=None, strides=None):
    """Return a capsule "dltensor" over size bytes at an address, on a GPU or, for None, on the host.

    Args:
        data_type: a name, with or without ``torch.``.
        shape: in elements; None for one dimension of all that there is.
        strides: in elements; None for C order.
    """
    name = str(data_type).rpartition(".")[2]
    if name not in _TYPES:
        raise _errors.invalid(f"DLPack: type {data_type}: expected one of {', '.join(_TYPES)}")
    code, bits = _TYPES[name]
    shape = [size * 8 // bits] if not shape else [int(n) for n in shape]
    last = 1
    for i, n in enumerate(shape):
        last += (n - 1) * strides[i] if strides else 0
    if strides is None or not len(strides):
        strides, last = None, 1
        for n in shape:
            last *= n
    if min(shape, default=1) < 0 or last * bits // 8 > size:
        raise _errors.invalid(f"DLPack: shape {tuple(shape)} of {name}: expected no more than the {size} bytes of the memory")
    extents = (c_int64 * len(shape))(*shape)
    steps = (c_int64 * len(shape))(*strides) if strides else None
    managed = _Managed()
    managed.tensor = _DLTensor(address, _CPU if device is None else _CUDA, device or 0, len(shape), code, bits, 1,
                               ctypes.cast(extents, POINTER(c_int64)), ctypes.cast(steps, POINTER(c_int64)) if steps else None, 0)
    managed.deleter = _delete
    _kept[ctypes.addressof(managed)] = managed, extents, steps, keep
    return _new(ctypes.addressof(managed), b"dltensor", _forget)
