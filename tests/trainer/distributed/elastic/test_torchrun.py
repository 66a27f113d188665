"""ddp_train --elastic under torchrun of PyTorch from pip: an agent is lost with its rank, another one comes.

The agents' commands are those of trainer/distributed/elastic/README.md. They run on hosts of their own (network
namespaces), or where these cannot be had on this one.
"""

import collections
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests" / "plugin" / "torch"))  # hosts.py, ranks.py
from hosts import INTERFACE, Hosts, why_not  # noqa: E402
from ranks import FROM_WHEEL, HANG_SECONDS, PYTHON, clean_environment, free_port  # noqa: E402

DDP_TRAIN = pathlib.Path(os.environ.get("DDP_TRAIN", ROOT / "build/trainer/ddp_train"))
PLUGIN = DDP_TRAIN.parents[1] / "plugin/libgloo_bypass.so"
README = ROOT / "trainer/distributed/elastic/README.md"
SAMPLES, BATCH, STEPS = 240, 4, 60  # one epoch; of MAX ranks
TRAINING = ["--model", "tiny", "--seq-length", "16", "--precision", "fp64", "--samples", str(SAMPLES), "--no-progress"]
# A lost agent is noticed after 5 s, and no agent waits for more machines than there are.
SHORT_WAITS = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=1"
PIPE_BYTES = 4096  # some records

pytestmark = [
    pytest.mark.skipif(not FROM_WHEEL, reason="needs torchrun of PyTorch from pip: scripts/test --wheel VERSION"),
    pytest.mark.skipif(not DDP_TRAIN.exists(), reason=f"{DDP_TRAIN} is not built: scripts/build"),
]


class OneHost:
    """For machines without network namespaces: two addresses of this machine; the ranks share memory over DPDK."""

    interface = "lo"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        shutil.rmtree(self.memif_directory(0), ignore_errors=True)

    def memif_directory(self, _):
        return f"/tmp/gbt{os.getpid()}"

    def address(self, host):
        return f"127.0.0.{host + 1}"

    def inside(self, _):
        return []


class TwoHosts(Hosts):
    interface = INTERFACE


@pytest.fixture
def hosts():
    with OneHost() if why_not() else TwoHosts(2) as place:
        yield place


def documented_commands():
    """By address: the command that starts an agent there."""
    lines = re.findall(r"^(torchrun .*--local_addr (\S+) .*)$", README.read_text().replace("\\\n", " "), re.MULTILINE)
    return {address: shlex.split(line) for line, address in lines}


