"""Loads the plug-in, which registers the transports with PyTorch, and calls its C functions (plugin/gloo_bypass.h)."""
import ctypes
import json
import os
from typing import Any, Callable

import torch

from ._built import TORCH_VERSION, VERSION as VERSION

#: The version of PyTorch that the plug-in was built for; another major or minor version is refused.
BUILT_FOR_TORCH: str = TORCH_VERSION


def _find() -> str:
    folder = os.path.dirname(os.path.abspath(__file__))
    # Installed, the plug-in lies in the package; in a build folder, where Meson makes it.
    places = [os.path.join(folder, "libgloo_bypass.so"),
              os.path.normpath(os.path.join(folder, "..", "..", "libgloo_bypass.so"))]
    for place in places:
        if os.path.exists(place):
            return place
    raise ImportError(f"gloo_bypass: the plug-in {places[0]} is missing: install the package again (pip install .), "
                      "or build it with scripts/build")


def _load(path: str) -> ctypes.CDLL:
    # The plug-in is C++ against one version of PyTorch; another one's libraries would be loaded beside it and see
    # nothing of it.
    running: str = torch.__version__
    if running.split("+")[0].split(".")[:2] != BUILT_FOR_TORCH.split(".")[:2]:
        raise ImportError(f"gloo_bypass was built for PyTorch {BUILT_FOR_TORCH}, this is {running} from "
                          f"{os.path.dirname(torch.__file__)}: build it again for this PyTorch")
    try:
        handle = ctypes.CDLL(None)  # of LD_PRELOAD: another copy would count nothing
        if not hasattr(handle, "gloo_bypass_stats_json"):
            torch.ops.load_library(path)
            handle = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"gloo_bypass: the plug-in cannot be loaded: {error}") from error
    for function in (handle.gloo_bypass_stats_json, handle.gloo_bypass_available_json):
        function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        function.restype = ctypes.c_int
    return handle


def json_of(function: Callable[[Any, int], int], capacity: int) -> Any:
    """What one of the plug-in's functions that write JSON into a buffer says; `capacity` is a first guess."""
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        needed = function(buffer, capacity)
        if needed < 0:
            raise RuntimeError("gloo_bypass: the plug-in has no answer (out of memory?)")
        if needed <= capacity:
            return json.loads(buffer.value)
        capacity = 2 * needed  # the text may grow meanwhile


#: Path of the plug-in, for LD_PRELOAD or torch.ops.load_library.
library: str = _find()
handle: ctypes.CDLL = _load(library)
