"""A double of fabric-run: takes its command line, writes a run's files. FAULTS maps a transport to 'fail', 'hang',
'wrong', or, of training, 'cut': its capture ends early."""

import json
import os
import sys
import time
from pathlib import Path

import conftest


def value(arguments, flag):
    return arguments[arguments.index(flag) + 1]


def main(arguments):
    transport, output = value(arguments, "--transport"), Path(value(arguments, "--output"))
    fault = json.loads(os.environ["FAULTS"]).get(transport)
    if fault == "fail":
        print(f"fabric-run: {transport} has the reason it failed", file=sys.stderr)
        return 1
    if fault == "hang":
        Path(os.environ["PID_FILE"]).write_text(str(os.getpid()))
        time.sleep(600)
    if "--model" in arguments:
        conftest.write_training_run(output, events=int(value(arguments, "--steps")), transport=transport)
        (output / "capture.pcapng").touch()
        if fault == "cut":
            cut = {"seconds": 5.0, "edges": [], "capture": {"lost": 7, "failure": "No space left on device"}}
            (output / "fabric.json").write_text(json.dumps(cut))
        return 0
    plan = conftest.plan_for(
        bytes=int(value(arguments, "-b")),
        rounds=int(value(arguments, "--rounds")),
        ranks=int(value(arguments, "--ranks")),
    )
    cell = conftest.Cell("300ms", transport, "default", 0.0)
    conftest.write_run(output, plan, cell, [0.5] * plan.rounds, wrong=3 if fault == "wrong" else 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
