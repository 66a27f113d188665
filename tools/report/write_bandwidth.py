"""A program: perftest's ib_write_bw between two processes of this machine, both directions busy, to a JSON file.

This is what an adapter can do with RDMA WRITE alone, as a yardstick for all-reduces over RDMA.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time

PROGRAM = "ib_write_bw"
SCHEMA = "gloo-bypass/write_bandwidth/1"
LISTEN_LIMIT_S = 30.0
FAILED = 1


class WriteError(Exception):
    """It could not be measured; the text is one line."""


def listens(port):
    """Whether a process of this machine listens on the TCP port. The kernel's table tells; a connection to try it would
    be the only one that ib_write_bw serves."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as table:
                for line in table:
                    words = line.split()
                    if len(words) > 3 and words[3] == "0A" and words[1].endswith(f":{port:04X}"):
                        return True
        except OSError:
            pass
    return False


def command_of(options):
    port = ["-d", options.device, "-i", options.port, "-x", options.gid_index, "-p", options.tcp_port]
    return [PROGRAM, *port, "-b", "-s", options.bytes, "-n", options.iterations, "-F", "--report_gbits"]


def bandwidth_in(output, size):
    """Gb/s of both directions together, from the table's line for this size."""
    for line in output.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0] == str(size) and re.fullmatch(r"\d+(\.\d+)?", words[3]):
            return float(words[3])
    raise WriteError(f"{PROGRAM} printed no line for {size} bytes: {last_line(output)}")


def last_line(output):
    filled = [line.strip() for line in output.splitlines() if line.strip().strip("-")]
    return filled[-1] if filled else "no output"


def start(command):
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except FileNotFoundError as error:
        raise WriteError(f"{PROGRAM} is not installed: apt install perftest") from error


def measured(options):
    """Gb/s of both directions together. Every process started here has ended when it returns."""
    until = time.monotonic() + options.limit
    command = [str(word) for word in command_of(options)]
    server = start(command)
    client = None
    try:
        limit = min(until, time.monotonic() + LISTEN_LIMIT_S)
        while not listens(options.tcp_port):
            if server.poll() is not None:
                raise WriteError(f"{PROGRAM} as server: {last_line(server.stdout.read())}")
            if time.monotonic() > limit:
                where = f"port {options.tcp_port} within {LISTEN_LIMIT_S:g} s"
                raise WriteError(f"{PROGRAM} as server did not listen on {where}")
            time.sleep(0.05)
        client = start([*command, "127.0.0.1"])
        output, _ = client.communicate(timeout=max(1.0, until - time.monotonic()))
        if client.returncode != 0:
            raise WriteError(f"{PROGRAM} as client: {last_line(output)}")
        return bandwidth_in(output, options.bytes)
    except subprocess.TimeoutExpired as error:
        raise WriteError(f"{PROGRAM} took longer than {options.limit:g} s") from error
    finally:
        for process in (client, server):
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM if process is server else signal.SIGKILL)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="write_bandwidth", description=f"{PROGRAM} between two processes of this machine, both directions busy."
    )
    parser.add_argument("--device", required=True)
    parser.add_argument("--port", type=int, default=1)
    parser.add_argument("--gid-index", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=2**20, help="of a message")
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--tcp-port", type=int, default=18515, help="where the two meet")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds")
    parser.add_argument("--json", required=True, help="file to write")
    options = parser.parse_args(arguments)
    try:
        both = measured(options)
    except WriteError as error:
        print(f"write_bandwidth: {error}", file=sys.stderr)
        return FAILED
    # perftest adds the two directions up.
    report = {"schema": SCHEMA, "device": options.device, "port": options.port, "gid_index": options.gid_index}
    report |= {"message_bytes": options.bytes, "iterations": options.iterations, "direction_gb_s": both / 8 / 2}
    partial = options.json + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(json.dumps(report, indent=2) + "\n")
    os.replace(partial, options.json)
    print(f"{PROGRAM}, {options.bytes} bytes, both directions busy: {report['direction_gb_s']:.4g} GB/s a direction")
    return 0


if __name__ == "__main__":
    sys.exit(main())
