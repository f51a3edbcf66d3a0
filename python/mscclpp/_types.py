"""Element types and reductions, and how those of other packages are called here."""

from __future__ import annotations

import enum

from . import _errors

__all__ = ["DataType", "ReduceOp"]


class DataType(enum.IntEnum):
    """Element types; ``size`` is in bytes."""

    float32 = 0
    float16 = 1
    bfloat16 = 2
    float64 = 3
    int8 = 4
    uint8 = 5
    int32 = 6
    uint32 = 7
    int64 = 8
    uint64 = 9
    float8_e4m3fn = 10
    float8_e5m2 = 11
    float8_e4m3b15 = 12

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return SIZES[self]


SIZES = (4, 2, 2, 8, 1, 1, 4, 4, 8, 8, 1, 1, 1)


class ReduceOp(enum.IntEnum):
    """Reductions. PREMUL_SUM multiplies the input of each rank by its ``scale`` first; AVG divides the sum by the number of ranks."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4
    PREMUL_SUM = 5


_REDUCTIONS = len(ReduceOp)


def reduction(value: object) -> int:
    """Return the number of what a caller gives as a reduction."""
    if isinstance(value, int) and 0 <= value < _REDUCTIONS:
        return int(value)
    raise _errors.invalid(f"reduction {value!r}: expected one of ReduceOp: {', '.join(o.name for o in ReduceOp)}")


_NAMES = {t.name: int(t) for t in DataType}
# Letters of the struct module and of the array protocols, with the size that tells C's types apart.
_LETTERS = {
    "f": {2: 1, 4: 0, 8: 3}, "i": {1: 4, 4: 6, 8: 8}, "u": {1: 5, 4: 7, 8: 9},
}
_FORMATS = {**dict.fromkeys("efd", "f"), **dict.fromkeys("bhilqn", "i"), **dict.fromkeys("BHILQNc", "u")}

cache: dict = {}
"""Types of other packages, by the object: code, or None where reductions have no such type."""


def of_name(name: str) -> int | None:
    """Return the code of a type's name, such as float32 or torch.float32; None if it has none."""
    return _NAMES.get(name.rpartition(".")[2])


def of_typestr(text: str) -> int | None:
    """Return the code of a typestr of the array protocols, such as ``<f4``; None if it has none."""
    if text[:1] == ">" or not text[2:].isdigit():
        return None
    return _LETTERS.get(text[1:2], {}).get(int(text[2:]))


def of_format(text: str, size: int) -> int | None:
    """Return the code of a format of the buffer protocol; None if it has none."""
    order = text[:1] if text[:1] in "@=<>!" else ""
    if order in (">", "!") and size > 1:
        return None
    return _LETTERS.get(_FORMATS.get(text[len(order):], ""), {}).get(size)


def of_dtype(dtype) -> int | None:
    """Return the code of a dtype of NumPy, CuPy, JAX or torch; None if it has none."""
    try:
        return cache[dtype]
    except (KeyError, TypeError):
        pass
    if getattr(dtype, "byteorder", "=") == ">":
        code = None
    else:
        code = of_name(getattr(dtype, "name", None) or str(dtype))
    try:
        cache[dtype] = code
    except TypeError:  # not hashable
        pass
    return code


def data_type(value) -> int:
    """Return the code of what a caller gives as a type: a DataType, a name, or a dtype of another package."""
    if isinstance(value, int):
        if 0 <= value < len(SIZES):
            return int(value)
    else:
        code = of_name(value) if isinstance(value, str) else of_dtype(value)
        if code is None and isinstance(value, type):  # numpy.float32
            code = of_name(value.__name__)
        if code is not None:
            return code
    raise _errors.invalid(f"type {value!r}: expected one of {', '.join(_NAMES)}")
