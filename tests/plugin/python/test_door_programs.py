"""Training as people write it, over our collectives and over Gloo: the same numbers."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile

import pytest
from conftest import PROGRAMS, ROOT, environment_for, run
from ranks import HANG_SECONDS, PYTHON
from test_door import new_enough, ranks_of  # noqa: F401  the fixture

SIZE = 2
CASES = [
    "ddp",
    "ddp_hooks",
    "ddp_join",
    "ddp_sparse",
    "ddp_no_sync_and_buffers",
    "zero",
    "fsdp",
    "fsdp2_and_checkpoint",
    "tensor_parallel",
    "functional",
    "post_local_sgd",
]
LEAST = {"fsdp2_and_checkpoint": (2, 7)}


def numbers_over(backend, cases=CASES, **environment):
    with ranks_of("door_programs.py", SIZE, backend, *cases, **environment) as ranks:
        if backend == "gloo" and not environment:
            # Over its Gloo PyTorch aborts now and then when a process ends (its issue 190489).
            for rank, status in enumerate(ranks.wait()):
                end = ranks.output(rank).strip().splitlines()[-1]
                aborted = status == -signal.SIGABRT and end == "terminate called without an active exception"
                assert status == 0 or aborted, ranks.output(rank)
        else:
            ranks.succeed()
        return {(case, rank): ranks.value(rank, case) for case in cases for rank in range(SIZE)}


@pytest.fixture(scope="module")
def both(new_enough, installed_torch):  # noqa: F811
    cases = [case for case in CASES if installed_torch >= LEAST.get(case, (0, 0))]
    return numbers_over("bypass", cases), numbers_over("gloo", cases)


@pytest.mark.parametrize("case", CASES)
def test_Program_OverOurCollectives_ComputesWhatItDoesOverGloo(both, case):
    ours, gloos = both
    if (case, 0) not in gloos:
        pytest.skip("this PyTorch has it for GPUs only")
    for rank in range(SIZE):
        assert ours[case, rank] == gloos[case, rank]


def test_Program_ThatSaysGloo_TrainsOverOurCollectives(both):
    _, gloos = both
    for where, number in numbers_over("gloo", ["ddp", "fsdp"], GLOO_BYPASS_COLLECTIVES="own").items():
        assert number == gloos[where]


def output_of_torchft(folder):
    """And its exit status, in the last line."""
    environment = environment_for(folder, OMP_NUM_THREADS=1, RUST_LOG="warn")
    if run(["-c", "import torchft"], environment, status=None).returncode != 0:
        pytest.skip(f"{PYTHON} has no torchft")
    with open(folder / "output", "wb") as file:
        process = subprocess.Popen(
            [PYTHON, PROGRAMS / "torchft_replicas.py"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.wait(3 * HANG_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return (folder / "output").read_text(errors="replace") + f"\nstatus={process.returncode}"


def test_Torchft_ReplicaIsKilledAndReplaced_AllEndWithTheSameParameters(new_enough):  # noqa: F811
    with tempfile.TemporaryDirectory(prefix="gbt") as short:  # sockets have short names
        output = output_of_torchft(pathlib.Path(short))
    ends = re.findall(r"^replica=(\d) of 3 steps=20 parameters=([0-9a-f]{64})$", output, re.MULTILINE)
    assert "replica 1 was killed" in output and output.endswith("status=0"), output
    replicas, digests = zip(*ends)
    assert sorted(replicas) == ["0", "1", "2"] and len(set(digests)) == 1, output


def test_Torchft_ClassInTheDocument_IsTheOneThatWasTried():
    document, program = (ROOT / "docs" / "pytorch.md").read_text(), (PROGRAMS / "torchft_replicas.py").read_text()
    lines = document.split("class ProcessGroupBypass")[1].split("```")[0].strip()
    assert lines in program
