"""What older PyTorch has not: fields of options, methods of backends, a word on whether a call waits, and works that
live as long as C++ needs them."""

import ctypes
import sys
import threading
from typing import Any, List

import torch
from torch.distributed import distributed_c10d as c10d

_RELEASE = tuple(int(word) for word in torch.__version__.split(".")[:2])
_OPTIONS_SAY = _RELEASE >= (2, 8)
KEEPS_WORKS = _RELEASE >= (2, 7)
#: In let_go(): of the list, the loop and the call that counts.
_OUR_REFERENCES = 3
_works: List[Any] = []
_lock = threading.RLock()  # what is let go may run a program's code


def set_known(options: Any, **fields: Any) -> None:
    """Those fields of a backend's options that this PyTorch has."""
    for name, value in fields.items():
        if hasattr(options, name):
            setattr(options, name, value)


def call_known(backend: Any, *names: str) -> None:
    """The first of these methods that this PyTorch's backends have, or none: Gloo's had no shutdown() in 2.6."""
    for name in names:
        if hasattr(backend, name):
            getattr(backend, name)()
            return


def caller_waits() -> bool:
    """Whether PyTorch's own function, which made this call, waits for its end at once, though options do not say so:
    their asyncOp is missing, or true in any case. The function's argument says it."""
    if _OPTIONS_SAY:
        return False
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") == __package__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals is c10d.__dict__ and not frame.f_locals.get("async_op", True)


def _cpp_references(work: Any) -> int:
    """intrusive_ptrs to the C++ part of a work, of which this object has one. pybind11 has that part's address first;
    the part begins with the address of its virtual table, and the count."""
    part = ctypes.c_void_p.from_address(id(work) + object.__basicsize__).value or 0
    return ctypes.c_uint32.from_address(part + ctypes.sizeof(ctypes.c_void_p)).value


def look_after(work: Any) -> None:
    """C++ of PyTorch 2.6 holds the C++ part of what a call returned, and loses its methods with the Python part. So
    this holds both until nobody else holds either, as let_go() finds."""
    if not KEEPS_WORKS:
        let_go()
        with _lock:
            _works.append(work)


def let_go() -> None:
    """Of what look_after() has. The last asynchronous call's results and group stay until this, or its group's end."""
    if not _works:
        return
    with _lock:
        _works[:] = [one for one in _works if sys.getrefcount(one) > _OUR_REFERENCES or _cpp_references(one) > 1]
