"""PyTorch 2.5 and later call autoload() at the end of `import torch` (entry point group torch.backends), so that
GLOO_DEVICE_TRANSPORT=DPDK works without an import in the script.

Not part of the package gloo_bypass, because importing that loads the plug-in. An exception from autoload() would break
`import torch` for every program of the machine, so none leaves it. TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns the call off.
"""

import os
import sys


def asks_for_ours() -> bool:
    """Whether GLOO_DEVICE_TRANSPORT names one of our transports."""
    # Accept small letters here: the plug-in reports them better than PyTorch does.
    return os.environ.get("GLOO_DEVICE_TRANSPORT", "").strip().upper() in ("DPDK", "UDP", "RDMA")


def autoload() -> None:
    """Imports gloo_bypass if GLOO_DEVICE_TRANSPORT names one of its transports; if that fails, one warning says why."""
    if not asks_for_ours():
        return
    try:
        # PyTorch calls this last, when it is complete, so the package may import it.
        import gloo_bypass  # noqa: F401
    except Exception as error:
        _warn(f"GLOO_DEVICE_TRANSPORT={os.environ['GLOO_DEVICE_TRANSPORT']} will not work: {error}")


def _warn(text: str) -> None:
    try:
        import warnings

        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except Exception:  # -W error turns warnings into exceptions
        try:
            print(f"RuntimeWarning: {text}", file=sys.stderr)
        except Exception:  # no stderr
            pass
