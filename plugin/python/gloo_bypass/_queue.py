"""Operations of one group that wait for copies from a device: a thread runs them one after the other. While there are
any, the group's other operations go behind them, so that all ranks run all of them in the same order."""

import collections
import functools
import os
import threading
from typing import Any, Callable, Deque, List, Optional, Tuple

from . import _door

#: How long the thread waits for the next operation before it ends.
IDLE_S = 10.0
#: How long a group's end waits for operations, which have failed by then.
_LAST_OPERATIONS_S = 5.0


class Ticket:
    """What a queue returns for an operation; has the methods of _door.Operation."""

    def __init__(self, abort: Callable[[], None]) -> None:
        self._changed = threading.Condition()
        self._done = False
        self._failure: Optional[BaseException] = None
        self._callbacks: List[Callable[[Any], None]] = []
        self._abort = abort

    def wait(self, timeout_ms: int) -> bool:
        try:
            with self._changed:
                limit_s = min(timeout_ms / 1000, threading.TIMEOUT_MAX) if timeout_ms else None
                if not self._changed.wait_for(self.done, limit_s):
                    return False
        except BaseException:  # Ctrl-C ends the group, as it does within _door
            self._abort()
            raise
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return True

    def done(self) -> bool:
        return self._done

    def failure(self) -> Optional[BaseException]:
        return self._failure

    def peer(self) -> int:
        return -1

    def on_done(self, callable: Callable[[Any], None]) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(callable)
                return
        callable(self)

    def end(self, failure: Optional[BaseException]) -> None:
        with self._changed:
            self._failure, self._done = failure, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        # Not on the queue's thread: they may start operations of the group, and wait for them.
        for callback in callbacks:
            _door.post(functools.partial(self._call, callback))

    def _call(self, callback: Callable[[Any], None], unused: Any) -> None:
        callback(self)


class Queue:
    """Thread: any may submit."""

    def __init__(self, abort: Callable[[], None]) -> None:
        self._abort = abort
        self._changed = threading.Condition()
        self._waiting: Deque[Tuple[Callable[[], None], Any, Ticket]] = collections.deque()
        self._thread: Optional[threading.Thread] = None
        self._closed = False
        self._process = os.getpid()
        self.pending = 0  # operations that were submitted and have not ended

    def submit(self, run: Callable[[], None], kept: Any) -> Ticket:
        """`kept` lives until it has run."""
        ticket = Ticket(self._abort)
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="gloo_bypass copies", daemon=True)
                thread.start()  # first, since it may fail: it waits for what follows
                self._thread = thread
            self._waiting.append((run, kept, ticket))
            self.pending += 1
            self._changed.notify()
        return ticket

    def close(self) -> None:
        """Once the group is closed, so that operations end. Python must not end before the thread: it would come back
        from C++ to no interpreter."""
        if self._process != os.getpid():
            return  # forked: the thread is the parent's, and may hold the lock here for ever
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_OPERATIONS_S)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed, IDLE_S)
                if not self._waiting:
                    self._thread = None
                    return
                run, kept, ticket = self._waiting.popleft()
            failure: Optional[BaseException] = None
            try:
                run()
            except BaseException as error:
                failure = error.with_traceback(None)  # which holds tensors
            del run, kept
            with self._changed:
                self.pending -= 1
            ticket.end(failure)
            del ticket
