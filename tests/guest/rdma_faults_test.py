"""Real processes over SoftRoCE that are killed, stopped, or lose their device. Runs inside the guest: it changes the
guest's network.

    ALL_REDUCE_PERF=... pytest rdma_faults_test.py
"""

import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = os.environ["ALL_REDUCE_PERF"]
HANG_SECONDS = 60  # emulated, and perhaps on a busy machine: a bound that only a hang reaches
LONG = 50  # an operation's time limit that no test waits for


def interface_and_device():
    links = subprocess.run(["rdma", "link"], text=True, stdout=subprocess.PIPE, check=True).stdout
    found = re.search(r"link (\w+)/1 state ACTIVE .*netdev (\w+)", links)
    assert found, f"no active RDMA device: {links}"
    return found.group(2), found.group(1)


class Ranks:
    """Ranks that all-reduce `size` for ever over RDMA, or `iterations` times. Ended whatever happens."""

    def __init__(self, folder, count=2, size="64K", iterations=10**6, timeout=LONG, environment=None, before=None):
        self.folder = folder
        self.processes = []
        for rank in range(count):
            variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), **(environment or {}))
            with open(folder / f"output-{rank}", "wb") as output:
                self.processes.append(
                    subprocess.Popen(
                        [
                            PROGRAM,
                            "--transports",
                            "RDMA",
                            "-b",
                            size,
                            "-e",
                            size,
                            "-n",
                            str(iterations),
                            "-w",
                            "1",
                            "-c",
                            "1",
                            "--timeout",
                            str(timeout),
                            "--store-dir",
                            str(folder / "store"),
                        ],
                        env=variables,
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        preexec_fn=before,
                    )
                )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=HANG_SECONDS)

    def output(self, rank):
        return (self.folder / f"output-{rank}").read_text(errors="replace")

    def wait(self, rank):
        return self.processes[rank].wait(timeout=HANG_SECONDS)

    def wait_until_running(self):
        """The ranks are connected and reduce: the process moves frames (its CPU time grows). Soon, since some runs here
        are short."""
        end = time.monotonic() + HANG_SECONDS
        while "# size" not in self.output(0) and "#       size" not in self.output(0):
            self.check_alive(end)
        start = self.cpu_ticks()
        while self.cpu_ticks() < start + 5:
            self.check_alive(end)

    def check_alive(self, end):
        for rank, process in enumerate(self.processes):
            assert process.poll() is None, f"rank {rank} ended:\n{self.output(rank)}"
        assert time.monotonic() < end, f"does not run:\n{self.output(0)}"
        time.sleep(0.02)

    def cpu_ticks(self):
        fields = open(f"/proc/{self.processes[0].pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])


def test_Kill_OneOfThree_OthersNameItLongBeforeTheTimeout(tmp_path):
    with Ranks(tmp_path, count=3) as ranks:
        ranks.wait_until_running()
        begin = time.monotonic()
        ranks.processes[2].send_signal(signal.SIGKILL)
        for rank in (0, 1):
            assert ranks.wait(rank) != 0
            assert re.search(r"rank [012]\b", ranks.output(rank)), ranks.output(rank)
        assert time.monotonic() - begin < LONG / 2
        named = ranks.output(0) + ranks.output(1)
        assert re.search(r"lost its connection to rank 2\b", named), named


def test_Stop_LongerThanTheTimeout_TimeoutError(tmp_path):
    with Ranks(tmp_path, timeout=3) as ranks:
        ranks.wait_until_running()
        ranks.processes[1].send_signal(signal.SIGSTOP)
        assert ranks.wait(0) != 0
        assert "imed out" in ranks.output(0), ranks.output(0)


def test_Stop_RankResumesInTime_NothingIsLost(tmp_path):
    with Ranks(tmp_path, iterations=300) as ranks:
        ranks.wait_until_running()
        ranks.processes[1].send_signal(signal.SIGSTOP)
        time.sleep(1)  # the length of the stop is the test, not a wait for something
        ranks.processes[1].send_signal(signal.SIGCONT)
        assert [ranks.wait(0), ranks.wait(1)] == [0, 0], ranks.output(0) + ranks.output(1)
        assert "Out of bounds values : 0 OK" in ranks.output(0), ranks.output(0)


def test_InterfaceDownAndUp_InMidRun_GoesOnOrFailsNamingThePeer(tmp_path):
    interface, _ = interface_and_device()
    with Ranks(tmp_path, iterations=400) as ranks:
        ranks.wait_until_running()
        subprocess.run(["ip", "link", "set", interface, "down"], check=True)
        subprocess.run(["ip", "link", "set", interface, "up"], check=True)
        statuses = [ranks.wait(0), ranks.wait(1)]
        if statuses == [0, 0]:
            assert "Out of bounds values : 0 OK" in ranks.output(0), ranks.output(0)
        else:
            assert re.search(r"rank [01]\b.*(lost|closed)", ranks.output(0) + ranks.output(1)), ranks.output(
                0
            ) + ranks.output(1)
    # The device serves the next run.
    wait_for_gid()
    (tmp_path / "again").mkdir()
    with Ranks(tmp_path / "again", iterations=3) as ranks:
        assert [ranks.wait(0), ranks.wait(1)] == [0, 0], ranks.output(0) + ranks.output(1)


def wait_for_gid():
    end = time.monotonic() + HANG_SECONDS
    while True:
        try:
            interface_and_device()
            return
        except AssertionError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_LinkDeleted_InMidRun_RunsEndAndTheDeviceGoes(tmp_path):
    """The kernel keeps a SoftRoCE device for those who have it open, and takes it away when they are gone."""
    interface, device = interface_and_device()
    with Ranks(tmp_path, iterations=200) as ranks:
        ranks.wait_until_running()
        deletion = subprocess.Popen(["rdma", "link", "delete", device])
        try:
            statuses = [ranks.wait(0), ranks.wait(1)]
            text = ranks.output(0) + ranks.output(1)
            assert statuses == [0, 0] or re.search(r"rank [01]\b", text), text
            assert deletion.wait(timeout=HANG_SECONDS) == 0
        finally:
            if deletion.poll() is None:
                deletion.kill()
            subprocess.run(["rdma", "link", "add", device, "type", "rxe", "netdev", interface], check=False)
    wait_for_gid()


def test_NoDevice_SaysWhatToDo(tmp_path):
    interface, device = interface_and_device()
    subprocess.run(["rdma", "link", "delete", device], check=True)
    try:
        with Ranks(tmp_path) as ranks:
            assert ranks.wait(0) != 0
            assert "rdma link add" in ranks.output(0), ranks.output(0)
    finally:
        subprocess.run(["rdma", "link", "add", device, "type", "rxe", "netdev", interface], check=True)
    wait_for_gid()


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("GLOO_BYPASS_RDMA_DEVICES", "mlx9_0", "mlx9_0"),
        ("GLOO_BYPASS_RDMA_GID_INDEX", "200", "GID"),
        ("GLOO_BYPASS_RDMA_PORT", "7", "port"),
    ],
)
def test_WrongChoice_IsNamed(tmp_path, name, value, expected):
    with Ranks(tmp_path, environment={name: value}) as ranks:
        assert ranks.wait(0) != 0
        assert expected in ranks.output(0), ranks.output(0)
        assert "Traceback" not in ranks.output(0)


