"""PyTorch's DistributedTest over our collectives: its own suite for backends, unmodified, as PyTorch's wheel has it
(programs/distributed_test.py). With four ranks, then with eight what needs as many.

DISTRIBUTED_TEST_RANKS=2 runs all of it with two ranks; two numbers, such as the default 4,8, run with the second what
the first are too few for. DISTRIBUTED_TEST_OVER=gloo runs it over PyTorch's Gloo.
"""

import ast
import os
import pathlib
import re
import subprocess

import pytest
from conftest import PYTHON, clean_environment

PROGRAM = pathlib.Path(__file__).parent / "programs" / "distributed_test.py"
OVER = os.environ.get("DISTRIBUTED_TEST_OVER", "own")
RANKS = [int(number) for number in os.environ.get("DISTRIBUTED_TEST_RANKS", "4,8").split(",")]
LIMIT_S = 500  # of all cases of a run, for hangs, each of which ends after 40 s; cases after it do not run, and fail
GRACE_S = 50  # for the import of PyTorch and the case under way
LEAST_TORCH = (2, 6)
TOO_FEW = "Skipped due to small world size"
#: What ours does not do as the case wants it, and why.
EXCLUDED = {
    "test_ddp_logging_data_cpu": "DDP's log names our backend bypass where the program said gloo: PyTorch's C++ takes "
    "any backend of the name gloo for its own ProcessGroupGloo"
}
OTHER_DEVICES = re.compile(r"cuda|nccl|gpu|ucc|xpu|stream")


def release():
    """Of the environment's PyTorch, as two numbers."""
    text = (pathlib.Path(os.environ["PLUGIN_PYTHON_PATH"]) / "torch" / "version.py").read_text()
    return tuple(map(int, re.search(r"__version__ = '(\d+)\.(\d+)", text).groups()))


pytestmark = pytest.mark.skipif(
    OVER == "own" and release() < LEAST_TORCH, reason="our collectives need PyTorch 2.6 or later"
)


def needs_another_device(function):
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return OTHER_DEVICES.search(function.name.lower()) or any(
        text.startswith("skip_if_lt_x_gpu") and "allow_cpu" not in text for text in decorators
    )


def names():
    """Of the cases that can run without a GPU."""
    folder = pathlib.Path(os.environ["PLUGIN_PYTHON_PATH"]) / "torch" / "testing" / "_internal" / "distributed"
    nodes = list(ast.walk(ast.parse((folder / "distributed_test.py").read_text())))
    base = next(node for node in nodes if isinstance(node, ast.ClassDef) and node.name == "_DistTestBase")
    functions = [node for node in base.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return sorted({function.name for function in functions if not needs_another_device(function)})


def run(ranks, parts=(), limit_s=LIMIT_S, **variables):
    """By case: (outcome, reason)."""
    environment = {**clean_environment(), "PYTHONDONTWRITEBYTECODE": "1", "GLOO_BYPASS_COLLECTIVES": OVER, **variables}
    result = subprocess.run(
        [PYTHON, PROGRAM, str(ranks), str(limit_s), *parts],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s + GRACE_S,
        stdin=subprocess.DEVNULL,
    )
    outcomes = {
        name: (outcome, reason)
        for name, outcome, reason in re.findall(r"^case (\w+) (\w+) ?(.*)$", result.stdout, re.MULTILINE)
    }
    assert outcomes, f"no case ran: exit status {result.returncode}\n{result.stderr[-2000:]}"
    return outcomes


@pytest.fixture(scope="module")
def outcomes():
    found = run(RANKS[0])
    for ranks in RANKS[1:]:
        too_few = [name for name, (_, reason) in found.items() if TOO_FEW in reason]
        found |= {name: outcome for name, outcome in run(ranks, too_few).items() if name in too_few}
    return found


@pytest.mark.parametrize("name", names())
def test_DistributedTest_OverOurCollectives_Passes(outcomes, name):
    if name in EXCLUDED and OVER == "own":
        pytest.skip(EXCLUDED[name])
    assert name in outcomes, "the case did not run"
    outcome, reason = outcomes[name]
    if outcome == "skipped":
        pytest.skip(f"PyTorch: {reason}")
    assert outcome == "passed", reason.replace(" | ", "\n")


def test_DistributedTest_NoTimeIsLeft_CasesAreUnfinishedNotSkipped():
    assert {outcome for outcome, _ in run(2, ["test_get_rank"], limit_s=0).values()} == {"unfinished"}


def test_DistributedTest_GroupsAreNotOurs_CasesFail():
    """As where PyTorch does not load the package."""
    found = run(2, ["test_get_rank_size_group"], TORCH_DEVICE_BACKEND_AUTOLOAD="0", GLOO_BYPASS_COLLECTIVES="own")
    assert {outcome for outcome, _ in found.values()} == {"failed"}
