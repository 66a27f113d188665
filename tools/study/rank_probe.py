"""Runs one rank of a study and samples it: CPU, memory, bytes in and out, the state of its TCP connections.

    rank_probe.py --output DIR [--interval S] [--limit-rank R --limit-group DIR | --limit-rank R --limit-share P] --
    PROGRAM ARGUMENT...

Runs beside the rank in the same network namespace. When the rank has ended, DIR/probe-RANK.json (RANK from the
environment) holds the samples and what the kernel's TCP counted meanwhile; the exit status is the rank's. A rank whose
processor time is to be held down starts in a control group, or is stopped and continued in turn. Nothing but Python's
own library: it starts beside every rank.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

SCHEMA = "gloo-bypass/rank-probe/1"
RANK, INTERFACE, TRANSPORT = "RANK", "GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"
# A bypass rank's bytes pass no interface of the kernel: its transport writes its counters to a file, so many times as
# often as they are read.
METRICS, METRICS_INTERVAL = "GLOO_BYPASS_METRICS", "GLOO_BYPASS_METRICS_INTERVAL_MS"
WRITTEN_MORE_OFTEN, LEAST_INTERVAL_MS = 4, 100
# (received, sent): of the port, or where there is none of the transport's packets.
METRIC_PAIRS = tuple(
    (f"gloo_bypass_{of}_received_bytes_total", f"gloo_bypass_{of}_sent_bytes_total") for of in ("port", "wire")
)
QUERY_S = 5.0
# A day at four a second would be no probe's memory any more: later samples are left out, and counted.
MAX_SAMPLES = 100_000
# In which a rank without a control group runs for its share, and stands for the rest.
DUTY_S = 0.05
# The shell moves itself into the group, and becomes the rank.
INTO_GROUP = ("sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"')
# Of /proc/net/snmp and /proc/net/netstat: what says how TCP met loss.
COUNTERS = (
    "Tcp.RetransSegs",
    "Tcp.OutSegs",
    "Tcp.InSegs",
    "TcpExt.TCPTimeouts",
    "TcpExt.TCPFastRetrans",
    "TcpExt.TCPSlowStartRetrans",
    "TcpExt.TCPLostRetransmit",
    "TcpExt.TCPLossProbes",
    "TcpExt.TCPSpuriousRTOs",
    "TcpExt.TCPDSACKRecv",
)
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


def answer_of(*words):
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=QUERY_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def address_of(interface):
    """None where it has none."""
    said = answer_of("ip", "-4", "-o", "addr", "show", "dev", interface)
    return next((words[3].partition("/")[0] for words in map(str.split, said.splitlines()) if len(words) > 3), None)


def tcp_connections(own):
    """Connections from the address on the fabric, without those over which the ranks met."""
    # Without the column of states, which `state established` leaves out, the addresses are words 3 and 4.
    said = "\n".join(
        line if line[:1].isspace() else "ESTAB " + line
        for line in answer_of("ss", "-tinH", "state", "established").splitlines()
    )
    return [one for one in connections(said) if own is None or one["local"].rpartition(":")[0] == own]


class InterfaceTraffic:
    """Of an interface of the kernel, which all of the rank's bytes pass."""

    def __init__(self, interface):
        self.interface, self.source = interface, f"the kernel's counters of {interface}"

    def bytes(self):
        return traffic(self.interface)


class TransportTraffic:
    """Of the rank's own transport, as it counts: its environment makes it write its counters. None, None before it
    has begun."""

    def __init__(self, environment, output, rank, interval_s):
        self.source, self.own = "the transport's own counters", METRICS not in environment
        self.path = output / f"metrics-{rank}.prom"
        if self.own:
            milliseconds = max(LEAST_INTERVAL_MS, round(1000 * interval_s / WRITTEN_MORE_OFTEN))
            environment |= {METRICS: f"file:{self.path.absolute()}", METRICS_INTERVAL: str(milliseconds)}
        elif environment[METRICS].startswith("file:") and "%p" not in environment[METRICS]:
            self.path = Path(environment[METRICS].removeprefix("file:").replace("%r", str(rank)))
        else:
            self.path = None

    def bytes(self):
        if self.path is None:
            return None, None
        found = metrics_of(text_of(self.path))
        return next(
            ((found[received], found[sent]) for received, sent in METRIC_PAIRS if received in found and sent in found),
            (None, None),
        )

    def end(self):
        if self.own and self.path is not None:
            self.path.unlink(missing_ok=True)


