"""What PyTorch asks a group, or a group's backend, besides collectives. Ours is both, so it has the methods of
c10d::ProcessGroup and of c10d::Backend; the C++ base has no backend that could answer. Texts are those of PyTorch."""

import datetime
from typing import Any, Callable, List, NoReturn

import torch
from gloo_bypass_autoload import NAME

from ._calls import c10d
from ._movement import Movement
from ._old_torch import set_known
from ._work import milliseconds


def _unsupported(what: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *unused: Any, **more: Any) -> NoReturn:
        raise RuntimeError(f"Backend {NAME} does not support {what}")

    return refuse


def _only_nccl(what: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *unused: Any, **more: Any) -> NoReturn:
        raise RuntimeError(f"Only ProcessGrouppNCCL supports {what}, but got {NAME} backend.")

    return refuse


def _ignored(self: Any, *unused: Any, **more: Any) -> None:
    pass


class Answers(Movement):
    _group_store: Any
    _request: Any
    options: Any
    _name: str
    _description: str

    # --- names ---

    def getBackendName(self) -> str:
        # Also where a program has said "gloo": DDP's logger would look for PyTorch's own Gloo in a group of that name.
        return NAME

    name = _get_backend_name = getBackendName

    # PyTorch's own names come from a backend in C++, which this group may not have.
    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name
        set_known(self.options, group_name=name)
        for _, backend in self._others.values():
            set_known(getattr(backend, "options", None), group_name=name)

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    _set_group_name = _set_group_uid = setGroupName
    _set_group_desc = setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    # --- who and where ---

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    getRank, getSize = rank, size

    def get_group_store(self) -> Any:
        return self._group_store

    @property
    def _device_types(self) -> List[torch.device]:
        own = [] if self._request is None else self._request.own_devices()
        return [torch.device(kind) for kind in dict.fromkeys([*(own or ["cpu"]), *self._others])]

    def _get_backend(self, device: Any) -> Any:
        kind = torch.device(device).type
        return self._others[kind][1] if kind in self._others else self

    get_backend = _get_backend

    def _backend_id(self, backend_type: Any) -> int:
        for kind, backend in self._others.values():
            if kind == backend_type and hasattr(backend, "_id"):
                return int(backend._id())
        return int(self._id())

    # --- what it can do ---

    # A group that can be split is handed to backends in C++ (split_from), which take no ProcessGroup.
    supports_splitting = False
    supports_coalescing = supports_time_estimate = supports_shrinking = supports_window = False
    use_pg_for_symm_mem_rendezvous = False

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    allocate_tensor = _unsupported("allocateTensor")
    mem_allocator = property(_unsupported("getMemAllocator"))
    memory_stats = _unsupported("getMemoryStats")
    suspend = _unsupported("suspend")
    resume = _unsupported("resume")
    shrink = _unsupported("shrink")
    new_window = _unsupported("new_window")
    register_abort_hook = _unsupported("registerAbortHook")
    unregister_abort_hook = _unsupported("unregisterAbortHook")
    # PyTorch's C++ would take a hook and never call it.
    register_pre_hook = _unsupported("registerPreHook")
    unregister_pre_hook = _unsupported("unregisterPreHook")
    register_post_hook = _unsupported("registerPostHook")
    unregister_post_hook = _unsupported("unregisterPostHook")
    _register_on_completion_hook = _only_nccl("onCompletion hook")
    _wait_for_pending_works = _only_nccl("waitForPendingWorks")
    _enable_collectives_timing = _add_ephemeral_timeout = _set_sequence_number_for_group = _ignored
    eager_connect_single_device = setUsePgForSymmMemRendezvous = _ignored

    def _has_hooks(self) -> bool:
        return False

    def get_error(self) -> Any:
        return c10d.ErrorType.SUCCESS

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # --- timeouts ---

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout, self._timeout_ms = timeout, milliseconds(timeout)
        self.options._timeout = timeout
        for _, backend in self._others.values():
            if hasattr(backend, "set_timeout"):
                backend.set_timeout(timeout)

    _set_default_timeout = setTimeout = set_timeout
