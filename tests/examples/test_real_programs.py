"""Programs of transformers, Lightning and torchft as their users write them. Over each transport they end with the same
digest on all ranks, and over ours the bytes went over ours. Each runs as examples/real_programs/README.md says."""

import collections
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import pytest
from conftest import PACKAGE_PATH, ROOT, environment_for, run
from ranks import HANG_SECONDS, PYTHON, clean_environment

sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.common.processes import end_group  # noqa: E402

FOLDER = ROOT / "examples" / "real_programs"
TRANSPORTS = ["TCP", "UDP"] if os.environ.get("PLUGIN_NO_DPDK") else ["TCP", "DPDK", "UDP"]
# Up to four interpreters import PyTorch and another large package at the same time, and torchft's two times in a row.
PROGRAM_SECONDS = 3 * HANG_SECONDS
# Less than the gradients of all steps, and more than what ranks send when they meet.
LEAST_BYTES = 50_000

Example = collections.namedtuple("Example", "modules ranks")
EXAMPLES = {
    "transformers_accelerate.py": Example(["transformers", "accelerate"], 2),
    "transformers_tensor_parallel.py": Example(["transformers", "accelerate"], 2),
    "lightning_ddp.py": Example(["lightning"], 2),
    "torchft_replicas.py": Example(["torchft"], 3),
}
END = re.compile(r"(?:rank|replica)=(\d+) of (\d+) steps=(\d+) (?:parameters|outputs)=([0-9a-f]{64})$", re.MULTILINE)
# True for each module that the Python has, and for this project's entry point. Nothing is imported: that takes seconds.
FIND = """import importlib.metadata, importlib.util, json, sys
points = importlib.metadata.entry_points()
points = points.select(group="torch.backends") if hasattr(points, "select") else points.get("torch.backends", [])
found = {name: importlib.util.find_spec(name) is not None for name in sys.argv[1:]}
print(json.dumps({**found, "": any(point.name == "gloo_bypass" for point in points)}))"""


def documented_commands():
    """The line of README.md that starts each program."""
    line = re.compile(r"^(python3 .*examples/real_programs/(\w+\.py))$", re.MULTILINE)
    return {name: command for command, name in line.findall((FOLDER / "README.md").read_text())}


def environment_over(transport, folder):
    """The environment of a user of PyTorch from pip. The package is installed for TCP too: it must do no harm."""
    environment = environment_for(
        folder,
        GLOO_DEVICE_TRANSPORT=transport,
        OMP_NUM_THREADS=1,
        PYTHONUNBUFFERED=1,
        RUST_LOG="warn",
        HF_HUB_OFFLINE=1,
        GLOO_BYPASS_STATS=folder / "stats-%p.json",
    )  # RANK is not set by each launcher
    environment.pop("USE_LIBUV")
    environment.pop("LOCAL_RANK", None)
    return environment


def output_of(command, environment, folder, enough):
    """The output of a program that has ended well, or printed enough."""
    output = folder / "output"
    with open(output, "wb") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    end = time.monotonic() + PROGRAM_SECONDS
    try:
        while process.poll() is None and time.monotonic() < end and not enough(output.read_text(errors="replace")):
            time.sleep(0.1)
        status = process.poll()
    finally:
        end_group(process)
    text = output.read_text(errors="replace")
    assert status == 0 or enough(text), f"exit status {status} (None: none in {PROGRAM_SECONDS:g} s)\n{text}"
    return text


def outcome_of(example, transport):
    """Steps and digest, which are the same on all ranks."""
    expected = EXAMPLES[example].ranks
    with tempfile.TemporaryDirectory(prefix="gbt") as short:  # sockets have short names
        folder = pathlib.Path(short)
        command = [PYTHON, *shlex.split(documented_commands()[example])[1:]]
        # The reference: once, a rank over TCP did not end after its last line. Over ours each rank must end well.
        enough = (lambda text: len(END.findall(text)) == expected) if transport == "TCP" else (lambda _: False)
        text = output_of(command, environment_over(transport, folder), folder, enough)
        ends = END.findall(text)
        assert sorted(int(rank) for rank, *_ in ends) == list(range(expected)), text
        assert {int(size) for _, size, *_ in ends} == {expected}, text
        outcomes = {(int(steps), digest) for _, _, steps, digest in ends}
        assert len(outcomes) == 1, f"ranks differ over {transport}:\n{text}"
        if example == "torchft_replicas.py":
            assert "replica 1 was killed" in text, text
        counters = [json.loads(path.read_text()) for path in folder.glob("stats-*.json")]
    # A killed process leaves none.
    assert len(counters) == (0 if transport == "TCP" else expected), text
    for each in counters:
        assert each["transport"] == transport
        assert each["bytes_sent"] > LEAST_BYTES and each["bytes_received"] > LEAST_BYTES, each
    return outcomes.pop()


@pytest.fixture(scope="module")
def found():
    """For each module, whether PYTHON has it; for the empty name, whether it loads our package without an import."""
    modules = {module for example in EXAMPLES.values() for module in example.modules}
    environment = {**clean_environment(), "PYTHONPATH": PACKAGE_PATH}
    return json.loads(run(["-c", FIND, *sorted(modules)], environment).stdout)


@pytest.mark.parametrize("example", EXAMPLES)
def test_RealProgram_Unmodified_EndsWithTheSameDigestOverAllTransports(example, found):
    missing = [module for module in EXAMPLES[example].modules if not found[module]]
    if missing:
        pytest.skip(f"{PYTHON} has no {' and no '.join(missing)}")
    if not found[""]:
        pytest.skip(f"{PYTHON} finds no entry point of gloo_bypass, so that a program would have to import it")
    outcomes = {transport: outcome_of(example, transport) for transport in TRANSPORTS}
    assert len(set(outcomes.values())) == 1, outcomes


def test_RealProgram_Source_HasNothingOfThisProject():
    for example in EXAMPLES:
        text = (FOLDER / example).read_text()
        assert "gloo_bypass" not in text and "GLOO" not in text
        assert f"examples/real_programs/{example}" in text.split('"""')[1]
        assert os.access(FOLDER / example, os.X_OK)
    assert sorted(path.name for path in FOLDER.glob("*.py")) == sorted(EXAMPLES) == sorted(documented_commands())
