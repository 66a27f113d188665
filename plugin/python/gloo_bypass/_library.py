"""Loads the plug-in, which registers the transports with PyTorch, and calls its C functions
(plugin/torch/gloo_bypass.h).

The package has a library for each known generation of Gloo. PyTorch's version selects one; before the library
registers anything, it verifies that PyTorch's Gloo really is that one.
"""

import ctypes
import json
import os
from typing import Any, Callable, List, Tuple

import torch

from . import _torchcomms
from ._built import LIBRARIES, VERSION as VERSION

#: The releases of PyTorch that the package is for; another one is refused.
BUILT_FOR_TORCH: str = ", ".join(release for _, _, releases in LIBRARIES for release in releases)
_TEXT_BYTES = 4096


def _release(version: str) -> str:
    """2.13 of 2.13.0+cpu."""
    return ".".join(version.split("+")[0].split(".")[:2])


def _torch() -> str:
    return f"PyTorch {torch.__version__} from {os.path.dirname(torch.__file__)}"


def _choose(libraries: List[Tuple[str, str, List[str]]]) -> Tuple[str, str]:
    """The library for this PyTorch, and its Gloo."""
    for file, gloo, releases in libraries:
        if _release(torch.__version__) in releases:
            return file, gloo
    raise ImportError(
        f"gloo_bypass {VERSION} was built for PyTorch {BUILT_FOR_TORCH}, this is {_torch()}: install one "
        "of those, or a gloo_bypass for this one"
    )


def _find(file: str) -> str:
    folder = os.path.dirname(os.path.abspath(__file__))
    # An installed plug-in lies in the package; in a build folder it lies where Meson makes it.
    places = [os.path.join(folder, file), os.path.normpath(os.path.join(folder, "..", "..", file))]
    for place in places:
        if os.path.exists(place):
            return place
    raise ImportError(
        f"gloo_bypass: the plug-in {places[0]} is missing: install the package again, or build it with scripts/build"
    )


def _load(path: str) -> ctypes.CDLL:
    if not torch.distributed.is_available():
        raise ImportError(f"gloo_bypass needs torch.distributed, which {_torch()} is built without")
    try:
        handle = ctypes.CDLL(None)  # LD_PRELOAD's, loaded by its first call: another copy would count nothing
        if not hasattr(handle, "gloo_bypass_stats_json"):
            handle = ctypes.CDLL(path)
        elif not hasattr(handle, "gloo_bypass_register"):
            raise ImportError(
                "gloo_bypass: LD_PRELOAD has a plug-in of another version: leave it out, or build it again"
            )
    except OSError as error:
        raise ImportError(f"gloo_bypass: {os.path.basename(path)} cannot be loaded into {_torch()}: {error}") from error
    for function in (handle.gloo_bypass_register, handle.gloo_bypass_stats_json, handle.gloo_bypass_available_json):
        function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        function.restype = ctypes.c_int
    answer = ctypes.create_string_buffer(_TEXT_BYTES)
    if handle.gloo_bypass_register(answer, _TEXT_BYTES) != 1:
        reason = answer.value.decode(errors="replace") or "out of memory"
        raise ImportError(f"gloo_bypass: {os.path.basename(path)} is not used with {_torch()}: {reason}")
    return handle


def json_of(function: Callable[[Any, int], int], capacity: int) -> Any:
    """The text of a plug-in function that writes JSON into a buffer; `capacity` is a first guess."""
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        needed = function(buffer, capacity)
        if needed < 0:
            raise RuntimeError("gloo_bypass: the plug-in has no answer (out of memory?)")
        if needed <= capacity:
            return json.loads(buffer.value)
        capacity = 2 * needed  # the text may grow meanwhile


# Watch first: if PyTorch itself imports this package, it turns a failure into a warning and goes on.
_torchcomms.watch()
_torchcomms.check()
_file, gloo = _choose(LIBRARIES)
#: Path of the plug-in; one that is built for a single PyTorch may also come by LD_PRELOAD or torch.ops.load_library.
library: str = _find(_file)
handle: ctypes.CDLL = _load(library)
