"""In place of what older PyTorch lacks: fields of options, methods of backends, whether a call waits, and works that
live as long as C++ needs them."""

import ctypes
import sys
import threading
from typing import Any, List

from gloo_bypass_autoload import torch_release
from torch.distributed import distributed_c10d as c10d

_OPTIONS_SAY = torch_release() >= (2, 8)
KEEPS_WORKS = torch_release() >= (2, 7)
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
    """Whether the function of torch.distributed that made this call waits for its end at once. Before 2.8 options do
    not say so: their asyncOp is missing, or always true. The function's own argument does."""
    if _OPTIONS_SAY:
        return False
    frame = sys._getframe(1)
    while frame.f_globals.get("__package__") == __package__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals is c10d.__dict__ and not frame.f_locals.get("async_op", True)


def _cpp_references(work: Any) -> int:
    """How many intrusive_ptrs hold the C++ part of a work; the Python part has one. A Python object of pybind11 begins
    with the address of its C++ part, which begins with the address of its virtual table, and the count."""
    part = ctypes.c_void_p.from_address(id(work) + object.__basicsize__).value or 0
    return ctypes.c_uint32.from_address(part + ctypes.sizeof(ctypes.c_void_p)).value


def look_after(work: Any) -> None:
    """For PyTorch 2.6: its C++ holds the C++ part of a work only, and loses the methods with the Python part. Keeps
    both parts until let_go() finds that nobody else holds either."""
    let_go()
    with _lock:
        _works.append(work)


def let_go() -> None:
    """Drops the works that nobody else holds any more. Runs at each call, and when an operation or a group ends: until
    then such a work keeps its results and its group."""
    if not _works:
        return
    with _lock:
        _works[:] = [one for one in _works if sys.getrefcount(one) > _OUR_REFERENCES or _cpp_references(one) > 1]
