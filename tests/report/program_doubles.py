"""Doubles of ddp_train and all_reduce_perf: they take the real command line and write the real shape of files, quickly.

Made as executables in a build folder by make_build(). `faults` maps a transport to what its training does:
'fail', 'hang', 'other bits' or 'other transport'.
"""

import json
import os
import sys
import time
from pathlib import Path


def make_build(folder, faults=None):
    here = Path(__file__).resolve()
    for name in ("trainer/ddp_train", "tools/all_reduce_perf"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nDOUBLE_FAULTS='{json.dumps(faults or {})}' exec {sys.executable} {here} {path.name} \"$@\"\n")
        path.chmod(0o755)
    return folder


def value_of(arguments, flag):
    return arguments[arguments.index(flag) + 1]


def train(arguments):
    import conftest
    transport = os.environ["GLOO_DEVICE_TRANSPORT"]
    fault = json.loads(os.environ["DOUBLE_FAULTS"]).get(transport)
    if fault == "fail":
        print("ddp_train: rank 1: the reason it failed")
        return 1
    steps, ranks = int(value_of(arguments, "--steps")), int(value_of(arguments, "--spawn"))
    digest = "0" * 64 if fault == "other bits" else conftest.DIGEST
    used = "TCP" if fault == "other transport" else transport
    for rank in range(ranks):
        path = Path(value_of(arguments, "--metrics").replace("{rank}", str(rank)))
        lines = conftest.training_records(used, rank, steps, digest)
        conftest.write_lines(path, lines[:2] if fault == "hang" else lines)
    if fault == "hang":
        Path(os.environ["DOUBLE_PID_FILE"]).write_text(f"{os.getpid()}\n")
        time.sleep(600)
    return 0


def reduce(arguments):
    import conftest
    transports = value_of(arguments, "--transports").split(",")
    path = Path(value_of(arguments, "--json"))
    if "--idle" in arguments:
        report = conftest.benchmark_report(idle=[conftest.idle_entry(transport, 0.2) for transport in transports])
    else:
        low, high, factor = (int(value_of(arguments, flag)) for flag in ("-b", "-e", "-f"))
        results = []
        while low <= high:
            results.append(conftest.reduce_result(low, {transport: 50.0 + low / 1e3 for transport in transports}))
            low *= factor
        report = conftest.benchmark_report(results)
    path.write_text(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit({"ddp_train": train, "all_reduce_perf": reduce}[sys.argv[1]](sys.argv[2:]))
