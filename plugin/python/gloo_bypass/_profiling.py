"""Events for PyTorch's profiler, one an operation, as PyTorch's own process groups make them: "bypass:all_reduce", or
"gloo:all_reduce" where the program said "gloo"."""

import threading
from typing import List, Optional, Sequence

import torch

from . import _tensors as of

#: Whether a profiler records this thread.
enabled = torch._C._autograd._profiler_enabled

TITLES = {
    of.ALL_REDUCE: "all_reduce",
    of.REDUCE: "reduce",
    of.REDUCE_SCATTER: "reduce_scatter",
    of.ALL_GATHER: "all_gather",
    of.GATHER: "gather",
    of.BROADCAST: "broadcast",
    of.SCATTER: "scatter",
    of.ALL_TO_ALL: "all_to_all",
    of.BARRIER: "barrier",
}


class Event:
    """From its making until end()."""

    def __init__(self, title: str, tensors: Sequence[torch.Tensor]) -> None:
        self._lock = threading.Lock()
        self._ended: Optional[torch.futures.Future[None]] = torch.futures.Future()
        record = torch._C._autograd._record_function_with_args_enter(title, *tensors)
        torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, self._ended)

    def end(self) -> None:
        """Once; further calls do nothing."""
        with self._lock:
            ended, self._ended = self._ended, None
            if ended is None:
                return
            # On another thread: by that the profiler knows that an event is asynchronous, as Gloo's are, and may
            # overlap with others of its thread.
            ending = threading.Thread(target=ended.set_result, args=(None,))
            ending.start()
            ending.join()


class _Silent(Event):
    """Of an operation that is a part of another one."""

    def __init__(self) -> None:
        pass

    def end(self) -> None:
        pass


SILENT = _Silent()


def _inputs(kind: int, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Of an operation's tensors, as Staging has them, those that Gloo shows."""
    if kind == of.ALL_REDUCE:
        return list(tensors)
    if kind in (of.SCATTER, of.REDUCE_SCATTER):
        return list(tensors[1:])
    if kind == of.ALL_TO_ALL:
        return list(tensors[: len(tensors) // 2])
    return [] if kind == of.BARRIER else list(tensors[:1])


def event_of(prefix: str, kind: int, tensors: Sequence[torch.Tensor]) -> Optional[Event]:
    """None if nothing profiles."""
    return Event(f"{prefix}:{TITLES[kind]}", _inputs(kind, tensors)) if enabled() else None


def message_event(prefix: str, title: str, tensor: torch.Tensor) -> Optional[Event]:
    return Event(f"{prefix}:{title}", [tensor]) if enabled() else None
