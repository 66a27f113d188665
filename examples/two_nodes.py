#!/usr/bin/env python3
"""Starts a program as torchrun does on two nodes: two agents with a node rank each, both on this machine.

    GLOO_DEVICE_TRANSPORT=DPDK examples/two_nodes.py examples/ddp.py

Prints the command of each agent first: on two machines, give each its own one, with the first machine's address as
--master_addr (or its own as --local_addr, and a file that both can write as --rdzv_endpoint). Over DPDK the ranks of a
machine share memory, and machines are joined by UDP. DPDK, UDP and RDMA use the interface of the route to MASTER_ADDR.
Gloo's TCP uses the address of the host's own name. GLOO_SOCKET_IFNAME names another interface, for all of them.
"""

import argparse
import importlib.metadata
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time

NODES = 2


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def store_works():
    """Whether the agents can meet over TCP: torchrun of PyTorch 2.4 and later needs libuv for that, and Debian's
    PyTorch has none."""
    from torch.distributed import TCPStore  # takes seconds

    try:
        TCPStore("127.0.0.1", free_port(), 1, True)
    except RuntimeError:
        return False
    return True


def meeting(folder):
    """The agents' options for their rendezvous, without the node's rank; and the variables for it."""
    if store_works():
        return ["--master_addr", "127.0.0.1", "--master_port", str(free_port())], {}
    return (
        [
            "--rdzv_backend",
            "c10d",
            "--rdzv_id",
            "two-nodes",
            "--rdzv_endpoint",
            os.path.join(folder, "meeting"),
            "--rdzv_conf",
            "store_type=file",
            "--local_addr",
            "127.0.0.1",
        ],
        {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )


def output_options(folder):
    """PyTorch 1.13's torchrun fails under Python 3.11 (Debian 12) unless it writes the ranks' output to files; -t shows
    it as well."""
    old = importlib.metadata.version("torch").startswith("1.")
    return ["-r", "1", "-t", "1", "--log_dir", folder] if old else []


def agents_of(options, folder):
    """The agents' commands, and the variables that they need."""
    meet, variables = meeting(folder)
    return [
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            str(NODES),
            "--node_rank",
            str(node),
            "--nproc_per_node",
            str(options.ranks),
            *meet,
            *output_options(folder),
            options.program,
            *options.arguments,
        ]
        for node in range(NODES)
    ], variables


def wait_for_all(agents, seconds):
    """Exit statuses, as soon as all have ended or one has failed; None for processes that still run."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        statuses = [process.poll() for process in agents]
        if None not in statuses or any(statuses):
            return statuses
        time.sleep(0.1)
    return [process.poll() for process in agents]


def run(commands, variables, seconds):
    for node, command in enumerate(commands):
        print(
            f"node {node}: "
            f"{' '.join([f'{name}={value}' for name, value in variables.items()] + [shlex.join(command)])}",
            flush=True,
        )
    environment = {"OMP_NUM_THREADS": "1", **os.environ, **variables}
    agents = [subprocess.Popen(command, env=environment) for command in commands]
    try:
        return wait_for_all(agents, seconds)
    finally:
        for process in agents:
            if process.poll() is None:
                process.terminate()  # an agent passes it on to its ranks
        for process in agents:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="a program for torchrun, such as examples/ddp.py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what to pass on to it")
    parser.add_argument("--ranks", type=int, default=1, help="ranks on each node (1)")
    parser.add_argument("--seconds", type=float, default=120, help="longest time to wait (120)")
    options = parser.parse_args()
    if not os.path.exists(options.program):
        parser.error(f"there is no program '{options.program}'")

    with tempfile.TemporaryDirectory(prefix="two-nodes-") as folder:
        statuses = run(*agents_of(options, folder), options.seconds)
    if statuses != [0] * NODES:
        sys.exit(
            f"{sys.argv[0]}: the agents' exit statuses are {statuses} (None: still running after {options.seconds:g} s)"
        )
    print(f"checked: {NODES} agents with {options.ranks} rank{'s' if options.ranks > 1 else ''} each ended well")


if __name__ == "__main__":
    main()
