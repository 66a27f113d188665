"""PyTorch's own tests of ProcessGroupGloo, rewritten (programs/gloo_cases.py): over our collectives, over Gloo's, where
they show that the cases are right, and over ours in PyTorch's debug mode."""

import re

import pytest
from conftest import PROGRAMS
from test_door import new_enough, ranks_of  # noqa: F401  the fixture

SIZE = 3
CASES = re.findall(r"^@case\ndef (\w+)", (PROGRAMS / "gloo_cases.py").read_text(), re.MULTILINE)


def outcomes(*arguments, **environment):
    with ranks_of("gloo_cases.py", SIZE, *arguments, **environment) as ranks:
        ranks.wait()
        pattern = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)
        return [dict(pattern.findall(ranks.output(rank))) for rank in range(SIZE)]


@pytest.fixture(scope="module")
def over_ours(new_enough):  # noqa: F811
    return outcomes("bypass")


@pytest.fixture(scope="module")
def over_gloo(new_enough, installed_torch):  # noqa: F811
    if installed_torch < (2, 13):
        pytest.skip("the cases are those of PyTorch 2.13's Gloo")
    return outcomes("gloo")


@pytest.fixture(scope="module")
def in_debug_mode(new_enough):  # noqa: F811
    return outcomes("bypass", TORCH_DISTRIBUTED_DEBUG="DETAIL")


@pytest.mark.parametrize("case", CASES)
def test_Case_OverOurCollectives_IsAsGlooHasIt(over_ours, case):
    assert [rank.get(case, "did not end") for rank in over_ours] == ["ok"] * SIZE


@pytest.mark.parametrize("case", CASES)
def test_Case_OverGloo_IsAsWeHaveIt(over_gloo, case):
    assert [rank.get(case, "did not end") for rank in over_gloo] == ["ok"] * SIZE


@pytest.mark.parametrize("case", CASES)
def test_Case_InDebugMode_IsAsGlooHasIt(in_debug_mode, case):
    assert [rank.get(case, "did not end") for rank in in_debug_mode] == ["ok"] * SIZE
