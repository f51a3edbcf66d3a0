"""Where the memory of an object is: NumPy, torch, CuPy, JAX, and whatever has one of the three protocols.

The protocols are Python's buffers, ``__cuda_array_interface__``, and DLPack. An object may have several; the first of
torch's own methods, ``__cuda_array_interface__``, ``__array_interface__``, buffers and DLPack is used.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_char, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from operator import index

from . import _errors, _streams, _types

_Nothing = c_char * 0
from_buffer = _Nothing.from_buffer
addressof = ctypes.addressof


class Buffer:
    """Contiguous memory: what a call needs to know of an object, which ``keep`` keeps in existence.

    ``device`` is None for memory of the host, else the number of the GPU, or -1 where the object does not say. ``code``
    is that of the element type, None for types that have none: such elements can be moved, not reduced. ``stream`` is the
    stream on which the memory's contents are made, where the object says so: 0 for the default stream.
    """

    __slots__ = ("address", "bytes", "itemsize", "code", "device", "readonly", "keep", "type", "stream")

    def __init__(self, address, size, itemsize, code, device, readonly, keep, name):
        self.address, self.bytes, self.itemsize, self.code = address, size, itemsize, code
        self.device, self.readonly, self.keep, self.type = device, readonly, keep, name
        self.stream = None


def resolve(obj, what: str, stream=None) -> Buffer:
    """Return where the memory of an object is, or raise InvalidUsage that says why it cannot be used.

    stream: that of the call which is to use the memory. Objects that have DLPack alone make their memory ready for it.
    """
    if isinstance(obj, Buffer):
        return obj
    if obj is None:
        raise _errors.invalid(f"{what}: None: expected an array or buffer")
    own = getattr(obj, "__mscclpp_buffer__", None)
    if own is not None:
        return own()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, getattr(torch, "Tensor", ())):
        return _of_torch(obj, torch, what)
    for name, device in (("__cuda_array_interface__", -1), ("__array_interface__", None)):
        try:
            interface = getattr(obj, name, None)
        except Exception as problem:  # arrays of some packages raise where their memory is another device's
            interface = None
            del problem
        if isinstance(interface, dict):
            try:
                return _of_interface(obj, interface, device, what)
            except (KeyError, IndexError, TypeError, ValueError) as problem:
                if isinstance(problem, _errors.Error):
                    raise
                raise _errors.invalid(f"{what}: {type(obj).__name__}.{name} is {interface}: expected what the protocol has: {problem!r}") from problem
    try:
        view = memoryview(obj)
    except TypeError:
        view = None
    except (ValueError, BufferError) as problem:
        if hasattr(obj, "__dlpack__"):  # JAX's bfloat16, which has no format of buffers
            return _of_dlpack(obj, what, stream)
        raise _errors.invalid(f"{what}: {problem}: expected memory that can be used as it is") from None
    if view is not None:
        return _of_view(view, what)
    if hasattr(obj, "__dlpack__"):
        return _of_dlpack(obj, what, stream)
    raise _errors.invalid(f"{what}: {type(obj).__name__}: expected an array or buffer: "
                          "the buffer protocol, __cuda_array_interface__, or __dlpack__")


def _not_contiguous(what: str, shape, strides) -> _errors.InvalidUsage:
    return _errors.invalid(f"{what}: shape {tuple(shape)} with strides {tuple(strides)} is not contiguous: "
                           "expected elements in C order without gaps; make a copy first")


def _of_torch(tensor, torch, what: str) -> Buffer:
    if tensor.layout is not torch.strided:
        raise _errors.invalid(f"{what}: a tensor of layout {tensor.layout}: expected a dense one")
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise _errors.invalid(f"{what}: a tensor on {tensor.device}: expected one on cpu or cuda")
    if not tensor.is_contiguous():
        raise _not_contiguous(what, tensor.shape, tensor.stride())
    if tensor.is_conj() or tensor.is_neg():
        raise _errors.invalid(f"{what}: a tensor whose values are computed when they are read: expected resolve_conj() or resolve_neg() first")
    size = tensor.element_size()
    return Buffer(tensor.data_ptr(), tensor.numel() * size, size, _types.of_dtype(tensor.dtype),
                  None if kind == "cpu" else tensor.device.index, False, tensor, str(tensor.dtype))


def contiguous(shape, strides, itemsize: int) -> bool:
    """Report whether strides, in bytes, are those of C order."""
    if strides is None or 0 in shape:
        return True
    expected = itemsize
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def _product(shape) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def _of_interface(obj, interface: dict, device, what: str) -> Buffer:
    shape, typestr = tuple(index(n) for n in interface["shape"]), interface["typestr"]
    if min(shape, default=0) < 0:
        raise ValueError("a negative extent")
    if interface.get("mask") is not None or type(obj).__module__.startswith("numpy.ma"):
        raise _errors.invalid(f"{what}: an array with a mask: expected one without")
    if typestr[1] == "O":
        raise _errors.invalid(f"{what}: an array of Python objects: expected numbers")
    itemsize = int(typestr[2:].partition("[")[0]) * (4 if typestr[1] == "U" else 1)  # <M8[s]
    if not contiguous(shape, interface.get("strides"), itemsize):
        raise _not_contiguous(what, shape, interface["strides"])
    dtype = getattr(obj, "dtype", None)
    code = _types.of_typestr(typestr) if typestr[1] != "V" or dtype is None else _types.of_dtype(dtype)
    data = interface.get("data")
    if data is None:
        raise _errors.invalid(f"{what}: an array interface without an address: expected data")
    if not isinstance(data, tuple):  # an object with the buffer protocol
        inner = _of_view(memoryview(data), what)
        data, obj = (inner.address + interface.get("offset", 0), inner.readonly), (obj, inner.keep)
    if device is not None:
        own = getattr(obj, "device", None)  # of CuPy and JAX: an object with its number
        device = getattr(own, "local_hardware_id", None)
        device = getattr(own, "id", -1) if device is None else device
        device = device if isinstance(device, int) else -1
        if type(obj).__module__.startswith("jax"):
            obj.block_until_ready()  # the interface names no stream
    found = Buffer(index(data[0] or 0), _product(shape) * itemsize, itemsize, code, device, bool(data[1]), obj,
                   str(dtype) if dtype is not None else typestr)
    stream = interface.get("stream")
    if device is not None and stream is not None:
        if not isinstance(stream, int) or stream == 0:
            raise _errors.invalid(f"{what}: __cuda_array_interface__ with the stream {stream!r}: expected None, or a number other than 0")
        found.stream = 0 if stream == 1 else stream  # 1 is the default stream
    return found


def _of_view(view: memoryview, what: str) -> Buffer:
    if view.format == "O":
        raise _errors.invalid(f"{what}: a buffer of Python objects: expected numbers")
    if not view.c_contiguous:
        raise _not_contiguous(what, view.shape, view.strides)
    if view.readonly:
        address, keep = _address(view)
    else:
        keep = from_buffer(view)
        address = addressof(keep)
    return Buffer(address, view.nbytes, view.itemsize, _types.of_format(view.format, view.itemsize), None, view.readonly,
                  (view, keep), f"format {view.format}")


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
                ("ndim", c_int), ("format", c_void_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]

    def __del__(self, release=ctypes.pythonapi.PyBuffer_Release):
        if self.obj:
            release(ctypes.byref(self))


ctypes.pythonapi.PyObject_GetBuffer.argtypes = [py_object, ctypes.POINTER(_PyBuffer), c_int]
ctypes.pythonapi.PyBuffer_Release.restype = None


def _address(view):
    """Return the address of a buffer that may be read-only, and what holds the buffer."""
    raw = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(view, ctypes.byref(raw), 0)
    return raw.buf or 0, raw


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", ctypes.POINTER(c_int64)),
                ("strides", ctypes.POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", _DLTensor)]


_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_capsule.argtypes, _capsule.restype = [py_object, ctypes.c_char_p], c_void_p
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes, _is_capsule.restype = [py_object, ctypes.c_char_p], c_int

# Codes of DLPack's types, with their bits.
_DLPACK = {(0, 8): 4, (0, 32): 6, (0, 64): 8, (1, 8): 5, (1, 32): 7, (1, 64): 9, (2, 16): 1, (2, 32): 0, (2, 64): 3,
           (4, 16): 2, (10, 8): 10, (12, 8): 11}
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13


def _of_dlpack(obj, what: str, stream=None) -> Buffer:
    named = {}
    try:
        where = obj.__dlpack_device__() if hasattr(obj, "__dlpack_device__") else (_CPU, 0)
        if where[0] in (_CUDA, _CUDA_MANAGED):
            named["stream"] = _streams.pointer(stream) or 1  # the default stream
        try:
            capsule = obj.__dlpack__(max_version=(1, 1), **named)
        except TypeError:  # a package that knows the older protocol alone
            capsule = obj.__dlpack__(**named)
    except Exception as problem:
        raise _errors.invalid(f"{what}: {type(obj).__name__}.__dlpack__: {problem}") from problem
    readonly = False
    if _is_capsule(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_capsule(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise _errors.invalid(f"{what}: DLPack {versioned.major}.{versioned.minor}: expected 1.x")
        tensor, readonly = versioned.tensor, bool(versioned.flags & 1)
    elif _is_capsule(capsule, b"dltensor"):
        tensor = _DLTensor.from_address(_capsule(capsule, b"dltensor"))
        readonly = type(obj).__module__.startswith("jax")  # it cannot say so itself
    else:
        raise _errors.invalid(f"{what}: {type(obj).__name__}.__dlpack__ did not return a tensor: expected a capsule that was not used")
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    bits = tensor.bits * tensor.lanes
    if bits % 8:
        raise _errors.invalid(f"{what}: elements of {bits} bits: expected whole bytes")
    if tensor.strides and not contiguous(shape, [tensor.strides[i] for i in range(tensor.ndim)], 1):
        raise _not_contiguous(what, shape, [tensor.strides[i] for i in range(tensor.ndim)])
    if tensor.device_type not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise _errors.invalid(f"{what}: memory of a device of DLPack's type {tensor.device_type}: expected the host or CUDA")
    device = tensor.device_id if tensor.device_type in (_CUDA, _CUDA_MANAGED) else None
    code = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return Buffer((tensor.data or 0) + tensor.byte_offset, _product(shape) * bits // 8, bits // 8, code, device, readonly,
                  (obj, capsule), f"DLPack type {tensor.code} of {tensor.bits} bits")
