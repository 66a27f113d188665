"""Groups of two hosts with two ranks each, in network namespaces: memory within a host, UDP between hosts."""

import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "plugin" / "torch"))
from hosts import INTERFACE, Hosts, why_not  # noqa: E402

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
SIZE, PER_HOST = 4, 2
HANG_SECONDS = 90
# The host of each rank.
PLACEMENTS = {"in turn": [0, 1, 0, 1], "host by host": [0, 0, 1, 1]}


class Programs:
    """all_reduce_perf as one process a rank."""

    def __init__(self, hosts, placement, *arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="gbn")
        self.ranks = []
        for rank, host in enumerate(placement):
            memif = Path(hosts.memif_directory(host))
            memif.mkdir(mode=0o700, exist_ok=True)
            environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOO_")}
            environment.update(RANK=str(rank), WORLD_SIZE=str(SIZE), GLOO_BYPASS_MEMIF_DIRECTORY=str(memif))
            command = [*hosts.inside(host), os.environ["ALL_REDUCE_PERF"], "--store-dir", f"{self.folder.name}/store"]
            self.ranks.append(
                subprocess.Popen(
                    [*command, "--interface", INTERFACE, "--transports", "DPDK", "--collectives", "own", *arguments],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def __enter__(self):
        return self

    def ended(self, rank):
        """Status, stdout and stderr."""
        out, error = self.ranks[rank].communicate(timeout=HANG_SECONDS)
        return self.ranks[rank].returncode, out, error

    def __exit__(self, *unused):
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.communicate()
        self.folder.cleanup()


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS.keys())
def test_AllReduce_TwoHostsOfTwoRanks_IsRightAndUsesBothLinks(placement):
    with Hosts(2) as hosts, Programs(hosts, placement, "-b", "4", "-e", "16M", "-f", "8", "-n", "3") as programs:
        for rank in range(SIZE):
            status, out, error = programs.ended(rank)
            assert status == 0, error
            if rank == 0:
                assert len(re.findall(r"2 hosts: flat shared memory within each, 2 here", out)) == SIZE, out
                assert "Out of bounds values : 0 OK" in out, out
        # Sixteen MiB three times and more, half of them to the other host: memory carried the rest.
        assert hosts.sent_bytes(0) > 3 * (16 << 20)


def test_AllReduce_ARankIsKilled_AllOthersOfBothHostsNameItSoon():
    with ExitStack() as stack:
        hosts = stack.enter_context(Hosts(2))
        programs = stack.enter_context(
            Programs(hosts, PLACEMENTS["host by host"], "-b", "1M", "-e", "1M", "-n", "1000000", "-c", "0")
        )
        before, deadline = hosts.sent_bytes(0), time.monotonic() + HANG_SECONDS
        while hosts.sent_bytes(0) < before + (64 << 20):
            assert time.monotonic() < deadline, "the ranks do not begin"
            assert all(rank.poll() is None for rank in programs.ranks), programs.ended(0)
        programs.ranks[3].kill()  # `ip netns exec` has become the program
        began = time.monotonic()
        for rank in range(3):
            status, _, error = programs.ended(rank)
            assert status == 1 and "rank 3" in error, error
        assert time.monotonic() - began < 20
