"""Kernel-bypass transports for PyTorch's Gloo: the import makes GLOO_DEVICE_TRANSPORT=DPDK, =UDP and =RDMA known.

    import gloo_bypass                      # before init_process_group
    dist.init_process_group("gloo")         # with GLOO_DEVICE_TRANSPORT=DPDK, UDP or RDMA

    dist.init_process_group("bypass")       # our own collectives, over any of them

    gloo_bypass.available()                 # which transports work here, and why the others do not
    gloo_bypass.stats()                     # counters of what this process has sent and received
    gloo_bypass.require_transport()         # an exception unless bytes went over GLOO_DEVICE_TRANSPORT's
    gloo_bypass.make_group(store, rank, size)  # ours, for libraries that make groups themselves

Every setting is a GLOO_BYPASS_* variable; docs/configuration.md lists them. `python3 -m gloo_bypass` prints what
available() returns; its --listen and --probe say whether UDP goes between two hosts.
"""

from gloo_bypass_autoload import (
    is_old as _is_old,
    load_groups as _load_groups,
    refuse as _refuse,
    register as _register,
)

import datetime as _datetime
from typing import Any as _Any

from ._availability import Availability, available
from ._library import BUILT_FOR_TORCH, VERSION as __version__, library
from ._stats import ChannelStats, Counters, PortStats, TransportStats, require_transport, stats

_register()


def make_group(
    store: _Any, rank: int, size: int, timeout: _datetime.timedelta = _datetime.timedelta(minutes=30)
) -> _Any:
    """A group of ours, a ProcessGroup that torch.distributed does not know of: for libraries that make their groups
    without init_process_group, as torchft's ProcessGroupWrapper._create_pg does. Blocks until all ranks have come, at
    most for `timeout`, which is also that of its operations. Needs PyTorch 2.6 or later.
    """
    if _is_old():
        _refuse()
    return _load_groups().ProcessGroup(store, rank, size, timeout)


__all__ = [
    "Availability",
    "BUILT_FOR_TORCH",
    "ChannelStats",
    "Counters",
    "PortStats",
    "TransportStats",
    "__version__",
    "available",
    "library",
    "make_group",
    "require_transport",
    "stats",
]
