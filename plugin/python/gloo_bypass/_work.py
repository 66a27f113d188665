"""What an asynchronous call returns, and the threads that complete futures."""

import datetime
import os
import threading
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed

from . import _door, _profiling
from ._old_torch import KEEPS_WORKS, let_go, look_after
from ._pipeline import Arrival

_NO_LIMIT = datetime.timedelta(0)


def milliseconds(limit: Optional[datetime.timedelta]) -> int:
    """0: no limit of its own, as the door has it. PyTorch says so with nothing, zero, or -1 ms."""
    if limit is None:
        return 0
    return max(0, round(limit.total_seconds() * 1000)) or int(limit > _NO_LIMIT)


class Work(torch.distributed.Work):  # type: ignore[misc]
    """Operations that were started together, and what remains to do when they have ended."""

    def __init__(
        self,
        operations: Sequence[Any],
        result: List[torch.Tensor],
        finish: Optional[Callable[[], None]] = None,
        event: Optional[_profiling.Event] = None,
        arrivals: Sequence[Arrival] = (),
    ) -> None:
        super().__init__()
        self._operations = operations
        self._arrivals = arrivals  # of results in a device's memory
        self._result = result
        self._finish = finish
        self._lock = threading.Lock()
        self._future: Optional[torch.futures.Future[List[torch.Tensor]]] = None
        self._event = event
        if event is not None:
            when_all_are_done(operations, event.end)
        if not KEEPS_WORKS:
            look_after(self)
            when_all_are_done(operations, let_go)
        self._fault: Optional[BaseException] = None  # of taking results back
        #: Copies to a device's memory belong on the stream of whoever waits.
        self._settles_alone = finish is not None and not arrivals and all(one.is_cpu for one in tensors_in(result))
        if self._settles_alone:
            when_all_are_done(operations, self._settle_unasked)

    def __del__(self) -> None:
        """Nobody will ask any more, and a small operation that has begun waits for somebody who does."""
        for operation in getattr(self, "_operations", ()):
            operation.done()

    def _await(self) -> None:
        """Until all have ended; raises what failed."""
        for operation in self._operations:
            operation.wait(0)

    def _settle(self) -> None:
        """Once all have ended: raises what failed, else copies results to where they belong."""
        try:
            self._await()
        finally:
            if self._event is not None:
                self._event.end()
        with self._lock:
            for arrival in self._arrivals:
                arrival.catch_up()
            if self._finish is not None:
                self._finish()
                self._finish = None
                for arrival in self._arrivals:  # whoever waits later, on another stream, waits for these copies too
                    arrival.event = arrival.device.now()

    def _settle_unasked(self) -> None:
        """Programs ask is_completed(), or nothing at all."""
        if self.exception() is None:
            try:
                self._settle()
            except Exception as fault:
                self._fault = fault

    def wait(self, timeout: datetime.timedelta = _NO_LIMIT) -> bool:
        if timeout:
            limit = milliseconds(timeout)
            for operation in self._operations:
                if limit and not operation.wait(limit):
                    raise torch.distributed.DistNetworkError(f"gloo_bypass: wait() took longer than {limit} ms")
        self._settle()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not all(operation.done() for operation in self._operations):
            return False
        return self._finish is None or not self._settles_alone or self.exception() is not None

    def exception(self) -> Optional[BaseException]:
        failures = [operation.failure() for operation in self._operations]
        return next((failure for failure in failures if failure is not None), self._fault)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def source_rank(self) -> int:
        return int(self._operations[0].peer())

    _source_rank = source_rank

    def _settled_result(self, unused: Any) -> List[torch.Tensor]:
        self._settle()
        return self._result

    def _complete_when_done(self, future: "torch.futures.Future[None]") -> None:
        def complete() -> None:
            future.set_result(None)

        when_all_are_done(self._operations, complete)

    def get_future(self) -> "torch.futures.Future[List[torch.Tensor]]":
        with self._lock:
            if self._future is not None:
                return self._future
            ended: torch.futures.Future[None] = torch.futures.Future(devices=devices_of(self._result))
            # then(), not set_exception(): only an exception in a callback is one for C++, as DDP's reducer is.
            future = self._future = ended.then(self._settled_result)
        self._complete_when_done(ended)  # perhaps here and now, and _settle() needs the lock
        return future


class Message(Work):
    """A send or a receive. Who waits for it waits for at most the group's timeout; then the group ends, since what was
    posted would go on using the tensor."""

    def __init__(self, operation: Any, limit_ms: int, abort: Callable[[], None], what: str, *more: Any) -> None:
        self._limit_ms, self._abort, self._what = limit_ms, abort, what
        super().__init__((operation,), *more)  # the operation may have ended

    def _await(self) -> None:
        if self._operations[0].wait(self._limit_ms):
            return
        self._abort()
        raise torch.distributed.DistNetworkError(
            f"gloo_bypass: {self._what} did not end in {self._limit_ms} ms, the group's timeout, and the group has "
            "ended with it: is the other rank still computing? init_process_group(timeout=...) gives it longer"
        )


def tensors_in(result: Sequence[Any]) -> List[torch.Tensor]:
    return [tensor for each in result for tensor in (each if isinstance(each, (list, tuple)) else (each,))]


def devices_of(result: Sequence[Any]) -> List[torch.device]:
    """That a future has to know of, so that streams which use its value wait for it. `result`: tensors, or lists."""
    tensors = tensors_in(result)
    if all(tensor.is_cpu for tensor in tensors):
        return []
    return list({tensor.device for tensor in tensors if tensor.is_cuda})


def when_all_are_done(operations: Sequence[Any], act: Callable[[], None]) -> None:
    waiting = len(operations)
    if waiting == 0:
        act()
        return
    lock = threading.Lock()

    def one(unused: Any) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            last = waiting == 0
        if last:
            act()

    for operation in operations:
        operation.on_done(one)


class _Done(Work):
    """Of a call that has ended before it returned."""

    def __init__(self) -> None:
        super().__init__((), [])

    def wait(self, timeout: datetime.timedelta = _NO_LIMIT) -> bool:
        return True


#: Lives as long as the process, so that C++ may keep it.
DONE: Work = _Done()


class Joined(Work):
    """Has ended when all of these have."""

    def __init__(
        self, works: Sequence[Work], result: List[torch.Tensor], event: Optional[_profiling.Event] = None
    ) -> None:
        self._works = works
        operations = [operation for work in works for operation in work._operations]
        arrivals = [arrival for work in works for arrival in work._arrivals]
        copies = any(work._finish is not None for work in works)
        super().__init__(operations, result, self._settle_all if copies else None, event, arrivals)

    def _await(self) -> None:
        for work in self._works:  # a message has a limit of its own
            work._await()

    def _settle_all(self) -> None:
        for work in self._works:
            work._settle()


def serve() -> None:
    """One more thread that completes futures and asks stores."""
    threading.Thread(target=_door.serve, args=(serve,), name="gloo_bypass", daemon=True).start()


def _serve_after_fork() -> None:
    _door.after_fork()
    # The next group of the child needs a thread of the child's.
    global _serving
    _serving = False


_serving = False


def ensure_serving() -> None:
    global _serving
    if not _serving:
        serve()  # first, since it may fail
        _serving = True


os.register_at_fork(after_in_child=_serve_after_fork)
