"""Operations that move data and add nothing: gathers, broadcast, scatter, all-to-all, barriers, messages."""

import datetime
from typing import Any, List, Optional, Sequence

import torch

from . import _tensors as of
from ._calls import Tensors, c10d, check_numel, listed, only, options_of
from ._reductions import Reductions
from ._tensors import Staging
from ._work import DONE, Work, for_pytorch

_ANY_PEER = -1
_TAGS = 0xFFFFFFFF


class Movement(Reductions):
    _own_store: Any
    _timeout: datetime.timedelta
    _barriers: int

    # --- from one to all, and back ---

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Any:
        opts = options_of(c10d.BroadcastOptions, opts, rootRank=opts, timeout=timeout)
        tensor = only("broadcast", listed(tensors))
        if (other := self._other(tensor)) is not None:
            return other.broadcast([tensor], opts)
        staging = Staging(of.BROADCAST, [tensor])
        is_root = opts.rootRank == self._rank
        block = staging.block(staging.input(tensor) if is_root else staging.both(tensor))
        blocks = (block, ()) if is_root else ((), block)
        return self._do(of.BROADCAST, staging, opts, *blocks, [tensor], root=opts.rootRank)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs] if outputs else [], [inputs]
        opts = options_of(c10d.GatherOptions, opts, rootRank=opts, timeout=timeout)
        tensor = only("gather", inputs)
        if (other := self._other(tensor)) is not None:
            return other.gather(outputs, inputs, opts)
        is_root = opts.rootRank == self._rank
        targets = only("gather", outputs) if is_root else []
        if is_root:
            self._check_number("the output of gather", targets)
            for target in targets:
                check_numel("an output of gather", target, tensor.numel())
        staging = Staging(of.GATHER, [tensor, *targets])
        source = staging.block(staging.input(tensor))
        blocks = staging.outputs(targets)
        return self._do(of.GATHER, staging, opts, source, blocks, list(targets), root=opts.rootRank)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs] if inputs else []
        opts = options_of(c10d.ScatterOptions, opts, rootRank=opts, timeout=timeout)
        tensor = only("scatter", outputs)
        if (other := self._other(tensor)) is not None:
            return other.scatter(outputs, inputs, opts)
        is_root = opts.rootRank == self._rank
        sources = only("scatter", inputs) if is_root else []
        if is_root:
            self._check_number("the input of scatter", sources)
            for source in sources:
                check_numel("an input of scatter", source, tensor.numel())
        staging = Staging(of.SCATTER, [tensor, *sources])
        blocks = staging.inputs(sources)
        target = staging.block(staging.output(tensor))
        return self._do(of.SCATTER, staging, opts, blocks, target, [tensor], root=opts.rootRank)

    # --- from all to all ---

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: Any = None) -> Any:
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = options_of(c10d.AllgatherOptions, opts, timeout=timeout)
        targets, tensor = only("allgather", outputs), only("allgather", inputs)
        if (other := self._other(tensor)) is not None:
            return other.allgather(outputs, inputs, opts)
        return for_pytorch(self._start_all_gather(targets, tensor, opts))

    def _start_all_gather(self, targets: Tensors, tensor: torch.Tensor, opts: Any) -> Work:
        self._check_number("the output of allgather", targets)
        check_numel("this rank's output of allgather", targets[self._rank], tensor.numel())
        # Which rank has how many elements is the same in all ranks' lists, so they agree on this.
        uneven = any(target.numel() != tensor.numel() for target in targets)
        staging = Staging(of.ALL_GATHER, [tensor, *targets])
        source = staging.block(staging.input(tensor))
        blocks = staging.outputs(targets)
        return self._start(of.ALL_GATHER, staging, opts, source, blocks, targets, uneven=uneven)

    def allgather_coalesced(self, outputs: List[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        opts = options_of(c10d.AllgatherOptions, opts)
        if (other := self._other(inputs[0])) is not None:
            return other.allgather_coalesced(outputs, inputs, opts)
        works = [self._start_all_gather(*pair, opts) for pair in zip(self._turned(outputs, len(inputs)), inputs)]
        return self._join(works, [tensor for row in outputs for tensor in row])

    def _turned(self, outputs: List[Tensors], inputs: int) -> List[Tensors]:
        """Lists by rank, as PyTorch documents them, turned into lists by input."""
        if len(outputs) != self._size or any(len(row) != inputs for row in outputs):
            raise ValueError(f"gloo_bypass: allgather_coalesced needs {self._size} lists of {inputs} tensors")
        return [list(column) for column in zip(*outputs)]

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        opts = options_of(c10d.AllgatherOptions, opts)
        if (other := self._other(tensor)) is not None:
            return other._allgather_base(output, tensor, opts)
        return for_pytorch(self._start_all_gather_single(output, tensor, opts))

    def _start_all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Work:
        check_numel("the output of all_gather_into_tensor", output, tensor.numel() * self._size)
        staging = Staging(of.ALL_GATHER, [tensor, output])
        source = staging.block(staging.input(tensor))
        parts = staging.parts(staging.output(output), [tensor.numel()] * self._size)
        return self._start(of.ALL_GATHER, staging, opts, source, parts, [output])

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.all_gather_single(output, tensor, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        opts = options_of(c10d.AllgatherOptions, opts)
        if (other := self._other(inputs[0])) is not None:
            return other.allgather_into_tensor_coalesced(outputs, inputs, opts)
        return self._join([self._start_all_gather_single(*pair, opts) for pair in zip(outputs, inputs)], outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        opts = options_of(c10d.AllToAllOptions, opts)
        if outputs and (other := self._other(outputs[0])) is not None:
            return other.alltoall(outputs, inputs, opts)
        self._check_number("the output of all_to_all", outputs)
        self._check_number("the input of all_to_all", inputs)
        check_numel("this rank's own output of all_to_all", outputs[self._rank], inputs[self._rank].numel())
        staging = Staging(of.ALL_TO_ALL, [*inputs, *outputs])
        sources = staging.inputs(inputs)
        targets = staging.outputs(outputs)
        return self._do(of.ALL_TO_ALL, staging, opts, sources, targets, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
    ) -> Any:
        opts = options_of(c10d.AllToAllOptions, opts)
        if (other := self._other(tensor)) is not None:
            return other.alltoall_base(output, tensor, output_splits, input_splits, opts)
        staging = Staging(of.ALL_TO_ALL, [tensor, output])
        sources = staging.parts(staging.input(tensor), self._split("input", tensor, input_splits))
        targets = staging.parts(staging.output(output), self._split("output", output, output_splits))
        return self._do(of.ALL_TO_ALL, staging, opts, sources, targets, [output])

    def alltoall_base(self, *arguments: Any, **more: Any) -> Any:
        return self.all_to_all_single(*arguments, **more)

    def _split(self, what: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
        """Elements for each rank, from rows for each."""
        rows = tensor.shape[0] if tensor.dim() > 0 else 1
        if not splits:
            if rows % self._size != 0:
                raise ValueError(f"gloo_bypass: all_to_all: {rows} rows of the {what} for {self._size} ranks")
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise ValueError(
                f"gloo_bypass: all_to_all: splits {list(splits)} of {rows} rows of the {what} for {self._size} ranks"
            )
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]

    # --- barriers ---

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        opts = options_of(c10d.BarrierOptions, opts, timeout=timeout)
        device = getattr(opts, "device", None)
        if device is not None and device.type in self._others:
            return self._others[device.type][1].barrier(opts)
        return self._do(of.BARRIER, Staging(of.BARRIER, [torch.empty(0)]), opts, (), (), [])

    def monitored_barrier(self, timeout: Optional[datetime.timedelta] = None, wait_all_ranks: bool = False) -> None:
        """Through the store, so that a rank that does not come costs this barrier only, and rank 0 names it."""
        self._barriers += 1
        limit, prefix, store = timeout or self._timeout, f"monitored-{self._barriers}", self._own_store
        if self._rank != 0:
            store.set(f"{prefix}/{self._rank}", "")
            try:
                store.wait([f"{prefix}/go"], limit)
                text = bytes(store.get(f"{prefix}/go")).decode()
            except RuntimeError as error:
                text = str(error)
            if text:
                raise RuntimeError(
                    f"gloo_bypass: rank {self._rank} reached monitored_barrier, but rank 0 did not let it pass: {text}"
                )
            return
        end = datetime.datetime.now() + limit
        missing: List[int] = []
        for rank in range(1, self._size):
            left = max(end - datetime.datetime.now(), datetime.timedelta(milliseconds=1))
            try:
                store.wait([f"{prefix}/{rank}"], left)
            except RuntimeError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if not missing:
            store.set(f"{prefix}/go", "")
            return
        names = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(map(str, missing))
        text = f"{names} failed to pass monitored_barrier in {round(limit.total_seconds() * 1000)} ms"
        store.set(f"{prefix}/go", text)
        raise RuntimeError(f"gloo_bypass: rank 0: {text}")

    # --- messages ---

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        tensor = only("send", listed(tensors))
        if (other := self._other(tensor)) is not None:
            return other.send([tensor], peer, tag)
        self._check_peer(peer)
        staging = Staging(of.BROADCAST, [tensor])
        address, elements = staging.block(staging.input(tensor))
        length = elements // staging.scale * staging.width
        return for_pytorch(Work((self._door.send(peer, tag & _TAGS, address, length, staging.kept),), [tensor]))

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        tensor = only("recv", listed(tensors))
        if (other := self._other(tensor)) is not None:
            return other.recv([tensor], peer, tag)
        self._check_peer(peer)
        return for_pytorch(self._receive(tensor, peer, tag))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        tensor = only("recv", listed(tensors))
        if (other := self._other(tensor)) is not None:
            return other.recv_anysource([tensor], tag)
        return self._receive(tensor, _ANY_PEER, tag)  # a future does not know who sent; C++ calls this nowhere

    def _receive(self, tensor: torch.Tensor, peer: int, tag: int) -> Work:
        staging = Staging(of.BROADCAST, [tensor])
        address, elements = staging.block(staging.both(tensor))
        length = elements // staging.scale * staging.width
        operation = self._door.receive(peer, tag & _TAGS, address, length, staging.kept)
        return Work((operation,), [tensor], staging.copy_back if staging.copies else None)

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self._size or peer == self._rank:
            raise ValueError(f"gloo_bypass: rank {self._rank} of {self._size} has no peer {peer}")

    # --- coalescing: on the CPU there is nothing to gain ---

    def _start_coalescing(self, device: Any) -> None:
        if (entry := self._others.get(torch.device(device).type)) is not None:
            entry[1]._start_coalescing()

    def _end_coalescing(self, device: Any) -> Any:
        entry = self._others.get(torch.device(device).type)
        return DONE if entry is None else entry[1]._end_coalescing()
