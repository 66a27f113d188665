"""Training as people write it, over our collectives and over Gloo: the same numbers."""

import os
import re
import signal
import subprocess

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


def numbers_over(backend, cases=CASES, **environment):
    with ranks_of("door_programs.py", SIZE, backend, *cases, **environment) as ranks:
        ranks.succeed()
        return {(case, rank): ranks.value(rank, case) for case in cases for rank in range(SIZE)}


@pytest.fixture(scope="module")
def both(new_enough):  # noqa: F811
    return numbers_over("bypass"), numbers_over("gloo")


@pytest.mark.parametrize("case", CASES)
def test_Program_OverOurCollectives_ComputesWhatItDoesOverGloo(both, case):
    ours, gloos = both
    for rank in range(SIZE):
        assert ours[case, rank] == gloos[case, rank]


def test_Program_ThatSaysGloo_TrainsOverOurCollectives(both):
    _, gloos = both
    for where, number in numbers_over("gloo", ["ddp", "fsdp"], GLOO_BYPASS_COLLECTIVES="own").items():
        assert number == gloos[where]


def test_Torchft_ReplicaIsKilledAndReplaced_AllEndWithTheSameParameters(new_enough, tmp_path):  # noqa: F811
    environment = environment_for(tmp_path, OMP_NUM_THREADS=1, RUST_LOG="warn")
    if run(["-c", "import torchft"], environment, status=None).returncode != 0:
        pytest.skip(f"{PYTHON} has no torchft")
    with open(tmp_path / "output", "wb") as file:
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
    output = (tmp_path / "output").read_text(errors="replace")
    ends = re.findall(r"^replica=(\d) of 3 steps=20 parameters=([0-9a-f]{64})$", output, re.MULTILINE)
    assert process.returncode == 0 and "replica 1 was killed" in output, output
    assert sorted(replica for replica, _ in ends) == ["0", "1", "2"] and len({digest for _, digest in ends}) == 1, (
        output
    )


def test_Torchft_ClassInTheDocument_IsTheOneThatWasTried():
    document, program = (ROOT / "docs" / "pytorch.md").read_text(), (PROGRAMS / "torchft_replicas.py").read_text()
    lines = document.split("class ProcessGroupBypass")[1].split("```")[0].strip()
    assert lines in program
