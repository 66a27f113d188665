"""Doubles of ddp_train, all_reduce_perf, ib_write_bw and rdma-guest: they take the real command line and write the real
shape of files, quickly.

Made as executables in a build folder by make_build(), or one by one by make_program(). `faults` maps a transport to
what its training does: 'fail', 'fails again', 'hang', 'other bits', 'other transport', 'slow', or 'slow at
first', which is while the machine was not found unsteady; or a program to what it does.
"""

import json
import os
import sys
import time
from pathlib import Path


def make_program(path, faults=None):
    here = Path(__file__).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!/bin/sh\nDOUBLE_FAULTS='{json.dumps(faults or {})}' exec {sys.executable} {here} {path.name} \"$@\"\n"
    )
    path.chmod(0o755)
    return path


def make_build(folder, faults=None):
    for name in ("trainer/ddp_train", "tools/all_reduce_perf"):
        make_program(folder / name, faults)
    return folder


def fault_of(name):
    return json.loads(os.environ["DOUBLE_FAULTS"]).get(name)


def value_of(arguments, flag):
    return arguments[arguments.index(flag) + 1]


def train(arguments):
    import conftest

    transport = os.environ["GLOO_DEVICE_TRANSPORT"]
    fault = fault_of(transport)
    if fault == "fail" or fault == "fails again" and "training-again" in value_of(arguments, "--metrics"):
        print("ddp_train: rank 1: the reason it failed")
        return 1
    steps, ranks = int(value_of(arguments, "--steps")), int(value_of(arguments, "--spawn"))
    digest = "0" * 64 if fault == "other bits" else conftest.DIGEST
    used = "TCP" if fault == "other transport" else transport
    for rank in range(ranks):
        path = Path(value_of(arguments, "--metrics").replace("{rank}", str(rank)))
        slow = fault == "slow" or fault == "slow at first" and "again" not in path.name
        lines = conftest.training_records(
            used, rank, steps, digest, step_s=6.0 if slow else 3.0, forward_s=1.5 if slow else 0.6
        )
        conftest.write_lines(path, lines[:2] if fault == "hang" else lines)
    if fault == "hang":
        Path(os.environ["DOUBLE_PID_FILE"]).write_text(f"{os.getpid()}\n")
        time.sleep(600)
    return 0


def reduce(arguments):
    import conftest

    transports = value_of(arguments, "--transports").split(",")
    path = Path(value_of(arguments, "--json"))
    for transport in transports:
        fault = fault_of(f"all_reduce_perf {transport}")
        if fault == "hang":
            time.sleep(600)
        if fault == "fail":
            print(f"all_reduce_perf: rank 0, {transport}, connecting: the reason it failed")
            return 1
    if os.environ.get("RANK", "0") != "0":
        return 0
    if "--idle" in arguments:
        report = conftest.benchmark_report(idle=[conftest.idle_entry(transport, 0.2) for transport in transports])
    else:
        low, high = int(value_of(arguments, "-b")), int(value_of(arguments, "-e"))
        factor = int(value_of(arguments, "-f")) if "-f" in arguments else 2
        results = []
        while low <= high:
            results.append(conftest.reduce_result(low, {transport: 50.0 + low / 1e3 for transport in transports}))
            low *= factor
        report = conftest.benchmark_report(results)
        report["build"] = {
            "commit": "0123abc4567d",
            "transports": ["TCP", "DPDK", "RDMA"] + ([] if fault_of("GLOO_IBVERBS") else ["GLOO_IBVERBS"]),
        }
    path.write_text(json.dumps(report))
    return 0


def compare_programs(arguments):
    """Replaces scripts/compare-programs."""
    import conftest  # noqa: F401  the path to our packages
    from program_runs import run_record

    if fault_of("compare-programs") == "fail":
        print("compare-programs: /usr/bin/python3: No module named 'torch'")
        return 2
    assert value_of(arguments, "--transports") == "TCP,DPDK" and value_of(arguments, "--effort") == "short"
    record = run_record(alone_us=(500.0, 700.0 if fault_of("compare-programs") == "unsteady" else 500.0))
    Path(value_of(arguments, "--json")).write_text(json.dumps(record | {"effort": "short"}))
    return 0


def write(arguments):
    """As server it listens and waits for its client; as client it prints the table."""
    import socket

    if fault_of("ib_write_bw") == "fail":
        print("Unable to find the Infiniband/RoCE device")
        return 1
    port = int(value_of(arguments, "-p"))
    if arguments[-1] != "127.0.0.1":
        with socket.create_server(("127.0.0.1", port)) as server:
            server.settimeout(30)
            connection, _ = server.accept()
            connection.close()
        return 0
    socket.create_connection(("127.0.0.1", port), 10).close()
    if fault_of("ib_write_bw") == "hang":
        time.sleep(600)
    print(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    if fault_of("ib_write_bw") != "no table":
        print(
            f" {value_of(arguments, '-s')}    {value_of(arguments, '-n')}           1.840352            "
            "1.600000            0.000020"
        )
    return 0


def guest(arguments):
    """Runs the command on this machine."""
    if fault_of("rdma-guest") == "missing":
        print("missing: qemu-system-x86_64")
        return 1
    if arguments[0] != "run":
        return 0
    if fault_of("rdma-guest") == "does not boot":
        print("rdma-guest: the guest did not come up within 120 s", file=sys.stderr)
        return 125
    command = arguments[arguments.index("--") + 1 :]
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(
        {
            "ddp_train": train,
            "all_reduce_perf": reduce,
            "ib_write_bw": write,
            "rdma-guest": guest,
            "compare-programs": compare_programs,
        }[sys.argv[1]](sys.argv[2:])
    )