def metrics_of(text):
    """Counters of Prometheus' text by name, summed over their labels."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and not name.startswith("#") and value.isdigit():
            key = name.partition("{")[0]
            found[key] = found.get(key, 0) + int(value)
    return found


def traffic(interface):
    """(bytes received, bytes sent) of an interface, or (None, None)."""
    for line in text_of("/proc/net/dev").splitlines():
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == interface:
            words = numbers.split()
            return int(words[0]), int(words[8])
    return None, None


def process_use(pid):
    """(CPU seconds, resident bytes) of a process, its threads included; None where it has gone, or is going and has no
    memory any more."""
    words = text_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(words) < 22 or words[21] == "0":
        return None
    return (int(words[11]) + int(words[12])) / TICKS, int(words[21]) * PAGE


class Probe:
    """The samples of one rank. Single-threaded. `traffic` has its bytes, or is None."""

    def __init__(self, interface, traffic_of_rank):
        self.interface, self.traffic, self.samples, self.left_out = interface, traffic_of_rank, [], 0
        self.address = None
        self.began, self.began_unix, self.before = time.monotonic(), time.time(), kernel_counters()

    def connections(self):
        if not self.interface:
            return []
        self.address = self.address or address_of(self.interface)
        return tcp_connections(self.address)

    def sample(self, pid):
        used = process_use(pid)
        if used is None:
            return
        if len(self.samples) >= MAX_SAMPLES:
            self.left_out += 1
            return
        at, (received, sent) = time.monotonic() - self.began, self.traffic.bytes() if self.traffic else (None, None)
        self.samples.append(
            {
                "at_s": round(at, 3),
                "cpu_s": used[0],
                "resident_bytes": used[1],
                "received_bytes": received,
                "sent_bytes": sent,
                "connections": self.connections(),
            }
        )

    def record(self, rank, status):
        after = kernel_counters()
        received, sent = self.traffic.bytes() if self.traffic else (None, None)
        return {
            "schema": SCHEMA,
            "rank": rank,
            "status": status,
            "began_unix_s": self.began_unix,
            "seconds": round(time.monotonic() - self.began, 3),
            "traffic": {
                "source": self.traffic.source if self.traffic else None,
                "received_bytes": received,
                "sent_bytes": sent,
            },
            "tcp": {name: count - self.before.get(name, 0) for name, count in after.items()} if self.interface else {},
            "samples": self.samples,
            "samples_left_out": self.left_out,
        }


def hold_down(process, share):
    """Until the process has ended: runs for its share of each period. Of a thread of its own."""
    while process.returncode is None:
        for number, seconds in ((signal.SIGSTOP, (1 - share) * DUTY_S), (signal.SIGCONT, share * DUTY_S)):
            process.send_signal(number)
            time.sleep(seconds)


def traffic_of(environment, output, rank, interval_s):
    """Where the rank's bytes are counted; None where nobody does. May add to the environment that the rank is to
    have."""
    if environment.get(TRANSPORT, "TCP") != "TCP":
        return TransportTraffic(environment, output, rank, interval_s)
    return InterfaceTraffic(environment[INTERFACE]) if environment.get(INTERFACE) else None


def sample_until_ended(probe, process, interval_s):
    """At whole intervals since it began, however long a sample takes. Returns how it ended."""
    intervals = 0
    while True:
        probe.sample(process.pid)
        elapsed = time.monotonic() - probe.began
        intervals = max(intervals, int(elapsed // interval_s)) + 1
        try:
            return process.wait(max(0.0, intervals * interval_s - elapsed))
        except subprocess.TimeoutExpired:
            pass


def run(program, output, interval_s, group=None, share=None):
    rank, environment = int(os.environ[RANK]), dict(os.environ)
    traffic_of_rank = traffic_of(environment, output, rank, interval_s)
    probe = Probe(environment.get(INTERFACE, ""), traffic_of_rank)
    process = subprocess.Popen(
        [*INTO_GROUP, group, *program] if group else program, stdin=subprocess.DEVNULL, env=environment
    )
    if share is not None:
        threading.Thread(target=hold_down, args=(process, share), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda given, _frame: process.send_signal(given))
    status = sample_until_ended(probe, process, interval_s)
    status = 128 - status if status < 0 else status
    target = output / f"probe-{rank}.json"
    partial = target.with_name(target.name + ".partial")
    partial.write_text(json.dumps(probe.record(rank, status)) + "\n")
    os.replace(partial, target)
    if isinstance(traffic_of_rank, TransportTraffic):
        traffic_of_rank.end()
    return status


def main():
    parser = argparse.ArgumentParser(prog="rank_probe.py", description="Runs one rank of a study and samples it.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a folder that exists")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="between two samples (default 1)")
    parser.add_argument("--limit-rank", type=int, metavar="R", help="the rank whose processor time is held down")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--limit-group", metavar="DIR", help="by starting it in this control group")
    how.add_argument(
        "--limit-share", type=float, metavar="P", help="by stopping it for all but this share of each 50 ms"
    )
    parser.add_argument("program", nargs="+")
    options = parser.parse_args()
    limit = (options.limit_group, options.limit_share) if options.limit_rank == int(os.environ[RANK]) else (None, None)
    try:
        return run(options.program, options.output, options.interval, *limit)
    except OSError as error:
        print(f"rank_probe: {error.filename or 'probe'}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
