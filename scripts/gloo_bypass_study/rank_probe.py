"""Runs one rank of a study and samples it: CPU, memory, bytes in and out of its interface, the state of its TCP connections.

    rank_probe.py --output DIR [--interval S] -- PROGRAM ARGUMENT...

Runs beside the rank in the same network namespace. When the rank has ended, DIR/probe-RANK.json (RANK from the environment) holds the
samples and what the kernel's TCP counted meanwhile; the exit status is the rank's. Nothing but Python's own library: it starts beside
every rank.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SCHEMA = "gloo-bypass/rank-probe/1"
RANK, INTERFACE = "RANK", "GLOO_SOCKET_IFNAME"
QUERY_S = 5.0
# A day at four a second would be no probe's memory any more: later samples are left out, and counted.
MAX_SAMPLES = 100_000
# Of /proc/net/snmp and /proc/net/netstat: what says how TCP met loss.
COUNTERS = ("Tcp.RetransSegs", "Tcp.OutSegs", "Tcp.InSegs", "TcpExt.TCPTimeouts", "TcpExt.TCPFastRetrans", "TcpExt.TCPSlowStartRetrans",
            "TcpExt.TCPLostRetransmit", "TcpExt.TCPLossProbes", "TcpExt.TCPSpuriousRTOs", "TcpExt.TCPDSACKRecv")
# Fields of `ss -ti`, as name:value.
CONNECTION_FIELDS = ("cwnd", "ssthresh", "mss", "bytes_sent", "bytes_retrans", "rcv_space", "snd_wnd")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def text_of(path):
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def kernel_counters():
    """Name -> count, of this network namespace; the file's lines come in pairs, names first."""
    found = {}
    for name in ("snmp", "netstat"):
        lines = text_of(f"/proc/net/{name}").splitlines()
        for names, values in zip(lines[::2], lines[1::2]):
            group = names.partition(":")[0]
            found |= {f"{group}.{key}": int(value) for key, value in zip(names.split()[1:], values.split()[1:])}
    return {name: found[name] for name in COUNTERS if name in found}


def connections(said):
    """Of `ss -tinH`: for each connection, peer's address and port, congestion control and the fields above."""
    found, lines = [], said.splitlines()
    for first, second in zip(lines, lines[1:]):
        words = first.split()
        if first[:1].isspace() or not second[:1].isspace() or len(words) < 5:
            continue
        one = {"local": words[3], "peer": words[4], "control": second.split()[0] if second.split() else ""}
        for word in second.split()[1:]:
            key, colon, value = word.partition(":")
            if colon and key in CONNECTION_FIELDS and value.isdigit():
                one[key] = int(value)
            elif key == "rtt" and colon:
                one["rtt_ms"] = float(value.partition("/")[0])
            elif key == "retrans" and colon:
                one["retrans"] = int(value.partition("/")[2] or 0)
        found.append(one)
    return found


def tcp_connections(interface):
    """Connections on the fabric's interface, without those over which the ranks met."""
    try:
        answer = subprocess.run(["ss", "-tinH", "state", "established"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                errors="replace", timeout=QUERY_S, check=False)
        address = subprocess.run(["ip", "-4", "-o", "addr", "show", "dev", interface], stdin=subprocess.DEVNULL, capture_output=True,
                                 text=True, errors="replace", timeout=QUERY_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    # Without the column of states, which `state established` leaves out, the addresses are words 3 and 4.
    said = "\n".join(line if line[:1].isspace() else "ESTAB " + line for line in answer.stdout.splitlines())
    own = next((words[3].partition("/")[0] for words in map(str.split, address.stdout.splitlines()) if len(words) > 3), None)
    return [one for one in connections(said) if own is None or one["local"].rpartition(":")[0] == own]


def traffic(interface):
    """(bytes received, bytes sent) of an interface, or (None, None)."""
    for line in text_of("/proc/net/dev").splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == interface:
            words = numbers.split()
            return int(words[0]), int(words[8])
    return None, None


def process_use(pid):
    """(CPU seconds, resident bytes) of a process, its threads included; None where it has gone."""
    words = text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(words) < 22:
        return None
    return (int(words[11]) + int(words[12])) / TICKS, int(words[21]) * PAGE


class Probe:
    """The samples of one rank. Single-threaded."""

    def __init__(self, interface):
        self.interface, self.samples, self.left_out = interface, [], 0
        self.began, self.before = time.monotonic(), kernel_counters()

    def sample(self, pid):
        used = process_use(pid)
        if used is None:
            return
        if len(self.samples) >= MAX_SAMPLES:
            self.left_out += 1
            return
        received, sent = traffic(self.interface) if self.interface else (None, None)
        self.samples.append({"at_s": round(time.monotonic() - self.began, 3), "cpu_s": used[0], "resident_bytes": used[1],
                             "received_bytes": received, "sent_bytes": sent,
                             "connections": tcp_connections(self.interface) if self.interface else []})

    def record(self, rank, status):
        after = kernel_counters()
        return {"schema": SCHEMA, "rank": rank, "status": status, "seconds": round(time.monotonic() - self.began, 3),
                "tcp": {name: count - self.before.get(name, 0) for name, count in after.items()} if self.interface else {},
                "samples": self.samples, "samples_left_out": self.left_out}


def run(program, output, interval_s):
    rank = int(os.environ[RANK])
    probe = Probe(os.environ.get(INTERFACE, ""))
    process = subprocess.Popen(program, stdin=subprocess.DEVNULL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda given, _frame: process.send_signal(given))
    while True:
        probe.sample(process.pid)
        try:
            status = process.wait(interval_s)
            break
        except subprocess.TimeoutExpired:
            pass
    status = 128 - status if status < 0 else status
    target = output / f"probe-{rank}.json"
    partial = target.with_name(target.name + ".partial")
    partial.write_text(json.dumps(probe.record(rank, status)) + "\n")
    os.replace(partial, target)
    return status


def main():
    parser = argparse.ArgumentParser(prog="rank_probe.py", description="Runs one rank of a study and samples it.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a folder that exists")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="between two samples (default 1)")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    try:
        return run(options.program, options.output, options.interval)
    except OSError as error:
        print(f"rank_probe: {error.filename or 'probe'}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
