"""Kernel-bypass transports for PyTorch's Gloo: the import makes GLOO_DEVICE_TRANSPORT=DPDK, =UDP and =RDMA known.

    import gloo_bypass                      # before init_process_group
    dist.init_process_group("gloo")         # with GLOO_DEVICE_TRANSPORT=DPDK, UDP or RDMA

    dist.init_process_group("bypass")       # our own collectives, over any of them

    gloo_bypass.available()                 # which transports work here, and why the others do not
    gloo_bypass.stats()                     # counters of what this process has sent and received
    gloo_bypass.require_transport()         # an exception unless bytes went over GLOO_DEVICE_TRANSPORT's

Every setting is a GLOO_BYPASS_* variable; docs/configuration.md lists them. `python3 -m gloo_bypass` prints what
available() returns; its --listen and --probe say whether UDP goes between two hosts.
"""

from gloo_bypass_autoload import register as _register

from ._availability import Availability, available
from ._library import BUILT_FOR_TORCH, VERSION as __version__, library
from ._stats import ChannelStats, Counters, PortStats, TransportStats, require_transport, stats

_register()

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
    "require_transport",
    "stats",
]
