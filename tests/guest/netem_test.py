"""`fabric --netem` against the kernel: its script is taken, and datagrams meet what the description says. Runs inside
the guest.

    FABRIC=... pytest netem_test.py

Bounds on time are one-sided, so that a slow machine passes. netem's own random numbers have no seed: bounds on loss are
6 deviations wide, which chance exceeds once in 5e8 runs.
"""

import ctypes
import math
import os
import socket
import subprocess
import threading
import time

import pytest

FABRIC = os.environ["FABRIC"]
SPACE, NEAR, FAR = "netem-test", "netem-near", "netem-far"
HERE, PEERS = "10.88.0.2", ["10.88.0.3", "10.88.0.4"]  # r0; r1 and r2
PORT = 7000
QUIET_SECONDS = 2.0  # nothing more arrives: longer than any delay here
CLONE_NEWNET = 0x40000000
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h


def run(*command):
    return subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE, timeout=60).stdout


def socket_inside(address):
    """A socket stays in the network namespace that it was made in; the thread that entered it ends."""
    made = []

    def make():
        with open(f"/run/netns/{SPACE}", "rb") as namespace:
            assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) == 0, os.strerror(
                ctypes.get_errno()
            )
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        receiver.bind((address, PORT))
        made.append(receiver)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


class Path:
    """r0 is here, on the interface NEAR; r1 and r2 are in a namespace behind it."""

    def __init__(self):
        self.sender, self.receivers = None, []
        try:
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self):
        run("ip", "netns", "add", SPACE)
        run("ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", SPACE)
        run("ip", "address", "add", f"{HERE}/24", "dev", NEAR)
        run("ip", "link", "set", NEAR, "up")
        for address in PEERS:
            run("ip", "-n", SPACE, "address", "add", f"{address}/24", "dev", FAR)
        run("ip", "-n", SPACE, "link", "set", FAR, "up")
        self.sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.receivers = [socket_inside(address) for address in PEERS]
        for rank in (1, 2):  # neighbours are known before the first measured datagram
            self.send(rank, b"")
            self.receivers[rank - 1].settimeout(30)
            assert self.receivers[rank - 1].recv(10) == b""

    def close(self):
        for each in [self.sender] * (self.sender is not None) + self.receivers:
            each.close()
        subprocess.run(["ip", "link", "del", NEAR], check=False)
        subprocess.run(["ip", "netns", "del", SPACE], check=False)

    def emulate(self, *flags):
        script = run(FABRIC, "--ranks", "3", "--network", "10.88.0.0/24", *flags, "--netem", f"r0={NEAR}")
        subprocess.run(["sh"], input=script, text=True, check=True, timeout=60)

    def send(self, rank, payload):
        self.sender.sendto(payload, (PEERS[rank - 1], PORT))

    def receive_all(self, rank, quiet=QUIET_SECONDS):
        """(time, payload) of what arrives, until nothing has for `quiet` seconds."""
        receiver = self.receivers[rank - 1]
        receiver.settimeout(quiet)
        arrived = []
        while True:
            try:
                payload = receiver.recv(65536)
            except TimeoutError:
                return arrived
            arrived.append((time.monotonic(), payload))


@pytest.fixture(scope="module")
def network():
    made = Path()
    yield made
    made.close()


@pytest.fixture
def path(network):
    """Without a qdisc, and with nothing under way."""
    yield network
    subprocess.run(["tc", "qdisc", "del", "dev", NEAR, "root"], check=False, stderr=subprocess.DEVNULL)
    for rank in (1, 2):
        network.receive_all(rank, quiet=0.01)


def test_Netem_DelayAndJitter_FramesAreLateEnoughAndInOrder(path):
    path.emulate("--edge", "from=r0,to=r1,delay=100ms,jitter=50ms")
    sent = []
    for number in range(200):
        sent.append(time.monotonic())
        path.send(1, str(number).encode())
    arrived = path.receive_all(1)
    assert [int(payload) for _, payload in arrived] == list(range(200))
    # The receiver's own clock reading is later than the arrival, never earlier.
    assert all(when - sent[int(payload)] >= 0.1 for when, payload in arrived)


def test_Netem_Loss_IsItsShareOfThatEdgeAlone(path):
    path.emulate("--edge", "from=r0,to=r1,loss=20%")
    for number in range(800):
        for rank in (1, 2):
            path.send(rank, str(number).encode())
    assert abs(len(path.receive_all(1)) - 640) < 6 * math.sqrt(800 * 0.2 * 0.8)
    assert len(path.receive_all(2)) == 800


def test_Netem_Rate_TakesItsTime(path):
    path.emulate("--edge", "from=r0,to=r1,rate=1Mbit/s,queue=unlimited")
    path.sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 24)
    start = time.monotonic()
    for _ in range(200):
        path.send(1, bytes(1000))
    arrived = path.receive_all(1)
    assert len(arrived) == 200
    frames = 200 * (1000 + 8 + 20 + 14)
    assert arrived[-1][0] - start >= (frames - 16384) * 8 / 1e6  # 16,384 bytes go at once


def test_Netem_Queue_LosesWhatDoesNotFit(path):
    path.emulate("--edge", "from=r0,to=r1,rate=1Mbit/s,queue=20kB,delay=1s")
    path.sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 24)
    for _ in range(200):
        path.send(1, bytes(1000))
    # The queue holds 19 frames of 1,042 bytes. All reach it within less than a second, in which the link takes 125,000
    # bytes of 208,400. On a fast machine they do at once: netem gives the queue all frames that are due before the link
    # takes one.
    arrived = len(path.receive_all(1))
    assert 19 <= arrived < 200


def test_Netem_Events_ChangeTheEdgeWhileTheScriptRuns(path):
    path.emulate(
        "--edge",
        "from=r0,to=r1,jitter=1ms,corruption=1%",
        "--event",
        "at=100ms,for=100ms,from=r0,to=r1,rate=1Mbit/s",
        "--event",
        "at=300ms,from=r0,to=r1,down=forever",
        "--event",
        "at=400ms,from=r0,to=r2,down=100ms",
    )
    for rank in (1, 2):
        path.send(rank, b"x")
    assert path.receive_all(1) == []
    assert [payload for _, payload in path.receive_all(2)] == [b"x"]


def test_Netem_Removal_LeavesNothing(path):
    script = run(FABRIC, "--ranks", "3", "--edge", "from=r0,to=r1,delay=1ms,rate=1Mbit/s", "--netem", f"r0={NEAR}")
    before = run("tc", "qdisc", "show", "dev", NEAR)
    subprocess.run(["sh"], input=script, text=True, check=True, timeout=60)
    assert "netem" in run("tc", "qdisc", "show", "dev", NEAR)
    removal = script.splitlines()[0].removeprefix("# for root; ").removesuffix(" removes it")
    run(*removal.split())
    assert run("tc", "qdisc", "show", "dev", NEAR) == before
