#!/usr/bin/python3
"""Trains the tiny model by each --average method in plain Python, all ranks in one process, and compares every loss.

The methods are written from their papers on torch.nn.functional, torch's DistributedSampler and AdamW, in fp64.

usage: PYTHONPATH=tests/trainer averaging_reference.py DDP_TRAIN SAMPLE_TEXT
"""

import sys
import tempfile

import reference_run as base  # exits with 77 where torch is missing
import torch
from torch.utils.data import DistributedSampler

RANKS, STEPS, INNER, OUTER_LR, OUTER_MOMENTUM = 4, 7, 3, 0.6, 0.8
TOLERANCE = 1e-9


class Rank:
    def __init__(self, weights, number, ranks=RANKS):
        self.epoch_steps = base.SAMPLES // (ranks * base.BATCH)
        self.parameters, self.optimizer = base.adamw(weights)
        self.sampler = DistributedSampler(range(base.SAMPLES), num_replicas=ranks, rank=number, seed=base.SEED)

    def backward(self, tokens, step):
        windows = base.samples_of(tokens, self.sampler, step, base.BATCH, self.epoch_steps)
        self.optimizer.zero_grad()
        loss = base.loss_of(self.parameters, windows[:, :-1], windows[:, 1:])
        loss.backward()
        return loss.item()

    def weights(self):
        return {name: value.detach().clone() for name, value in self.parameters.items()}

    def load(self, weights):
        with torch.no_grad():
            for name, value in weights.items():
                self.parameters[name].copy_(value)


def mean(several):
    return {name: sum(one[name] for one in several) / len(several) for name in several[0]}


def local_sgd(ranks, step, _):
    for rank in ranks:
        rank.optimizer.step()
    if (step + 1) % INNER == 0:
        common = mean([rank.weights() for rank in ranks])
        for rank in ranks:
            rank.load(common)


def diloco(ranks, step, state):
    """torch.optim.SGD itself is the outer optimiser."""
    if not state:
        state["outer"] = ranks[0].weights()
        state["sgd"] = torch.optim.SGD(state["outer"].values(), lr=OUTER_LR, momentum=OUTER_MOMENTUM, nesterov=True)
    for rank in ranks:
        rank.optimizer.step()
    if (step + 1) % INNER == 0:
        common = mean([rank.weights() for rank in ranks])
        for name, value in state["outer"].items():
            value.grad = value - common[name]
        state["sgd"].step()
        for rank in ranks:
            rank.load(state["outer"])


def central(ranks, _, __):
    server = ranks[0]
    for name, parameter in server.parameters.items():
        parameter.grad = sum(rank.parameters[name].grad for rank in ranks) / RANKS
    server.optimizer.step()
    for rank in ranks[1:]:
        rank.load(server.weights())


def gossip(neighbours):
    def step_of(ranks, step, _):
        before = [rank.weights() for rank in ranks]
        for number, rank in enumerate(ranks):
            rank.load(mean([before[other] for other in {number, *neighbours(number, step)}]))
            rank.optimizer.step()

    return step_of


METHODS = {
    f"local-sgd --inner-steps {INNER}": local_sgd,
    f"diloco --inner-steps {INNER} --outer-lr {OUTER_LR} --outer-momentum {OUTER_MOMENTUM}": diloco,
    "central": central,
    "gossip": gossip(lambda rank, step: {(rank - 1) % RANKS, (rank + 1) % RANKS}),
    "gossip --gossip-topology exponential": gossip(lambda rank, step: {(rank - 2 ** (step % 2)) % RANKS}),
}


def main():
    program, text = sys.argv[1:3]
    tokens = base.tokens_of(text)
    with tempfile.TemporaryDirectory() as folder:
        path = base.save_initial(program, folder)
        weights = base.read_safetensors(path)
        for flags, method in METHODS.items():
            common = f"--spawn {RANKS} --batch-size {base.BATCH} --weights {path}"
            steps = base.steps_of(program, STEPS, common, f"--average {flags}")
            losses = [record["loss_mean"] for record in steps]
            ranks, state = [Rank(weights, number) for number in range(RANKS)], {}
            for step, loss in enumerate(losses):
                expected = sum(rank.backward(tokens, step) for rank in ranks) / RANKS
                method(ranks, step, state)
                assert abs(loss - expected) < TOLERANCE, f"{flags}, step {step + 1}: {loss}, reference {expected}"
            print(f"{flags}: {STEPS} losses within {TOLERANCE} of the reference, at last {losses[-1]:.6f}")


if __name__ == "__main__":
    main()
