"""The short way of an all-reduce of one plain tensor (../door/short_way.h): where _door finds what it needs of PyTorch.

A tensor's memory: from DLPack's table of functions, where this PyTorch has it; else from the tensor's attributes.
The options' fields: in the C++ object behind them, at places that are found here by setting each field to several
values. Where no place, or more than one, holds all of them, there is no short way, and calls go the usual one.
"""

import ctypes
import datetime
from typing import Any, Callable, Iterable, Optional, Tuple

import torch
import torch.distributed as dist

from . import _door
from ._calls import UNSET, c10d
from ._tensors import REDUCTIONS, TYPES

_MOST_BYTES = 64  # of an options' object that are looked at
_CAPSULE = b"dlpack_exchange_api"
# DLPackExchangeAPI: version (2 x 32 bits), the table of an older version, five functions.
_MAJOR_VERSION, _DESCRIBE, _STREAM, _WORDS = 1, 5, 6, 7
_PROFILES = "_ZN5torch8profiler4impl15profilerEnabledEv"  # torch::profiler::impl::profilerEnabled()
_NO_REDUCTION = 255


def _part_of(options: Any) -> bytes:
    """The C++ object's bytes; pybind11 keeps its address behind the head of the Python object."""
    address = ctypes.c_void_p.from_address(id(options) + object.__basicsize__)
    usable = ctypes.CDLL(None).malloc_usable_size
    usable.restype, usable.argtypes = ctypes.c_size_t, (ctypes.c_void_p,)
    return ctypes.string_at(address.value or 0, min(_MOST_BYTES, usable(address)))


def _place(width: int, make: Callable[[Any], Any], values: Iterable[Tuple[Any, int]]) -> Optional[int]:
    """Where options that `make(value)` makes hold the value's number, of so many bytes, for every value."""
    places = set(range(_MOST_BYTES))
    for value, number in values:
        options = make(value)
        part, wanted = _part_of(options), number.to_bytes(width, "little", signed=True)
        places &= {at for at in range(len(part) - width + 1) if part[at : at + width] == wanted}
    return places.pop() if len(places) == 1 else None


def _options(**fields: Any) -> Any:
    made = c10d.AllreduceOptions()
    made.asyncOp = False
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _of_dlpack() -> Tuple[int, int]:
    """The addresses of DLPack's functions that describe a tensor and say a device's stream; 0: there is none."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if type(capsule).__name__ != "PyCapsule":
        return 0, 0
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = (ctypes.c_uint64 * _WORDS).from_address(pointer(capsule, _CAPSULE))
    return (table[_DESCRIBE], table[_STREAM]) if table[0] & 0xFFFFFFFF == _MAJOR_VERSION else (0, 0)


def find() -> bool:
    """Tells _door. False: this PyTorch has no short way."""
    try:
        return _find()
    except (OSError, AttributeError, TypeError, ValueError, RuntimeError):  # it is another one than those known
        return False


def _find() -> bool:
    if not hasattr(c10d.AllreduceOptions(), "asyncOp"):  # before 2.8: only the call's frame says whether it waits
        return False
    names = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    operations = [getattr(dist.ReduceOp, name) for name in names]
    limits = [(datetime.timedelta(milliseconds=one), one) for one in (1, 1_234_567, 0x1122334455)]
    reduction_at = _place(1, lambda one: _options(reduceOp=one), [(one, int(one)) for one in operations])
    timeout_at = _place(8, lambda one: _options(timeout=one), limits)
    asynchronous_at = _place(1, lambda one: _options(asyncOp=one, reduceOp=operations[3]), [(False, 0), (True, 1)])
    profiles = getattr(ctypes.CDLL(torch._C.__file__), _PROFILES, None)
    if reduction_at is None or timeout_at is None or asynchronous_at is None or profiles is None:
        return False
    unset_ms = round(UNSET.total_seconds() * 1000)
    reductions = bytes(REDUCTIONS.get(one, _NO_REDUCTION) for one in range(max(REDUCTIONS) + 1))
    _door.short_way(
        *_of_dlpack(),
        ctypes.cast(profiles, ctypes.c_void_p).value or 0,
        (torch.Tensor, torch.nn.Parameter),
        TYPES,
        torch.strided,
        c10d.AllreduceOptions,
        unset_ms,
        reductions,
        reduction_at,
        timeout_at,
        asynchronous_at,
    )
    return True
