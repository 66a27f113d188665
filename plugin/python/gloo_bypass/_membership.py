"""Groups that come from others: split, merged with groups of other programs, and reconfigured, as PyTorch 2.14 has it
for programs that lose ranks and get new ones."""

import copy
import datetime
from typing import Any, List, NoReturn, Optional, Tuple

import torch.distributed as dist
from gloo_bypass_autoload import NAME, torch_release

from . import _other_backends
from ._answers import Answers
from ._old_torch import set_known
from ._work import Work, milliseconds

# PyTorch's own order the ranks of a part, and from 2.14 on keep the list's order.
_SORTS = torch_release() < (2, 14)
_UNCONNECTED = -1  # the uuid of a group before its first reconfigure()


class Unconnected:
    """In place of a _door.Group, until reconfigure() makes one."""

    def _refuse(self, *unused: Any) -> NoReturn:
        raise RuntimeError("gloo_bypass: this group has no ranks yet: call reconfigure() first")

    run = all_reduce = start = send = receive = _refuse

    def busy(self) -> bool:
        return False

    def abort(self) -> None:
        pass

    def drain(self, limit_ms: int) -> None:
        pass

    close = abort


def _rank_in(handle: str) -> int:
    """The rank in the program, which a handle names."""
    words = handle.split(":", 4)
    if len(words) != 5 or words[0] != NAME or not words[3].isdigit():
        raise RuntimeError(f"Invalid {NAME} reconfigure handle: {handle}")
    return int(words[3])


def _ordered(handles: Any) -> Tuple[List[str], List[int]]:
    """One a rank, and their ranks in the program. A set leaves the order to the backend."""
    ordered = sorted(handles) if isinstance(handles, (set, frozenset)) else list(handles)
    if not ordered:
        raise RuntimeError("Reconfigure requires at least one handle")
    if len(set(ordered)) != len(ordered):
        raise RuntimeError("Reconfigure handles must be unique")
    return ordered, [_rank_in(handle) for handle in ordered]


class Membership(Answers):
    _splits: int
    _request: Any
    _uuid: int = _UNCONNECTED
    _global_ranks: List[int]
    supports_reconfigure = True

    def _connect(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        raise NotImplementedError

    @classmethod
    def _made(
        cls, store: Any, rank: int, size: int, timeout: datetime.timedelta, names: Tuple[str, str], *more: Any
    ) -> Any:
        group: Any = cls(store, rank, size, timeout, *more)
        group._set_group_name(names[0])
        group._set_group_desc(names[1])
        return group

    def split_group(
        self,
        ranks: List[int],
        timeout: Optional[datetime.timedelta] = None,
        opts: Any = None,
        group_name: Optional[str] = None,
        group_desc: Optional[str] = None,
        device_types: Any = None,
    ) -> Any:
        """A group of these ranks; None elsewhere. All ranks of this group call it."""
        if not ranks:
            raise RuntimeError(
                "Split ranks cannot be empty. Please provide a non-empty list of ranks to split the group."
            )
        if len(ranks) > self._size:
            raise RuntimeError(
                "the split group's size should be no larger than the world_size set by init_process_group"
            )
        if len(set(ranks)) != len(ranks):
            raise RuntimeError(
                "Split ranks should not have duplicates. Please provide a list of unique ranks to split the group."
            )
        if _SORTS:
            ranks = sorted(ranks)
        number = self._splits
        self._splits += 1
        store = dist.PrefixStore(f"split-{number}-{'-'.join(map(str, ranks))}/", self._own_store)
        names = group_name or f"{self.group_name}:split:{number}", group_desc or f"{self.group_desc}:split:{number}"
        limit = timeout or (self._timeout if opts is None else opts._timeout)
        source, device = _other_backends.split_source(self), self.bound_device_id
        if self._rank not in ranks:
            if source is not None:
                source.perform_nocolor_split(device)
            return None
        part = self._made(
            store, ranks.index(self._rank), len(ranks), limit, names, self._request_of(ranks, names[0], opts), self
        )
        if source is not None:
            part._get_backend(device).eager_connect_single_device(device)
        return part

    splitGroup = split_group

    def _request_of(self, ranks: List[int], name: str, opts: Any) -> Any:
        """As if the program had asked for a group of these ranks like this one."""
        request = copy.copy(self._request)
        if request is not None:
            known = self._global_ranks or range(self._size)
            request.ranks, request.group_name, request.options = [known[rank] for rank in ranks], name, opts
            request.device_id, request.enable_reconfigure = self.bound_device_id, False
        return request

    def merge_remote_group(
        self,
        store: Any,
        size: int,
        timeout: datetime.timedelta = datetime.timedelta(minutes=30),
        group_name: Optional[str] = None,
        group_desc: Optional[str] = None,
    ) -> Any:
        """A group of `size` ranks: this one, and all others that call it with the same store. Ranks are numbered in the
        order in which they come."""
        rank = store.add("mergeGroupRank", 1) - 1
        names = group_name or f"{self.group_name}:merge", group_desc or f"{self.group_desc}:merge"
        return self._made(store, rank, size, timeout, names)

    # As of a c10d::Backend:

    def split(self, store: Any, ranks: List[int], opts: Any) -> Any:
        if self._rank not in ranks:
            return None
        names = opts.group_name, self.group_desc
        return self._made(store, ranks.index(self._rank), len(ranks), opts._timeout, names)

    def merge(self, store: Any, opts: Any, rank: int, size: int) -> Any:
        return self._made(store, rank, size, opts._timeout, (opts.group_name, self.group_desc))

    def get_reconfigure_handle(self) -> str:
        """Names this rank in its group's next reconfigure()."""
        known = self._global_ranks
        in_program = known[self._rank] if self._rank < len(known) else self._rank
        return f"{NAME}:{self._rank}:{self._uuid}:{in_program}:"

    def reconfigure(self, opts: Any) -> Work:
        """The ranks of these handles are the group from now on; their order is the list's. Each of them calls it, with
        the same uuid, which is new. An error leaves the group as it is."""
        if self._others:
            raise RuntimeError("ProcessGroup reconfigure APIs do not support process groups with multiple backends.")
        handles, global_ranks = _ordered(opts.handles)
        own = self.get_reconfigure_handle()
        if own not in handles:
            raise RuntimeError(f"Local {NAME} reconfigure handle is not part of the new communicator")
        store = dist.PrefixStore(f"reconfigure/{opts.uuid}", self._group_store)
        rank = handles.index(own)
        # What ranks have published under a uuid is not to be read again.
        if rank == 0 and bytes(store.compare_set("claimed", "", own)) != own.encode():
            raise RuntimeError(
                f"{NAME} reconfigure uuid {opts.uuid} was already used; each reconfigure() requires a unique uuid"
            )
        before = self._door
        self._connect(store, rank, len(handles), opts.timeout or self._timeout)
        # The time for meeting is not that of the operations to come, whose default the new group has from it.
        self._timeout_ms = self._timeout_ms or milliseconds(self._timeout)
        before.close()
        self._uuid = opts.uuid
        self._global_ranks = global_ranks
        set_known(self.options, global_ranks_in_group=global_ranks)
        return Work((), [])
