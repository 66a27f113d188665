#!/usr/bin/env python3
"""Fault-tolerant training with torchft on CPUs: one replica is killed, its replacement joins, the training goes on.

    python3 examples/real_programs/torchft_replicas.py

A step counts only if every replica took part in it. The step during which one died is discarded, and the others wait
for its replacement, which fetches parameters and optimiser from one of them.
"""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
from datetime import timedelta

import torch
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer

VICTIM = 1


def digest_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def train(options):
    """One replica: a group of one rank."""
    torch.manual_seed(1)  # all start with the same parameters; a replacement fetches them
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Tanh(), torch.nn.Linear(512, 64))
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=options.timeout)),
        load_state_dict=lambda state: (
            model.load_state_dict(state["model"]),
            optimizer.load_state_dict(state["optimizer"]),
        ),
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        min_replica_size=options.replicas,
        timeout=timedelta(seconds=options.timeout),
        quorum_timeout=timedelta(minutes=5),  # how long a replacement may take to come
        replica_id=f"replica_{options.replica}",
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        init_sync=False,
    )
    # Small buckets: the second layer's gradients are averaged before the first layer's exist.
    parallel = DistributedDataParallel(manager, model, bucket_cap_mb=0.1)
    optimizer = Optimizer(manager, torch.optim.Adam(model.parameters(), lr=0.001))

    while manager.current_step() < options.steps:
        generator = torch.Generator().manual_seed(1000 * manager.current_step() + options.replica)
        inputs = torch.randn(16, 64, generator=generator)
        if manager.current_step() == options.die_at:
            # The others have averaged a part of the gradients with this replica, and wait for the rest.
            model[0].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        optimizer.zero_grad()  # agrees with the other replicas on the participants
        torch.nn.functional.mse_loss(parallel(inputs), inputs.flip(1)).backward()
        optimizer.step()  # only if the step counts
        print(f"replica {options.replica} has done {manager.current_step()} steps\n", end="", flush=True)
    # One write a line: the replicas share the terminal.
    print(
        f"replica={options.replica} of {options.replicas} steps={manager.current_step()} "
        f"parameters={digest_of(model)}\n",
        end="",
        flush=True,
    )
    manager.shutdown(wait=False)


def start(replica, lighthouse, *more):
    return subprocess.Popen(
        [sys.executable, *sys.argv, "--replica", str(replica), *more],
        env={**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse.address()},
    )


def launch(options):
    """Starts the lighthouse and the replicas; kills one of them in the middle of a step, and starts it again."""
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=options.replicas, heartbeat_timeout_ms=2000)
    replicas = [start(replica, lighthouse) for replica in range(options.replicas) if replica != VICTIM]
    try:
        replicas.append(start(VICTIM, lighthouse, "--die-at", str(options.kill_at)))
        if replicas[-1].wait() != -signal.SIGKILL:
            sys.exit(f"replica {VICTIM} ended before it was killed")
        print(f"replica {VICTIM} was killed\n", end="", flush=True)
        replicas[-1] = start(VICTIM, lighthouse)
        statuses = [process.wait() for process in replicas]
    finally:
        for process in replicas:
            process.kill()
    if any(statuses):
        sys.exit(f"exit statuses {statuses}")
    lighthouse.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="steps that count (20)")
    parser.add_argument("--kill-at", type=int, default=5, help="the step in which a replica is killed (5)")
    parser.add_argument("--replicas", type=int, default=3, help="replicas (3)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds that one exchange may take (60)")
    parser.add_argument("--replica", type=int, help=argparse.SUPPRESS)  # only the launcher sets these two
    parser.add_argument("--die-at", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    launch(options) if options.replica is None else train(options)


if __name__ == "__main__":
    main()
