"""Every example runs with two ranks over TCP and DPDK, and with our own collectives, checks its result, prints the same
numbers each time, and ends well."""

import functools
import os
import pathlib
import re
import shlex
import sys
import tempfile

import pytest
from conftest import ROOT, environment_for, run
from ranks import PYTHON, Ranks

FOLDER = pathlib.Path(__file__).resolve().parent
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
RANKS_PROGRAMS = [name for name in PROGRAMS if name != "two_nodes.py"]  # that starts others
# PyTorch keeps this one's group, whatever the program does, so it ends without Python's end.
EXITS_AT_ONCE = "tensor_parallel.py"
TRANSPORTS = ["TCP"] if os.environ.get("PLUGIN_NO_DPDK") else ["TCP", "DPDK"]
NOT_IN_THIS_RELEASE = 77
COMMANDS = ("export", "python3", "tcpdump", "...")


def numbers_of(ranks):
    """Rank 0's output without its counters: the numbers and the last line."""
    lines = [
        line
        for line in ranks.output(0).splitlines()
        if line.startswith(("sum ", "parameters", "optimiser", "words", "checked"))
    ]
    assert len(lines) > 1 and lines[-1].startswith("checked: 2 ranks "), ranks.output(0) + ranks.output(1)
    return lines


@functools.cache
def outcome_of(example, transport, arguments=()):
    with Ranks(EXAMPLES / example, 2, transport=transport, load="import", arguments=arguments) as ranks:
        if ranks.wait() == [NOT_IN_THIS_RELEASE] * 2:
            pytest.skip(ranks.output(0).strip())
        # the reference: now and then a rank of PyTorch 2.6 aborts at its end, after the last line
        if transport != "TCP":
            ranks.succeed()
        if transport == "DPDK" and example == "ddp.py":
            assert "{'DPDK': " in ranks.output(0)
        return numbers_of(ranks)


@pytest.mark.parametrize("example", RANKS_PROGRAMS)
def test_Example_TwoRanks_ChecksItselfAndAgreesOverAllTransports(example):
    outcomes = [outcome_of(example, transport) for transport in TRANSPORTS]
    assert all(outcome == outcomes[0] for outcome in outcomes), outcomes


@pytest.fixture
def needs_own_collectives(installed_torch):
    if installed_torch < (2, 6):
        pytest.skip("the backend bypass needs PyTorch 2.6 or later")


@pytest.mark.parametrize("transport", TRANSPORTS[1:] + ["UDP"])
def test_TensorParallel_OwnCollectives_SaysTheSame(transport, needs_own_collectives):
    own = outcome_of("tensor_parallel.py", transport, ("--backend", "bypass", "--without-all-reduces"))
    assert own == outcome_of("tensor_parallel.py", "TCP")


@pytest.mark.parametrize("example", RANKS_PROGRAMS)
def test_Example_OwnCollectivesByVariable_SaysTheSameAndDestroysItsGroup(example, needs_own_collectives):
    with Ranks(
        FOLDER / "programs" / "ordinary_end.py",
        2,
        transport=None if "DPDK" in TRANSPORTS else "UDP",  # not set: DPDK
        load="import",
        arguments=[EXAMPLES / example],
        environment={"GLOO_BYPASS_COLLECTIVES": "own"},
    ) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "group_left") for rank in range(2)] == ["False", "False"]
        assert numbers_of(ranks) == outcome_of(example, "TCP")


@pytest.mark.parametrize("example", [name for name in RANKS_PROGRAMS if name != EXITS_AT_ONCE])
def test_Example_End_LeavesNoThreadThatCouldAbortIt(example, installed_torch):
    with Ranks(
        FOLDER / "programs" / "threads_left.py", 2, transport="UDP", load="import", arguments=[EXAMPLES / example]
    ) as ranks:
        if ranks.wait() == [NOT_IN_THIS_RELEASE] * 2:
            pytest.skip(ranks.output(0).strip())
        ranks.succeed()
        for rank in range(2):
            if ranks.value(rank, "workers") == "0":
                assert installed_torch < (2, 13)
                pytest.skip("this PyTorch gives its threads no names")
            assert ranks.value(rank, "left") == "0"


