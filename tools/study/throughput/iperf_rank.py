"""A program: a rank of the measurement with iperf3. Rank 0 serves, rank 1 measures and writes {"mbit_s": [of each]}.

    iperf_rank.py SECONDS BEGIN FILE STREAMS...     a stream is a number, as 4, or reversed, as -4

RANK and MASTER_ADDR are fabric-run's, with --rendezvous fabric: rank 0's address on the emulated link. Mbit/s are of
the receiver, payload alone, without the first BEGIN seconds, in which TCP finds the rate.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

PORT = "5201"
MEETING_S, GRACE_S = 20.0, 30.0
INTERVAL_S = 0.05  # between tries, until the server listens
REFUSED = "Connection refused"


def serve(seconds, streams):
    for _ in streams:
        subprocess.run(["iperf3", "-s", "-1", "-p", PORT], check=True, timeout=seconds + MEETING_S + GRACE_S)


def measure(seconds, begin, stream):
    words = ["iperf3", "-c", os.environ["MASTER_ADDR"], "-p", PORT, "-J"]
    words += ["-t", str(seconds), "-O", str(begin), "-P", str(abs(stream))]
    words += ["-R"] if stream < 0 else []
    end = time.monotonic() + MEETING_S
    while True:
        done = subprocess.run(words, capture_output=True, text=True, timeout=begin + seconds + GRACE_S)
        report = json.loads(done.stdout or "{}")
        if "sum_received" in report.get("end", {}):  # its status is 0 whatever happened
            return report["end"]["sum_received"]["bits_per_second"] / 1e6
        reason = report.get("error", done.stderr.strip())
        if REFUSED not in reason or time.monotonic() > end:
            raise SystemExit(f"iperf3: {reason}")
        time.sleep(INTERVAL_S)


def main(seconds, begin, path, *streams):
    if os.environ["RANK"] == "0":
        serve(int(begin) + int(seconds), streams)
        return
    found = [measure(int(seconds), int(begin), int(stream)) for stream in streams]
    Path(path).write_text(json.dumps({"mbit_s": found}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
