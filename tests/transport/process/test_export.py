"""Two ranks of all_reduce_perf over DPDK that publish their counters while they run: metrics over HTTP and in files,
DPDK's telemetry."""

import contextlib
import fcntl
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

PERF = os.environ["OBSERVABILITY_PERF"]
DEADLINE = 40
FOREVER = "1000000"


@pytest.fixture
def folder():
    """A short path, unlike pytest's own: it holds sockets."""
    with tempfile.TemporaryDirectory(prefix="gb-") as path:
        yield Path(path)


@contextlib.contextmanager
def ranks(folder, announcement, iterations=FOREVER, **environment):
    """Starts two ranks and waits until each has printed `announcement` (a pattern); returns the process and the matches
    by rank."""
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [PERF, "--ranks", "2", "--transports", "DPDK", "-b", "64K", "-e", "64K", "--iters", iterations],
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "GLOO_BYPASS_MEMIF_DIRECTORY": str(folder / "m"),
                "XDG_RUNTIME_DIR": str(folder),
                **environment,
            },
        )
    try:
        found, end = {}, time.monotonic() + DEADLINE
        while len(found) < 2:
            ended = process.poll() is not None
            found = dict(re.findall(rf"rank (\d+), process \d+: {announcement}\n", log.read_text()))
            assert len(found) == 2 or not ended, log.read_text()  # a short run may be over before it is looked at
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield process, found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def scrape(address):
    host, port = re.fullmatch(r"http://(.*):(\d+)/metrics", address).groups()
    connection = http.client.HTTPConnection(host, int(port), timeout=DEADLINE)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return response.read().decode()


def families(text):
    """As Prometheus's own parser reads it."""
    parser = pytest.importorskip("prometheus_client.parser")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def value(all_families, family, sample=None, **labels):
    return sum(
        s.value
        for s in all_families[family].samples
        if s.name == (sample or family) and all(s.labels.get(k) == v for k, v in labels.items())
    )


def until(condition):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError("did not come about")


def test_Http_TwoRanksRunning_EachServesItsOwnAndCountsOn(folder):
    with ranks(
        folder, r"metrics at (http://127\.0\.0\.1:\d+/metrics)", GLOO_BYPASS_METRICS="http://127.0.0.1:auto"
    ) as (_, addresses):
        assert addresses["0"] != addresses["1"]
        for rank, address in addresses.items():
            labels = {"rank": rank, "transport": "DPDK"}

            def sent():
                return value(
                    families(scrape(address)), "gloo_bypass_messages_sent", "gloo_bypass_messages_sent_total", **labels
                )

            first = until(sent)
            assert until(lambda: sent() > first)
            seen = families(scrape(address))
            assert seen["gloo_bypass_messages_sent"].type == "counter"
            assert seen["gloo_bypass_receive_seconds"].type == "histogram"
            assert value(seen, "gloo_bypass_open_channels", **labels) == 1
            count = value(seen, "gloo_bypass_receive_seconds", "gloo_bypass_receive_seconds_count", **labels)
            infinite = value(
                seen, "gloo_bypass_receive_seconds", "gloo_bypass_receive_seconds_bucket", le="+Inf", **labels
            )
            assert count == infinite > 0
            assert (
                0
                < value(seen, "gloo_bypass_receive_seconds", "gloo_bypass_receive_seconds_sum", **labels)
                < DEADLINE * count
            )
            peer = next(s for s in seen["gloo_bypass_channel_messages_sent"].samples if s.name.endswith("_total"))
            assert peer.labels["peer_rank"] == str(1 - int(rank)) and f"rank {1 - int(rank)}" in peer.labels["peer"]
            buckets = [s.value for s in seen["gloo_bypass_rtt_seconds"].samples if s.name.endswith("_bucket")]
            assert buckets == sorted(buckets) and buckets[-1] > 0


def test_Http_RankEnded_PortIsFree(folder):
    with ranks(
        folder, r"metrics at (http://127\.0\.0\.1:\d+/metrics)", iterations="3000", GLOO_BYPASS_METRICS="http://:auto"
    ) as (process, addresses):
        assert process.wait(timeout=DEADLINE) == 0, (folder / "log").read_text()
        for address in addresses.values():
            with pytest.raises(OSError):
                scrape(address)


def test_Http_PortInUse_OneLineAndFailure(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        target = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = subprocess.run(
            [PERF, "--ranks", "2", "--transports", "DPDK", "-b", "4", "-e", "4"],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env={**os.environ, "GLOO_BYPASS_METRICS": target, "GLOO_BYPASS_MEMIF_DIRECTORY": str(folder / "m")},
        )
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if "GLOO_BYPASS_METRICS" in line]
    assert lines and all(f"GLOO_BYPASS_METRICS='{target}'" in line and "in use" in line for line in lines), (
        result.stderr
    )