@pytest.mark.parametrize(
    "example, named, used",
    [
        *((example, "DPDK", "TCP") for example in RANKS_PROGRAMS),
        ("ddp.py", "UDP", "TCP"),
        ("ddp.py", "TCP", "UDP"),
        ("ddp.py", "DPDK", "UDP"),
    ],
)
def test_Example_BytesOverAnotherTransportThanNamed_IsRefused(example, named, used):
    if "DPDK" in (named, used) and "DPDK" not in TRANSPORTS:
        pytest.skip("the DPDK transport is not in this build")
    with Ranks(
        FOLDER / "programs" / "other_transport.py",
        2,
        transport=named,
        load="import",
        arguments=[used, EXAMPLES / example],
    ) as ranks:
        statuses = ranks.wait()
        if statuses == [NOT_IN_THIS_RELEASE] * 2:
            pytest.skip(ranks.output(0).strip())
        said = (
            f"{named} was to carry all bytes, but"
            if used != "TCP"
            else f"{named} was to carry 1 bytes at least, and carried 0: PyTorch reads GLOO_DEVICE_TRANSPORT once"
        )
        assert 0 not in statuses and said in ranks.output(0), ranks.output(0)
        assert "checked:" not in ranks.output(0)


def test_DocumentedTorchrun_TwoRanks_ChecksItself(tmp_path, installed_torch):
    """The lines of docs/pytorch.md for this release, as they stand there."""
    text = (EXAMPLES.parent / "docs" / "pytorch.md").read_text()
    one_by_release = re.findall(r"^python3 -m torch\.distributed\.run .*examples/ddp\.py$", text, re.MULTILINE)
    exports = re.search(r"^export (USE_LIBUV=0 .*)$", text, re.MULTILINE).group(1)
    assert len(one_by_release) == 2
    old = installed_torch < (2, 0)
    line = one_by_release[0] if old else f"export {exports}; {one_by_release[1]}"
    with tempfile.TemporaryDirectory(prefix="gbt") as short:
        environment = environment_for(pathlib.Path(short), GLOO_DEVICE_TRANSPORT=TRANSPORTS[-1])
        del environment["USE_LIBUV"]  # the page's own lines must do
        result = run(
            ["-c", line.replace("python3", PYTHON).replace("/tmp/meeting", f"{tmp_path}/meeting")],
            environment,
            python="/bin/bash",
            cwd=EXAMPLES.parent,
        )
    assert "checked: 2 ranks trained" in result.stdout


def test_TwoNodes_Ddp_BothAgentsEndWell(tmp_path):
    with tempfile.TemporaryDirectory(prefix="gbt") as short:  # sockets have short names
        result = run(
            [EXAMPLES / "two_nodes.py", EXAMPLES / "ddp.py", "--steps", "3"],
            environment_for(pathlib.Path(short), GLOO_DEVICE_TRANSPORT=TRANSPORTS[-1], TMPDIR=tmp_path),
        )
    assert "checked: 2 ranks trained" in result.stdout
    assert result.stdout.splitlines()[-1] == "checked: 2 agents with 1 rank each ended well"
    assert not list(tmp_path.glob("two-nodes-*"))


@pytest.mark.parametrize(
    "program, options, said",
    [
        ("import sys; sys.exit(3)", [], "exit statuses are ["),
        ("import time; time.sleep(600)", ["--seconds", "1"], "[None, None] (None: still running after 1 s)"),
    ],
)
def test_TwoNodes_ProgramFailsOrHangs_SaysSo(tmp_path, program, options, said):
    (tmp_path / "program.py").write_text(program)
    result = run(
        [EXAMPLES / "two_nodes.py", *options, tmp_path / "program.py"],
        environment_for(tmp_path, TMPDIR=tmp_path),
        status=1,
    )
    assert said in result.stderr.splitlines()[-1]
    assert "checked" not in result.stdout
    assert not list(tmp_path.glob("two-nodes-*"))


@pytest.mark.parametrize(
    "arguments, said", [(["no-such-program.py"], "there is no program 'no-such-program.py'"), ([], "required: program")]
)
def test_TwoNodes_WrongArguments_OneClearLine(tmp_path, arguments, said):
    result = run([EXAMPLES / "two_nodes.py", *arguments], environment_for(tmp_path), python=sys.executable, status=2)
    assert said in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("example", PROGRAMS)
def test_Example_Source_SaysHowToRunIt(example):
    path = EXAMPLES / example
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env python3\n")  # that of a virtual environment
    description = path.read_text().split('"""')[1]
    assert f"examples/{example}" in description
    for line in re.findall(r"^    (.*)$", description, re.MULTILINE):  # commands, which a reader pastes
        words = [word for word in shlex.split(line) if "=" not in word]
        assert not words or words[0] in COMMANDS or words[0] == f"examples/{example}", line


def test_Example_Help_IsPrinted(tmp_path):
    # One of those that import PyTorch is enough: all make their parser in the same way.
    for example in ("two_nodes.py", "ddp.py"):
        assert run([EXAMPLES / example, "--help"], environment_for(tmp_path)).stdout.startswith("usage: " + example)