class Agent:
    """torchrun on a host, with one rank. `read` gives the rank's records at the test's pace: the pipe is small, and a
    rank with unread records waits. So nothing here depends on how fast the machine trains."""

    def __init__(self, command, environment, log):
        self.log, self.rest, self.output = log, b"", None
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                pipesize=PIPE_BYTES,
                start_new_session=True,
            )
        self.output = self.process.stdout.fileno()

    def said(self):
        return self.log.read_text(errors="replace")

    def read(self, end):
        """The next record; None once there will be none."""
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.output], [], [], max(0, end - time.monotonic()))
            assert ready, f"no record in time:\n{self.said()}"
            more = os.read(self.output, PIPE_BYTES)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def read_until(self, wanted):
        """Records up to the last one wanted."""
        end, records = time.monotonic() + HANG_SECONDS, []
        while not (records and wanted(records[-1])):
            record = self.read(end)
            assert record is not None, f"no such record among {records}:\n{self.said()}"
            records.append(record)
        return records

    def finish(self):
        """The records that are left, and the exit status."""
        end, records = time.monotonic() + HANG_SECONDS, []
        while record := self.read(end):
            records.append(record)
        return records, self.process.wait(max(1, end - time.monotonic()))

    def succeed(self):
        records, status = self.finish()
        assert status == 0, self.said()
        return records

    def kill(self):
        """Kills it with its rank, without a message to the others."""
        if self.process.poll() is not None:
            return
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        ranks = [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
        for pid in [self.process.pid, *ranks]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


class Agents:
    """`with Agents(hosts, folder, "TCP") as agents: agents.start("10.0.0.1")`, with an address of README.md. Its first
    machine, which serves the rendezvous, is host 1 here: ranks are numbered by address, so that rank 0 leaves and
    returns."""

    def __init__(self, hosts, folder, transport):
        self.hosts, self.folder, self.port, self.started = hosts, folder, free_port(), []
        self.environment = {
            **clean_environment(),
            "OMP_NUM_THREADS": "1",
            "GLOO_DEVICE_TRANSPORT": transport,
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "TMPDIR": str(folder),
        }  # a killed agent leaves its folder
        del self.environment["USE_LIBUV"]
        if transport == "TCP":  # Gloo's own takes the address of the host's name
            self.environment["GLOO_SOCKET_IFNAME"] = hosts.interface

    def start(self, documented_address, arguments=(), restarts=3):
        places = {"10.0.0.1": 1, "10.0.0.2": 0}
        replaced = {
            "torchrun": PYTHON,
            "10.0.0.1:29400": f"{self.hosts.address(1)}:{self.port}",
            "ddp_train": str(DDP_TRAIN),
            "/shared/checkpoint": str(self.folder / "checkpoint"),
            "10": "5",  # steps between checkpoints
            **{address: self.hosts.address(host) for address, host in places.items()},
        }
        words = [replaced.get(word, word) for word in documented_commands()[documented_address]]
        words[1:1] = ["-m", "torch.distributed.run"]
        words[words.index("--rdzv_conf") + 1] += f",{SHORT_WAITS}"
        words[words.index("--max_restarts") + 1] = str(restarts)
        host = places[documented_address]
        environment = {**self.environment, "GLOO_BYPASS_MEMIF_DIRECTORY": self.hosts.memif_directory(host)}
        agent = Agent(
            [*self.hosts.inside(host), *words, *TRAINING, *arguments],
            environment,
            self.folder / f"agent-{len(self.started)}",
        )
        self.started.append(agent)
        return agent

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for agent in self.started:
            agent.kill()
            agent.process.stdout.close()


def is_step(number):
    return lambda record: record["event"] == "step" and record["step"] >= number


def has_started(ranks):
    return lambda record: record["event"] == "start" and record["world_size"] == ranks


def kept_samples(log):
    """All ranks' samples by step, from the step's last try."""
    tries = collections.defaultdict(dict)
    for line in map(json.loads, log.read_text().splitlines()):
        tries[line["step"]].setdefault(line["generation"], []).extend(line["samples"])
    return {step: generations[max(generations)] for step, generations in tries.items()}


@pytest.mark.parametrize("transport", ["TCP", "DPDK", "UDP"])
def test_Elastic_AgentLostWithItsRankThenAnotherComes_EachSampleCountsOnce(transport, hosts, tmp_path):
    if transport != "TCP" and not PLUGIN.exists():
        pytest.skip(f"{PLUGIN} is not built")
    flags = ["--batch-size", str(BATCH // 2), "--log-samples", tmp_path / "samples", "--verify-ranks"]
    with Agents(hosts, tmp_path, transport) as agents:
        survivor, lost = [agents.start(address, flags) for address in ("10.0.0.1", "10.0.0.2")]
        records = lost.read_until(has_started(2))
        records += lost.read_until(is_step(records[-1]["first_step"] + 8))
        lost.kill()
        records += survivor.read_until(
            lambda record: record["event"] == "restart" and record["world_size"] == 1 and record["step"] >= 5
        )
        records += survivor.read_until(is_step(records[-1]["step"] + 8))
        joined = agents.start("10.0.0.2", flags)
        records += joined.read_until(has_started(2))
        records += joined.succeed() + survivor.succeed()
    assert {record["transport"] for record in records if record["event"] == "start"} == {transport}
    assert [record for record in records if record["event"] == "summary"]

    kept = kept_samples(tmp_path / "samples")
    assert sorted(kept) == list(range(1, STEPS + 1))
    assert {len(samples) for samples in kept.values()} == {BATCH}
    assert sorted(sample for samples in kept.values() for sample in samples) == list(range(SAMPLES))

    straight = subprocess.run(
        [DDP_TRAIN, *TRAINING, "--batch-size", str(BATCH)],
        env=clean_environment(),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG_SECONDS,
    ).stdout
    losses = {
        record["step"]: record["loss_mean"]
        for record in map(json.loads, straight.splitlines())
        if record["event"] == "step"
    }
    steps = [record for record in records if record["event"] == "step"]
    assert STEPS in {record["step"] for record in steps}
    for record in steps:
        assert record["loss_mean"] == pytest.approx(losses[record["step"]], abs=1e-8), record["step"]


def test_AgentsStore_OfAnotherPyTorch_TheWayOutIsNamed(hosts, tmp_path):
    """If the two PyTorches do understand each other, training ends well."""
    with Agents(hosts, tmp_path, "TCP") as agents:
        del agents.environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"]
        agent = agents.start("10.0.0.1", ["--steps", "5"], restarts=0)
        _, status = agent.finish()
    assert status == 0 or "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in agent.said(), agent.said()
