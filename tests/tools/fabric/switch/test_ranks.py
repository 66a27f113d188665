"""Ranks over kernel TCP and over DPDK on one fabric: real processes, namespaces and sockets. Bounds on time are
one-sided: a busy machine is slower, and fails nothing."""

import json
import os
import subprocess
import tempfile

import pytest

from fabric_programs import FABRIC, FABRIC_RUN, PERF, counters, fabric_run, needs_namespaces, run

pytestmark = needs_namespaces
TRANSPORTS = ("TCP", "DPDK", "DPDK-netdev", "UDP")


def all_reduce(folder, transport, *words, perf):
    """An all-reduce of the benchmark on a fabric; its results and the fabric's counters."""
    results = folder / "perf.json"
    interface = [] if transport == "DPDK" else ["--interface", "fab0"]
    answer = fabric_run(
        folder / "run",
        "--transport",
        transport,
        *words,
        "--",
        PERF,
        "--transports",
        "{transport}",
        *interface,
        "--json",
        results,
        *perf,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return json.loads(results.read_text()), counters(folder / "run")


def edge(counted, source, destination):
    return next(edge for edge in counted["edges"] if (edge["from"], edge["to"]) == (source, destination))


def check_books(counted):
    """Hosts sent as many frames as edges were offered; hosts received the frames that edges delivered, or counters
    explain the difference."""
    assert sum(host["frames_in"] for host in counted["hosts"]) == sum(edge["offered"] for edge in counted["edges"])
    for host in counted["hosts"]:
        assert (
            host["malformed"]
            == host["too_long"]
            == host["no_memory"]
            == host["queue_full"]
            == host["not_forwarded"]
            == 0
        )
        arrived = sum(edge["delivered"] for edge in counted["edges"] if edge["to"] == host["name"])
        assert (
            host["frames_out"] + host["nobody_there"]
            <= arrived
            <= host["frames_out"] + host["nobody_there"] + counted["frames_under_way"]
        )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_AllReduce_DelayOnBothEdges_IsRightAndTakesARoundTrip(tmp_path, transport):
    delay_us = 25_000
    report, counted = all_reduce(
        tmp_path,
        transport,
        "--ranks",
        2,
        "--defaults",
        f"delay={delay_us}us",
        perf=["-b", 4, "-e", "256K", "-f", 65536, "-n", 3, "-w", 1],
    )
    assert report["wrong_total"] == 0
    # An element goes to the rank that reduces it, and comes back. That rank's own first all-reduce may find all its
    # data there (it left the barrier later), so three of them take two round trips, and the other one three.
    for result in report["results"]:
        assert result["transports"][0]["max_us"] >= 2 * delay_us
        assert result["transports"][0]["time_us"] >= 1.5 * delay_us
    for source, destination in (("r0", "r1"), ("r1", "r0")):
        assert edge(counted, source, destination)["mean_delay_ms"] == pytest.approx(delay_us / 1e3)
        assert edge(counted, source, destination)["delivered_bytes"] > 256 * 1024
    check_books(counted)


@pytest.mark.parametrize("transport", ("TCP", "DPDK"))
def test_AllReduce_Loss_IsRightAndWhatIsMissingIsCounted(tmp_path, transport):
    report, counted = all_reduce(
        tmp_path,
        transport,
        "--ranks",
        2,
        "--defaults",
        "loss=2%",
        "--seed",
        5,
        perf=["-b", "2M", "-e", "2M", "-n", 1, "-w", 0],
    )
    assert report["wrong_total"] == 0
    for each in counted["edges"]:
        assert each["lost_randomly"] > 0
        assert each["offered"] == each["accepted"] + each["lost_randomly"] and each["delivered"] == each["accepted"]
    check_books(counted)


@pytest.mark.parametrize("transport", ("TCP", "DPDK"))
def test_AllReduce_LinkGoesDownAndComesBack_Finishes(tmp_path, transport):
    # Several times, so that one of them falls into the run, however late it starts.
    events = [word for second in range(1, 60) for word in ("--event", f"at={second}s,from=r0,to=r1,down=200ms")]
    report, counted = all_reduce(
        tmp_path,
        transport,
        "--ranks",
        2,
        "--defaults",
        "delay=5ms",
        *events,
        perf=["-b", 4, "-e", 4, "-n", 250, "-w", 0],
    )
    assert report["wrong_total"] == 0
    assert edge(counted, "r0", "r1")["lost_while_down"] > 0
    assert edge(counted, "r1", "r0")["lost_while_down"] == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_AllReduce_UserWithoutRights_RunsTheSame(transport):
    if os.geteuid() != 0:
        pytest.skip("every other test here shows it")
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if (
        subprocess.run(
            [*user, "unshare", "--user", "--map-root-user", "--net", "true"], check=False, capture_output=True
        ).returncode
        != 0
    ):
        pytest.skip("users may make no user namespaces here")
    if any(subprocess.run([*user, "test", "-x", program], check=False).returncode != 0 for program in (FABRIC, PERF)):
        pytest.skip("the build folder is closed to other users")
    with tempfile.TemporaryDirectory(prefix="fabric-test-") as folder:
        os.chown(folder, 65534, 65534)
        environment = {**os.environ, "HOME": folder, "TMPDIR": folder}
        answer = run(
            [
                *user,
                FABRIC_RUN,
                "--fabric",
                FABRIC,
                "--output",
                f"{folder}/run",
                "--timeout",
                60,
                "--ranks",
                2,
                "--transport",
                transport,
                "--defaults",
                "delay=2ms",
                "--",
                PERF,
                "--transports",
                "{transport}",
                "-b",
                4,
                "-e",
                "256K",
                "-f",
                65536,
                "-n",
                2,
            ],
            env=environment,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "Out of bounds values : 0 OK" in answer.stdout


def test_AllReduce_JumboFramesOverMemif_AreFewAndRight(tmp_path):
    report, counted = all_reduce(
        tmp_path, "DPDK", "--ranks", 2, "--mtu", 9000, perf=["-b", "4M", "-e", "4M", "-n", 1, "-w", 0]
    )
    assert report["wrong_total"] == 0
    each = edge(counted, "r0", "r1")
    # Two all-reduces (one checked) of 4 MiB, and probes of the path.
    assert each["delivered_bytes"] > 2 * 4 * 2**20
    assert each["delivered_bytes"] / each["delivered"] > 3000
    check_books(counted)


@pytest.mark.parametrize("transport", ("TCP", "DPDK"))
def test_AllReduce_FourRanks_RingGoesOneWay(tmp_path, transport):
    report, counted = all_reduce(
        tmp_path,
        transport,
        "--ranks",
        4,
        "--edge",
        "from=r3,to=r2,delay=20ms",
        perf=["-b", "1M", "-e", "1M", "-n", 1, "-w", 0],
    )
    assert report["wrong_total"] == 0
    megabytes = {(each["from"], each["to"]): each["delivered_bytes"] / 1e6 for each in counted["edges"]}
    ring = {("r0", "r3"), ("r3", "r2"), ("r2", "r1"), ("r1", "r0")}
    # Each of two all-reduces: 2 (N - 1) / N of 1 MiB on each edge of the ring; on the others acknowledgements alone.
    assert all(megabytes[each] > 2 * 1.5 * 1.048576 for each in ring)
    assert all(volume < 0.3 for each, volume in megabytes.items() if each not in ring)


# Runs its arguments as two ranks of one host, of four in all.
TWO_RANKS = """
export WORLD_SIZE=4 GLOO_BYPASS_MEMIF_DIRECTORY=$1/host-$RANK
mkdir -m 700 "$GLOO_BYPASS_MEMIF_DIRECTORY"
first=$((2 * RANK))
shift
RANK=$((first + 1)) "$@" >/dev/null &
RANK=$first "$@"
status=$?
wait $! && exit $status
"""


# Operations over channels share trips, those through a host's memory do not. Near hosts: test_namespaces.py.
def test_OwnCollectives_TwoRanksAHostFarApart_UseChannelsAlone(tmp_path):
    with tempfile.TemporaryDirectory(prefix="gbf") as sockets:
        answer = fabric_run(
            tmp_path / "run",
            *("--transport", "UDP", "--ranks", 2, "--defaults", "delay=25ms", "--"),
            *("sh", "-c", TWO_RANKS, "sh", sockets, PERF, "--transports", "DPDK", "--collectives", "own"),
            *("--interface", "fab0", "-b", 4, "-e", "4M", "-f", 1024, "-n", 3, "-w", 1),
        )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Out of bounds values : 0 OK" in answer.stdout
    assert "DPDK/own: 2 hosts with round trips of up to " in answer.stdout, answer.stdout
    assert "shared memory" not in answer.stdout, answer.stdout
    check_books(counters(tmp_path / "run"))
