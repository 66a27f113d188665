"""Backends of other devices beside ours, as "cpu:bypass,cuda:nccl" asks for them; made as PyTorch makes them."""

import datetime
from typing import Any, Dict, Tuple

import torch
import torch.distributed as dist
from gloo_bypass_autoload import NAME, Request
from torch.distributed import distributed_c10d as c10d

from ._old_torch import set_known


def split_source(whole: Any) -> Any:
    """The backend whose communicator groups of some of its ranks are split from: at all ranks, since NCCL needs all."""
    return c10d._get_split_source(whole) if whole is not None and whole.bound_device_id else None


def _nccl(request: Request, whole: Any, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    nccl = getattr(dist, "ProcessGroupNCCL", None)
    if nccl is None:
        raise RuntimeError("gloo_bypass: this PyTorch has no NCCL, which " + repr(request.backend) + " asks for")
    options = request.options if isinstance(request.options, nccl.Options) else nccl.Options()
    options._timeout = timeout
    set_known(options, global_ranks_in_group=request.ranks, group_name=request.group_name)
    if (source := split_source(whole)) is not None:
        options.split_from, options.split_color = source, c10d._process_group_color(request.ranks)
    backend = nccl(store, rank, size, options)
    backend._set_sequence_number_for_group()
    return backend


def _gloo(request: Request, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    backend = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    backend._set_sequence_number_for_group()
    return backend


def _plugin(name: str, request: Request, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is None:
        raise RuntimeError(f"gloo_bypass: {request.backend!r}: there is no backend {name!r} to go beside {NAME!r}")
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, size, timeout)
    options = torch._C._distributed_c10d._DistributedBackendOptions()
    options.store, options.group_rank, options.group_size, options.timeout = store, rank, size, timeout
    options.group_id, options.global_ranks_in_group = request.group_name, request.ranks
    return plugin.creator_fn(options, request.options)


def make(
    request: Request, whole: Any, store: Any, rank: int, size: int, timeout: datetime.timedelta
) -> Dict[str, Tuple[Any, Any]]:
    """By device: its type of backend, and the backend. `whole`: the group that this one is a part of; None: the default
    group, as PyTorch has it."""
    if whole is None and dist.is_initialized():
        whole = c10d._get_default_group()
    made: Dict[str, Tuple[Any, Any]] = {}
    kinds = dist.ProcessGroup.BackendType
    for device, name in request.other_devices().items():
        own = dist.PrefixStore(f"{device}-{name}/", store)
        if name == "nccl":
            made[device] = kinds.NCCL, _nccl(request, whole, own, rank, size, timeout)
        elif name == "gloo":
            made[device] = kinds.GLOO, _gloo(request, own, rank, size, timeout)
        else:
            made[device] = kinds.CUSTOM, _plugin(name, request, own, rank, size, timeout)
    return made