def test_NoActivePort_IsNamed(tmp_path):
    interface, device = interface_and_device()
    subprocess.run(["ip", "link", "set", interface, "down"], check=True)
    try:
        with Ranks(tmp_path, environment={"GLOO_BYPASS_RDMA_DEVICES": device}) as ranks:
            assert ranks.wait(0) != 0
            assert re.search(device + r".*port", ranks.output(0)), ranks.output(0)
    finally:
        subprocess.run(["ip", "link", "set", interface, "up"], check=True)
    wait_for_gid()


def test_NoGidOfAnAddress_IsNamed(tmp_path):
    """A device on an interface without an IPv4 address, so without the required GID."""
    run_quietly("ip link add bare0 type veth peer name bare1")
    try:
        for link in ("bare0", "bare1"):
            run_quietly(f"ip link set {link} up")
        run_quietly("rdma link add rxebare type rxe netdev bare0")
        with Ranks(tmp_path, environment={"GLOO_BYPASS_RDMA_DEVICES": "rxebare"}) as ranks:
            assert ranks.wait(0) != 0
            assert re.search(r"rxebare.*GID", ranks.output(0)), ranks.output(0)
        run_quietly("rdma link delete rxebare")
    finally:
        run_quietly("ip link delete bare0")


@pytest.mark.parametrize("mebibytes, what", [(1, "message buffers"), (7, "a message")])
def test_LockedMemoryTooSmall_NamesLimitAndNeed(tmp_path, mebibytes, what):
    def as_nobody_with_little_locked_memory():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (mebibytes << 20, mebibytes << 20))
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    os.chmod(tmp_path, 0o777)
    for parent in tmp_path.parents:
        if parent != parent.parent:
            os.chmod(parent, os.stat(parent).st_mode | 0o111)
    with Ranks(tmp_path, size="16M", before=as_nobody_with_little_locked_memory) as ranks:
        statuses = [ranks.wait(0), ranks.wait(1)]
        text = ranks.output(0) + ranks.output(1)
        assert 0 not in statuses, text
        assert "RLIMIT_MEMLOCK" in text and f"{mebibytes}.0 MiB" in text and what in text, text


def run_quietly(command):
    subprocess.run(command.split(), check=True)


def test_TwoDevices_AreStriped(tmp_path):
    _, device = interface_and_device()
    run_quietly("ip link add rail0 mtu 9000 type veth peer name rail1 mtu 9000")
    try:
        for link in ("rail0", "rail1"):
            run_quietly(f"ip link set {link} up")
        run_quietly("ip addr add 10.78.0.1/24 dev rail0")
        run_quietly("rdma link add rxerail type rxe netdev rail0")
        with Ranks(
            tmp_path, iterations=5, size="4M", environment={"GLOO_BYPASS_RDMA_DEVICES": f"{device},rxerail"}
        ) as ranks:
            assert [ranks.wait(0), ranks.wait(1)] == [0, 0], ranks.output(0) + ranks.output(1)
            assert "Out of bounds values : 0 OK" in ranks.output(0), ranks.output(0)
        packets = int((Path("/sys/class/infiniband/rxerail/ports/1/hw_counters/sent_pkts")).read_text())
        assert packets > 1000, "the second device carried nothing"
        subprocess.run(["rdma", "link", "delete", "rxerail"], check=True)
    finally:
        run_quietly("ip link delete rail0")
