"""How the process group runs an operation: options, limits, works."""

import datetime
import functools
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from . import _devices, _pipeline, _profiling, _tensors as of, _work
from ._old_torch import caller_waits, let_go
from ._pipeline import Arrival, Block, Plan, carry, carry_on_callers_stream
from ._queue import Queue
from ._tensors import ArgumentError, Staging
from ._work import DONE, Work, milliseconds

c10d = torch._C._distributed_c10d
UNSET = c10d.AllreduceOptions().timeout
Tensors = List[torch.Tensor]
Blocks = Tuple[int, ...]
SLOTS = _pipeline.Slots()
_LONGEST_PAUSE_S = 0.1
_may_be_a_graphs_input = getattr(c10d, "_allow_inflight_collective_as_graph_input", lambda: False)  # since 2.7


def options_of(kind: Any, options: Any, **fields: Any) -> Any:
    """`options` if it is of that kind; else one with these fields, for PyTorch's short overloads. Some of these have
    the timeout in its place."""
    if isinstance(options, kind):
        return options
    if isinstance(options, datetime.timedelta):
        fields = {name: value for name, value in fields.items() if value is not options}
        fields["timeout"] = options
    elif options is not None and not any(value is options for value in fields.values()):
        raise TypeError(f"gloo_bypass: {kind.__name__} is needed, not {type(options).__name__}")
    made = kind()
    for name, value in fields.items():
        if value is not None:
            setattr(made, name, value)
    return made


def given(positional: Any, *named: Any) -> Any:
    """What PyTorch's overloads name differently, or have where others have options: by name, if it has one."""
    for one in named:
        if one is not None:
            return one
    return positional


def only(what: str, role: str, lists: Sequence[Any]) -> Any:
    if len(lists) != 1:
        raise ArgumentError(f"gloo_bypass: {what} requires a single-element {role} list, not {len(lists)}")
    return lists[0]


def listed(tensors: Any) -> Tensors:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def check_numel(what: str, tensor: torch.Tensor, wanted: int) -> None:
    if tensor.numel() != wanted:
        raise ArgumentError(
            f"gloo_bypass: invalid tensor size: {what} has {tensor.numel()} elements, it needs {wanted}"
        )


