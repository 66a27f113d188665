"""One of the two ranks of scripts/fabric-accuracy: accuracy_rank.py PLAN REPORT. Rank 0 sends datagrams to rank 1,
which writes the report. They agree over the control network (MASTER_ADDR)."""

import json
import os
import socket
import statistics
import struct
import sys
import time

PORT = 9100
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 64 << 20
CONNECT_S = 30.0
# After the sender's last datagram: longer than the longest delay that is measured.
QUIET_S = 1.0
FRAME_HEADERS = 42
HEADER = struct.Struct("!QQ")  # number, time of sending (ns)


def meet(rank):
    """A connection between the ranks, beside the fabric."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(address) as server:
            server.settimeout(CONNECT_S)
            return server.accept()[0]
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            return socket.create_connection(address, timeout=CONNECT_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def send(plan, control):
    target = (socket.gethostbyname("r1"), PORT)
    filling = bytes(plan["bytes"] - HEADER.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        control.recv(1)
        # Finds the other's MAC address first, which takes a round trip.
        datagrams.sendto(HEADER.pack(2**64 - 1, 0) + filling, target)
        control.recv(1)
        begin = time.monotonic()
        for number in range(plan["frames"]):
            ahead = begin + number / plan["per_second"] - time.monotonic()
            if ahead > 0.0002:
                time.sleep(ahead)
            datagrams.sendto(HEADER.pack(number, time.clock_gettime_ns(time.CLOCK_REALTIME)) + filling, target)
    control.sendall(b"e")
    control.recv(1)


def receive(plan, control, path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        for option in (SO_RCVBUFFORCE, socket.SO_RCVBUF):
            try:
                datagrams.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
                break
            except OSError:
                continue
        datagrams.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        datagrams.bind(("", PORT))
        datagrams.settimeout(CONNECT_S)
        control.sendall(b"r")
        # A lost one is sent again by nobody: its MAC address is known by then all the same.
        datagrams.settimeout(QUIET_S)
        try:
            datagrams.recv(1 << 16)
        except TimeoutError:
            pass
        control.sendall(b"r")
        arrivals = collect(plan, datagrams, control)
    write_report(plan, arrivals, path)
    control.sendall(b"e")


def collect(plan, datagrams, control):
    """(number, sent, arrived) of each datagram."""
    arrivals = []
    ended = False
    datagrams.settimeout(QUIET_S)
    control.setblocking(False)
    while True:
        try:
            data, ancillary, _, _ = datagrams.recvmsg(1 << 16, 64)
        except TimeoutError:
            if ended:
                return arrivals
            try:
                ended = bool(control.recv(1))
            except BlockingIOError:
                pass
            continue
        number, sent = HEADER.unpack_from(data)
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
        if number < plan["frames"]:
            arrivals.append((number, sent, seconds * 10**9 + nanoseconds))


def arrival_rate(plan, times):
    """The rate over the later two thirds, when the edge's queue is full."""
    times = times[len(times) // 3 :]
    # The first one's bytes came before the time that is counted.
    return 8 * (len(times) - 1) * (plan["bytes"] + FRAME_HEADERS) / max(1e-9, (times[-1] - times[0]) / 1e9)


def write_report(plan, arrivals, path):
    report = {"sent": plan["frames"], "received": len(arrivals)}
    if len(arrivals) > 1:
        delays = sorted((arrived - sent) / 1e6 for _, sent, arrived in arrivals)
        report["delay_ms"] = {
            "p50": statistics.median(delays),
            "p99": delays[int(0.99 * (len(delays) - 1))],
            "max": delays[-1],
        }
        offered = (max(arrival[1] for arrival in arrivals) - min(arrival[1] for arrival in arrivals)) / 1e9
        span = max(arrival[0] for arrival in arrivals) - min(arrival[0] for arrival in arrivals)
        report["offered_bits_per_second"] = 8 * span * (plan["bytes"] + FRAME_HEADERS) / max(offered, 1e-9)
        report["frame_bits_per_second"] = arrival_rate(plan, sorted(arrived for _, _, arrived in arrivals))
    with open(path, "w", encoding="ascii") as file:
        json.dump(report, file)


def main():
    plan, path, rank = json.loads(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
    with meet(rank) as control:
        if rank == 0:
            send(plan, control)
        else:
            receive(plan, control, path)


if __name__ == "__main__":
    main()