def test_File_TwoRanks_AreWrittenWhileRunningAndAtTheEnd(folder):
    (folder / "out").mkdir()
    environment = {
        **os.environ,
        "GLOO_BYPASS_METRICS": f"file:{folder}/out/rank%r.prom",
        "GLOO_BYPASS_METRICS_INTERVAL_MS": "100",
        "GLOO_BYPASS_MEMIF_DIRECTORY": f"{folder}/m\udcff",
        "GLOO_BYPASS_STATS": f"{folder}/stats%r.json",
    }
    process = subprocess.Popen(
        [PERF, "--ranks", "2", "--transports", "DPDK", "-b", "1M", "-e", "1M", "--iters", "6000"],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    path, counts = folder / "out" / "rank1.prom", set()

    def is_written_again():
        """Three counts: the first and the last may be of the start and of the end."""
        text = path.read_text() if path.exists() else ""
        counts.update(re.findall(r"^gloo_bypass_messages_sent_total\{.*\} (\d+)$", text, re.MULTILINE))
        return len(counts) > 2

    try:
        until(is_written_again)
        assert process.wait(timeout=DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
    assert sorted(os.listdir(folder / "out")) == ["rank0.prom", "rank1.prom"]
    for rank in ("0", "1"):
        stats = json.loads((folder / f"stats{rank}.json").read_text())
        text = (folder / "out" / f"rank{rank}.prom").read_text()
        labels = f'{{rank="{rank}",transport="DPDK"}}'
        assert f"gloo_bypass_payload_sent_bytes_total{labels} {stats['payload_bytes_sent']}\n" in text
        large = stats["latencies"]["send"]["up_to_1MiB"]
        assert large["count"] > 0 and 0 < large["p50"] <= large["p99"] <= large["max"]
        assert (
            value(families(text), "gloo_bypass_send_seconds", "gloo_bypass_send_seconds_count", size="up_to_1MiB")
            == large["count"]
        )


class Telemetry:
    """A client that behaves like dpdk-telemetry.py."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(path)
        self.limit = json.loads(self.socket.recv(1024))["max_output_len"]

    def ask(self, command):
        self.socket.send(command.encode())
        return json.loads(self.socket.recv(self.limit))[command.split(",")[0]]

    def close(self):
        self.socket.close()


def holds_open(process, directory):
    """Whether a process has the directory open."""
    with contextlib.suppress(FileNotFoundError):  # ended, or closed meanwhile
        return any(descriptor.resolve() == directory for descriptor in Path(f"/proc/{process}/fd").iterdir())
    return False


def test_Telemetry_AnotherProcessIsStarting_WaitsForItsTurn(folder):
    directory = folder / "dpdk"
    directory.mkdir()
    other = os.open(directory, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    process = subprocess.Popen(
        [PERF, "--ranks", "2", "--transports", "DPDK", "-b", "4", "-e", "4"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "GLOO_BYPASS_MEMIF_DIRECTORY": str(folder / "m"),
            "GLOO_BYPASS_TELEMETRY": "on",
            "RUNTIME_DIRECTORY": str(folder),
        },
    )
    try:
        children = until(
            lambda: [int(p) for p in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        )
        until(lambda: any(holds_open(child, directory) for child in children))
        assert not list(directory.rglob("dpdk_telemetry*"))
        os.close(other)  # and with it the lock
        _, errors = process.communicate(timeout=DEADLINE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    paths = re.findall(r"telemetry at (\S+)", errors)
    assert process.returncode == 0 and len(set(paths)) == 2, errors


def test_Telemetry_TwoRanksRunning_AnswersOurCommands(folder):
    with ranks(folder, r"telemetry at (\S+)", GLOO_BYPASS_TELEMETRY="on") as (_, paths):
        assert paths["0"] != paths["1"]
        for rank, path in paths.items():
            with contextlib.closing(Telemetry(path)) as telemetry:
                commands = telemetry.ask("/")
                assert {"/gloo_bypass/stats", "/gloo_bypass/peers", "/gloo_bypass/histograms"} <= set(commands)
                first = until(lambda: telemetry.ask("/gloo_bypass/stats").get("messages_sent"))
                assert until(lambda: telemetry.ask("/gloo_bypass/stats")["messages_sent"] > first)
                peers = telemetry.ask("/gloo_bypass/peers")
                assert peers["left_out"] == 0 and peers["channel_0"]["peer_rank"] == 1 - int(rank)
                assert set(telemetry.ask("/gloo_bypass/peers,0")) == {"channel_0"}
                assert telemetry.ask("/gloo_bypass/peers,77") == {}
                receive = telemetry.ask("/gloo_bypass/histograms")["receive_up_to_32KiB"]
                assert receive["count"] > 0 and receive["p50_ns"] <= receive["max_ns"]


def test_Telemetry_NotAskedFor_NoSocket(folder):
    process = subprocess.run(
        [PERF, "--ranks", "2", "--transports", "DPDK", "-b", "4", "-e", "4"],
        timeout=DEADLINE,
        capture_output=True,
        text=True,
        env={**os.environ, "GLOO_BYPASS_MEMIF_DIRECTORY": str(folder / "m"), "XDG_RUNTIME_DIR": str(folder)},
    )
    assert process.returncode == 0 and "telemetry" not in process.stderr