def check_pairs(what: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    if not inputs:
        raise ArgumentError(f"gloo_bypass: {what} requires non-empty input tensor list")
    if len(outputs) != len(inputs):
        raise ArgumentError(
            f"gloo_bypass: {what} requires input/output tensor lists to have the same length, not {len(inputs)} and "
            f"{len(outputs)}"
        )


def await_key(store: Any, key: str, timeout_ms: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Looks again and again: a wait of TCPStore's does not see Ctrl-C and holds a lock, which the program needs again
    once it has given up; several short ones would print a warning each."""
    end = time.monotonic() + timeout_ms / 1000
    pause = 0.001
    while not store.check([key]):
        if time.monotonic() >= end or not is_wanted():
            raise RuntimeError(f"{key} did not come in {timeout_ms} ms")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class Calls(dist.ProcessGroup):  # type: ignore[misc]
    _rank: int
    _size: int
    _door: Any
    _run: Any
    _timeout_ms: int  # of a call without its own; 0: the group's
    _sequence: int
    _says: str  # the backend, as the program names it
    _others: Dict[str, Tuple[Any, Any]]  # by device: backends that have its tensors
    _beside: Any  # a group of PyTorch's own of these, for what a backend has no method for
    _queue: Queue
    _devices: Dict[torch.device, _pipeline.Device]
    _coalesced_works: Optional[List[Work]] = None  # what began since _start_coalescing

    def _limit(self, options: Any) -> int:
        timeout = options.timeout
        return self._timeout_ms if timeout == UNSET else milliseconds(timeout)

    def _other(self, tensor: torch.Tensor) -> Any:
        """Another backend, if it has this tensor's device."""
        if not self._others:
            return None
        entry = self._others.get(tensor.device.type)
        return None if entry is None else entry[1]

    def _check_root(self, what: str, options: Any) -> None:
        if not 0 <= options.rootRank < self._size:
            raise ArgumentError(
                f"gloo_bypass: {what}: invalid root rank {options.rootRank} in a group of {self._size} ranks"
            )

    def _check_number(self, what: str, role: str, tensors: Sequence[torch.Tensor]) -> None:
        if len(tensors) != self._size:
            raise ArgumentError(
                f"gloo_bypass: {what}: invalid {role} tensor list: Incorrect {role} list size {len(tensors)}. "
                f"{role.capitalize()} list size should be {self._size}, the number of ranks"
            )

    def _start(
        self,
        kind: int,
        staging: Staging,
        options: Any,
        inputs: Blocks,
        outputs: Blocks,
        result: Tensors,
        reduction: int = 0,
        root: int = 0,
        uneven: bool = False,
        event: Optional[_profiling.Event] = None,
    ) -> Work:
        """DONE, if the call is synchronous."""
        let_go()
        self._sequence += 1
        event = event or _profiling.event_of(self._says, kind, staging.tensors)
        is_synchronous = not getattr(options, "asyncOp", True) or caller_waits()
        if inputs and outputs and inputs is not outputs:
            inputs = staging.apart(inputs, outputs, self._rank)
        settings = (kind, staging.element, reduction, root, uneven, self._limit(options))
        if staging.device is not None:
            return self._start_on_device(settings, staging, inputs, outputs, result, event, is_synchronous)
        queued = self._queue.pending
        if is_synchronous and not queued:
            try:
                self._run(*settings, inputs, outputs)
            finally:
                if event is not None:
                    event.end()
            staging.copy_back()
            return DONE
        operation: Any
        if queued:
            run = functools.partial(self._run, *settings, inputs, outputs)
            operation = self._queue.submit(run, staging.kept)
        else:
            operation = self._door.start(*settings, inputs, outputs, staging.kept)
        work = Work((operation,), result, staging.copy_back if staging.copies else None, event)
        return self._ended(work) if is_synchronous else self._begun(work)

    def _begun(self, work: Work) -> Work:
        if self._coalesced_works is not None:
            self._coalesced_works.append(work)
        if _may_be_a_graphs_input():
            # As PyTorch's C++ collectives do: a compiled function that is given the tensor waits for the work.
            for tensor in _work.tensors_in(work._result):
                c10d._register_work(tensor, work)
        return work

    def _ended(self, work: Work) -> Work:
        work.wait()
        return DONE

    # --- tensors of a device, without a backend of their own ---

    def _start_on_device(
        self,
        settings: Tuple[Any, ...],
        staging: Staging,
        inputs: Blocks,
        outputs: Blocks,
        result: Tensors,
        event: Optional[_profiling.Event],
        is_synchronous: bool,
    ) -> Work:
        device = self._device(staging.device)
        plan = self._plan(settings, staging, inputs, outputs)
        run_now = self._run  # of the ranks of now: reconfigure() may change them
        # What ranks compare of each piece, so that those with other lengths learn of it: c_api.h's whole_count. Nothing
        # where there is one: another rank's tensor may be of the host.
        whole = (plan.count * (self._size if settings[0] == of.REDUCE_SCATTER else 1),) if len(plan) > 1 else ()

        def run(sources: Blocks, targets: Blocks) -> None:
            run_now(*settings, sources, targets, *whole)

        if is_synchronous and not self._queue.pending:
            try:
                if len(plan) == 1:
                    carry_on_callers_stream(device, plan, SLOTS, run)
                    if settings[0] == of.ALL_REDUCE:
                        self._pin(device)
                else:
                    device.catch_up(carry(device, plan, device.now(), SLOTS, run))
            finally:
                if event is not None:
                    event.end()
            staging.copy_back()
            return DONE
        arrival, began = Arrival(device), device.now()

        def carry_behind() -> None:
            arrival.event = carry(device, plan, began, SLOTS, run)

        finish = staging.copy_back if staging.copies else None
        work = Work((self._queue.submit(carry_behind, (self, staging.kept)),), result, finish, event, (arrival,))
        return self._ended(work) if is_synchronous else self._begun(work)

    def _device(self, device: Any) -> _pipeline.Device:
        if device not in self._devices:
            self._devices[device] = _devices.make(device)
        return self._devices[device]

    def _pin(self, device: _pipeline.Device) -> None:
        """For the short way of what is one piece, at all ranks, from the next one on."""
        memory = device.memory_for_short()
        if memory is not None:
            self._door.pin(device.address(memory), _pipeline.LEAST_PIECE_BYTES, memory)

    def _plan(self, settings: Tuple[Any, ...], staging: Staging, inputs: Blocks, outputs: Blocks) -> Plan:
        kind, uneven = settings[0], settings[4]
        sources = [Block(*block) for block in staging.blocks_on_device(inputs)]
        targets = [Block(*block) for block in staging.blocks_on_device(outputs)]
        # An all-to-all may have even splits here and others elsewhere; the others' lists are alike at all ranks.
        whole = uneven or kind == of.ALL_TO_ALL or len({block.elements for block in [*sources, *targets]}) > 1
        breadth = 1 if kind in (of.ALL_REDUCE, of.REDUCE, of.BROADCAST) else self._size + 1
        return Plan(sources, targets, inputs == outputs, staging.element_width, 0 if whole else breadth)

    def _one_event(self, kind: int, inputs: Tensors) -> Tuple[Optional[_profiling.Event], Optional[_profiling.Event]]:
        """Of a coalesced call, and of each of its parts."""
        if not _profiling.enabled():
            return None, None
        return _profiling.Event(f"{self._says}:{_profiling.TITLES[kind]}", inputs), _profiling.SILENT

    def _coalesced(
        self, what: str, kind: int, start: Any, outputs: Sequence[Any], inputs: Tensors, opts: Any, result: Tensors
    ) -> Any:
        """Starts one operation for each output and its input: one work and one event for all."""
        check_pairs(what, outputs, inputs)
        event, part = self._one_event(kind, inputs)
        works = [start(*pair, opts, part) for pair in zip(outputs, inputs)]
        return self._join(works, result, event)

    def _join(self, works: Sequence[Work], result: Tensors, event: Optional[_profiling.Event] = None) -> Any:
        """One for all of them."""
        started = [work for work in works if work is not DONE]
        if not started and event is not None:
            event.end()
        return _work.Joined(started, result, event) if started else DONE
