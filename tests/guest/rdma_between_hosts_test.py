"""GLOO_BYPASS_NETWORK=rdma over SoftRoCE: two hosts of two ranks, memory within each, queue pairs between them. Runs
inside the guest.

    FABRIC=... ALL_REDUCE_PERF=... DDP_TRAIN=... pytest rdma_between_hosts_test.py

A host is a memif directory: SoftRoCE works in the initial network namespace only, where every rank has a device of its
own on a link of scripts/fabric-run. What crosses no link has not left its host.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

FABRIC_RUN = Path(__file__).resolve().parents[2] / "scripts" / "fabric-run"
FABRIC, PERF = os.environ["FABRIC"], os.environ["ALL_REDUCE_PERF"]
TRAINER = os.environ.get("DDP_TRAIN", "")  # empty: this build has none
# Four programs that load libtorch on an emulated processor: a bound that only a hang reaches.
RUN_S = 300
RANKS, PER_HOST = 4, 2
BYTES = 1 << 20

# Runs each rank; arguments are the folder for hosts and counters, then the command.
AS_RANK = f'''export GLOO_BYPASS_NETWORK=rdma
export GLOO_BYPASS_MEMIF_DIRECTORY=$1/host$((RANK / {PER_HOST})) GLOO_BYPASS_STATS=$1/stats-$RANK.json
shift
exec "$@"'''


@pytest.fixture(name="folder")
def short_folder():
    """Memif's sockets have short names; tmp_path has not."""
    with tempfile.TemporaryDirectory(prefix="gb") as name:
        yield Path(name)


def run(folder, *command, links="RDMA"):
    """`command` in every rank; returns the counters of the links. `links`: for what fabric-run makes them."""
    done = subprocess.run(
        [
            FABRIC_RUN,
            "--fabric",
            FABRIC,
            "--where",
            "host",
            "--transport",
            links,
            "--ranks",
            str(RANKS),
            "--output",
            folder / "run",
            "--timeout",
            str(RUN_S),
            "--env",
            "GLOO_BYPASS_RDMA_TIMEOUT=22",
            "--",
            "sh",
            "-c",
            AS_RANK,
            "sh",
            folder,
            *command,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S + 30,
        check=False,
    )
    logs = [path.read_text(errors="replace") for path in sorted((folder / "run").glob("rank-*.log"))]
    assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
    return json.loads((folder / "run" / "fabric.json").read_text())


def test_AllReduce_TwoHostsOfTwo_IsAsRightAsTcpAndOnlyWhatGoesBetweenThemIsRdma(folder):
    report = folder / "perf.json"
    links = run(
        folder,
        PERF,
        "--transports",
        "TCP,DPDK",
        "-b",
        str(BYTES),
        "-e",
        str(BYTES),
        "-n",
        "1",
        "-w",
        "1",
        "-c",
        "1",
        "--rounds",
        "1",
        "--json",
        report,
    )
    results = json.loads(report.read_text())["results"][0]["transports"]
    assert [(one["transport"], one["wrong"]) for one in results] == [("TCP", 0), ("DPDK", 0)]

    # The payload of each rank; in a ring every other one sends to the other host.
    payload = 3 * 2 * (RANKS - 1) * BYTES // RANKS
    stats = [json.loads((folder / f"stats-{rank}.json").read_text()) for rank in range(RANKS)]
    for counter in ("bytes_received", "rdma_bytes_received"):
        received = [rank["port"][counter] for rank in stats]
        assert 2 * payload <= sum(received) < 2.1 * payload, (counter, received)
    by_edge = {(edge["from"], edge["to"]): edge["delivered_bytes"] for edge in links["edges"] if edge["delivered"]}
    host = {f"r{rank}": rank // PER_HOST for rank in range(RANKS)}
    assert {(a, b) for a, b in by_edge} == {(a, b) for a in host for b in host if host[a] != host[b]}
    assert sum(bytes_of_edge > payload for bytes_of_edge in by_edge.values()) == 2, by_edge


@pytest.mark.skipif(not TRAINER, reason="this build has no trainer")
def test_Training_TwoHostsOfTwo_EndsWithTcpsParameters(folder):
    digests = {}
    for transport, links in (("TCP", "TCP"), ("DPDK", "RDMA")):
        metrics = folder / f"{transport}.jsonl"
        run(
            folder / transport,
            "env",
            f"GLOO_DEVICE_TRANSPORT={transport}",
            TRAINER,
            "--model",
            "tiny",
            "--steps",
            "2",
            "--metrics",
            metrics,
            links=links,
        )
        record = json.loads(metrics.read_text().splitlines()[-1])
        assert record["transport"] == transport
        digests[transport] = record["sha256"]
    assert digests["TCP"] == digests["DPDK"]
