"""If TORCH_DISTRIBUTED_USE_TORCHCOMMS=1 or torch.distributed.config.use_torchcomms says so, PyTorch 2.11 and later use
torchcomms for every process group. Its Gloo makes its own TCP device and ignores GLOO_DEVICE_TRANSPORT, so a program
that requests one of our transports would silently use TCP. This module refuses that, at the import and, since the
program may enable torchcomms later, when it makes a group."""

import functools
import os
from typing import Callable

import torch.distributed
from gloo_bypass_autoload import asks_for_ours


def _is_asked_for() -> bool:
    # PyTorch's own reading: "1", or any text but "0" and the empty one; whether or not torchcomms is installed.
    return bool(getattr(getattr(torch.distributed, "config", None), "use_torchcomms", False))


def _reason() -> str:
    """Empty if our transports can be used."""
    if not asks_for_ours() or not _is_asked_for():
        return ""
    return (
        "TORCH_DISTRIBUTED_USE_TORCHCOMMS (torch.distributed.config.use_torchcomms) sends every process group "
        f"through torchcomms' own TCP, and GLOO_DEVICE_TRANSPORT={os.environ['GLOO_DEVICE_TRANSPORT']} would do "
        "nothing: unset one of them"
    )


def _refusing(is_enabled: Callable[[], bool]) -> Callable[[], bool]:
    @functools.wraps(is_enabled)
    def refuse_or_answer() -> bool:
        if reason := _reason():
            raise RuntimeError(f"gloo_bypass: {reason}")
        return is_enabled()

    return refuse_or_answer


def watch() -> None:
    """Makes init_process_group and new_group fail with the reason from now on. PyTorch calls this internal function for
    each group; a release without it has no torchcomms."""
    c10d = getattr(torch.distributed, "distributed_c10d", None)
    is_enabled = getattr(c10d, "_use_torchcomms_enabled", None)
    if is_enabled is not None and not hasattr(is_enabled, "__wrapped__"):  # wrap once: a failed import runs this again
        setattr(c10d, "_use_torchcomms_enabled", _refusing(is_enabled))


def check() -> None:
    """Raises ImportError with the reason, if there is one."""
    if reason := _reason():
        raise ImportError(f"gloo_bypass: {reason}")
