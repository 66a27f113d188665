"""One rank of a program of torch.distributed that a command starts: it joins the process group over the transport that
GLOO_DEVICE_TRANSPORT names, ends with an error unless its bytes went over that transport, and leaves the group.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who the ranks are. Runs under Python 3.9 and later, with nothing but
PyTorch and gloo_bypass.
"""

import os
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)

from gloo_bypass_tools.common import transports


def transport():
    return os.environ.get("GLOO_DEVICE_TRANSPORT", "TCP")


def own_collectives():
    return os.environ.get("GLOO_BYPASS_COLLECTIVES", "gloo") == "own"


def join(timeout_s):
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if not transports.is_gloos(transport()):
        import gloo_bypass  # noqa: F401  PyTorch 2.5 and later have it by now, 1.13 has not
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))


def require_transport(least_bytes, carriers=None):
    """An exception unless the bytes went over the transport, or over `carriers`, its names in counters. A TCP rank
    loads our package only here: what cannot be loaded has carried nothing."""
    try:
        import gloo_bypass
    except ImportError:
        if transports.is_gloos(transport()):
            return
        raise
    # Two ranks send and receive a vector each; more of them, more. Our own collectives move vectors through a host's
    # memory where ranks share one, and count them as such.
    if carriers is None:
        carriers = f"{transport()},MEMORY" if own_collectives() else transport()
    gloo_bypass.require_transport(carriers, least_bytes if dist.get_world_size() > 1 else 0)


def run(body):
    """Runs `body()`, which joins, and ends the process in a way that each transport and PyTorch survive."""
    try:
        body()
    except Exception:
        traceback.print_exc()
        # The last line of the log is why. Over TCP threads that are left say more as a process ends.
        sys.stderr.flush()
        os._exit(1)
    if transports.is_gloos(transport()):
        # Over TCP destroying the group hangs now and then in PyTorch 2.6; without that, threads abort the end in 2.13.
        sys.stdout.flush()
        os._exit(0)
    dist.destroy_process_group()
