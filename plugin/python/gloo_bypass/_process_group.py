"""torch.distributed's ProcessGroup over our collectives: the backend "bypass".

A subclass in Python, since PyTorch's C++ classes change with each release. What its methods do is little: they see that
tensors are what the operation needs (_reductions.py, _movement.py), and hand addresses to _door, which waits with the
GIL released. A synchronous call runs on the caller's thread, an asynchronous one on the group's own.

"cpu:bypass,cuda:nccl": PyTorch takes the first process group that a creator returns for the whole, so this one makes
the other devices' backends itself (_other_backends.py), registers them with its C++ base, and hands them their tensors.
"""

import contextlib
import ctypes
import datetime
import multiprocessing.util
import os
import sys
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from gloo_bypass_autoload import NAME, Request

from . import _door, _library, _other_backends, _short_way, _stats, _work
from ._calls import await_key, c10d
from ._membership import Membership, Unconnected
from ._old_torch import call_known, let_go, set_known
from ._queue import Queue
from ._tensors import ArgumentError
from ._work import milliseconds

#: How long a group's end waits for what this rank has started and peers may still need. Not if an exception ends it, so
#: that the others learn of it at once.
_LONGEST_DRAIN_MS = 60_000
_asked_in = 0  # the process
_child_failed = False
_NAN_CHECK, _OFF = "TORCH_DIST_NAN_CHECK", ("", "0", "false", "no", "n", "off")
_MARK, _SHOWN = "_gloo_bypass_handled", "_gloo_bypass_shown"
_LIVE: "weakref.WeakSet[ProcessGroup]" = weakref.WeakSet()

_door.main_thread(threading.main_thread().ident or 0)
_door.errors(
    (
        dist.DistBackendError,  # ranks called different operations
        dist.DistNetworkError,  # time passed
        dist.DistBackendError,  # a rank ended
        dist.DistBackendError,  # abort
        dist.DistBackendError,
        ArgumentError,
    )
)
_short_way.find()


def _table() -> int:
    function = getattr(_library.handle, "gloo_bypass_collectives_v1", None)
    if function is None:
        raise ImportError(f"gloo_bypass: {_library.library} has no collectives: install the package again")
    function.restype = ctypes.c_void_p
    return int(function() or 0)


def _store_asked(store: Any) -> Callable[[str, str, bytes, int], bytes]:
    """As _door asks: set, get and has."""

    def ask(what: str, key: str, value: bytes, timeout_ms: int) -> bytes:
        if what == "set":
            store.set(key, value)
            return b""
        if what == "has":
            return b"1" if store.check([key]) else b"0"
        await_key(store, key, timeout_ms, _door.is_asked)
        return bytes(store.get(key))

    return ask


def _client_beside(store: Any) -> Any:
    """Another client of the store's server: the program's answers nobody while the program waits in it."""
    try:
        return store.clone()
    except (AttributeError, RuntimeError):  # an older PyTorch; a store that the program has written
        return store


def _aborting(reference: "Callable[[], Optional[ProcessGroup]]") -> Callable[[], None]:
    """Holds no group: programs rely on one that they drop to go at once, with its store."""

    def abort() -> None:
        group = reference()
        if group is not None:
            group.abort()

    return abort


class ProcessGroup(Membership):
    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: datetime.timedelta,
        request: Optional[Request] = None,
        whole: "Optional[ProcessGroup]" = None,
    ) -> None:
        super().__init__(rank, size)
        self._group_store = store
        self._rank, self._size = rank, size
        self._timeout = timeout
        self._handled = _mark_of_what_is_handled()
        self.options = c10d.Backend.Options(NAME, timeout)
        self._timeout_ms = 0  # of a call without its own: the group's
        self._sequence = self._splits = self._barriers = 0
        self._name, self._description = "", "undefined"
        self._request = request
        self._says = NAME if request is None else request.says
        self._global_ranks = [] if request is None else request.ranks
        set_known(self.options, global_ranks_in_group=self._global_ranks)
        self._others, self._beside = {}, None
        self._devices = {}
        self._queue = Queue(_aborting(weakref.ref(self)))
        self._door, self._text = Unconnected(), "not connected yet"
        self._run, self._all_reduce = self._door.run, self._door.all_reduce
        _LIVE.add(self)
        if request is None or not request.enable_reconfigure:
            self._connect(store, rank, size, timeout)
        if request is not None:
            if request.device_id is not None:  # first, since backends take it over
                self.bound_device_id = request.device_id
            self._others = _other_backends.make(request, whole, store, rank, size, timeout)
            self._beside = dist.ProcessGroup(rank, size) if self._others else None
            if request.device_id is not None and self._beside is not None:
                self._beside.bound_device_id = request.device_id
            for device, (kind, backend) in self._others.items():
                for group in (self, self._beside):
                    group._register_backend(torch.device(device), kind, backend)

    def _connect(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        """Meets the other ranks."""
        # torchrun's store outlives a group, and a program may make its group again under the same name: what ranks of
        # the earlier one have published is not to be read.
        number = store.add(f"gloo_bypass/made/{rank}", 1)
        own_store = dist.PrefixStore(f"gloo_bypass/{number}/", store)
        _work.ensure_serving()
        _leave_with_a_child()
        transport = os.environ.get("GLOO_DEVICE_TRANSPORT", "").strip().upper()
        self._door = _door.create(
            _table(),
            rank,
            size,
            milliseconds(timeout),
            transport,
            os.environ.get("GLOO_SOCKET_IFNAME", ""),
            _store_asked(_client_beside(own_store)),
        )
        self._text = self._door.describe()
        _stats.group_is_made(transport, size)
        self._run, self._all_reduce = self._door.run, self._door.all_reduce
        self._devices = {}  # a call of the ranks before may yet use their memory
        self._rank, self._size, self._own_store = rank, size, own_store
        # What they number is in that store, which new ranks know from its beginning.
        self._sequence = self._splits = self._barriers = 0

    def __repr__(self) -> str:
        return f"<gloo_bypass.ProcessGroup, rank {self._rank}: {self._text}>"

    # --- its end ---

    def abort(self) -> None:
        self._door.abort()
        for _, backend in self._others.values():
            call_known(backend, "abort")

    def shutdown(self) -> None:
        _LIVE.discard(self)
        try:
            # An exception ends the group, unless the program was handling it when it made the group.
            error = sys.exc_info()[1]
            if error is None or getattr(error, _MARK, self) is self._handled:
                self._door.drain(_LONGEST_DRAIN_MS)
        finally:
            self._door.close()
            self._queue.close()
        for _, backend in self._others.values():
            call_known(backend, "shutdown", "_shutdown")
        let_go()


def _mark_of_what_is_handled() -> object:
    """The same for all groups that are made while one exception is handled, and no other's."""
    _marked(getattr(sys, "last_value", None), _SHOWN)
    return _marked(sys.exc_info()[1], _MARK)


def _marked(error: Optional[BaseException], name: str) -> object:
    mark = getattr(error, name, object())
    with contextlib.suppress(AttributeError):  # None, or one that takes no attributes
        setattr(error, name, mark)
    return mark


def _leave_with_a_child() -> None:
    """multiprocessing's children, which it asks before they end."""
    global _asked_in
    if multiprocessing.parent_process() is not None and _asked_in != os.getpid():
        _asked_in = os.getpid()
        multiprocessing.util.Finalize(None, _end_of_a_child, exitpriority=0)


def _end_of_a_child() -> None:
    """What it runs has returned, or raised what multiprocessing is about to catch."""
    global _child_failed
    _child_failed = _ends_by_an_exception()
    kind = getattr(multiprocessing.current_process(), "_start_method", None) or multiprocessing.get_start_method()
    if kind == "spawn":
        return  # it ends as any program: threads first, then atexit
    # Threads in collectives end with the groups. Since Python 3.13 multiprocessing has waited for threads by now.
    if _child_failed or getattr(threading, "_SHUTTING_DOWN", False):
        return leave_all()
    # Before, it waits next, and only Python knows how: a pool's must be told.
    wait_for_threads = threading._shutdown  # type: ignore[attr-defined]

    def wait_and_leave() -> None:
        wait_for_threads()
        leave_all()

    threading._shutdown = wait_and_leave  # type: ignore[attr-defined]


def _ends_by_an_exception() -> bool:
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        return bool(error.code)
    # Not one that the program was handling, or a notebook had shown, when it made a group; a forked child has these
    # from its parent.
    shown = getattr(sys, "last_value", None)
    handles, ended = error is not None and not hasattr(error, _MARK), shown is not None and not hasattr(shown, _SHOWN)
    return _child_failed or handles or ended


def leave_all() -> None:
    """Groups that the program has not destroyed, before Python ends under their threads."""
    groups = list(_LIVE)
    _LIVE.clear()
    try:
        if not _ends_by_an_exception():
            end = time.monotonic() + _LONGEST_DRAIN_MS / 1000
            for group in groups:
                group._door.drain(max(0, round(1000 * (end - time.monotonic()))))
    finally:
        for group in groups:
            group._door.close()
            group._queue.close()
        _door.close()


def _warn_of_what_sees_nothing() -> None:
    """PyTorch 2.14 attaches its check to a part of the group that our calls do not go through."""
    if os.environ.get(_NAN_CHECK, "").lower() not in _OFF:
        warnings.warn(
            f"{_NAN_CHECK} is set, and the backend {NAME!r} does not look for NaN", RuntimeWarning, stacklevel=2
        )


def create(options: Any, request: Optional[Request]) -> ProcessGroup:
    """What PyTorch calls, through gloo_bypass_autoload."""
    if options.group_rank == 0:
        _warn_of_what_sees_nothing()
    return ProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, request)
