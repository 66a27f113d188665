"""How our groups come about and change (programs/membership.py): without a backend's name, merged, split, and
reconfigured where PyTorch has that. And what groups answer besides collectives (programs/same_names.py)."""

import re

import pytest
from conftest import PROGRAMS, environment_for, run
from test_door import LOADED, new_enough, ranks_of  # noqa: F401  the fixture

LEAST_RECONFIGURE = (2, 14)
OWN = {"GLOO_BYPASS_COLLECTIVES": "own"}
THE_LINE = "gloo-bypass: GLOO_BYPASS_COLLECTIVES=own: this program's Gloo groups use our collectives"


def passes(case, size, **environment):
    """How often each rank has said that Gloo's groups are ours."""
    with ranks_of("membership.py", size, case, **environment) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "end") for rank in range(size)] == ["ok"] * size
        return [ranks.output(rank).count(THE_LINE) for rank in range(size)]


@pytest.mark.parametrize(
    "case, size", [("no_backend", 2), ("mesh", 4), ("two_backends", 2), ("default_group_is_another", 2)]
)
def test_Setting_ProgramNamesNoBackendOrSeveral_GroupsForCpusAreOurs(new_enough, case, size):  # noqa: F811
    assert passes(case, size, **OWN) == [1] + [0] * (size - 1)


@pytest.mark.parametrize(
    "case, size",
    [
        ("no_backend_is_gloos", 2),
        ("timeout_is_set", 2),
        ("merged", 3),
        ("split", 3),
        ("operations_keep_the_groups_time", 2),
        ("beside_nccl", 2),
    ],
)
def test_Group_OfThisCase_BehavesAsItSays(new_enough, installed_torch, case, size):  # noqa: F811
    if case == "beside_nccl" and installed_torch < (2, 9):
        pytest.skip("what stands for NCCL here is as PyTorch 2.9 and later have it")
    passes(case, size)


@pytest.mark.parametrize("case, size", [("reconfigured", 3), ("a_rank_comes_and_dies", 3)])
def test_Reconfigure_OtherRanks_AreTheGroup(new_enough, installed_torch, case, size):  # noqa: F811
    if installed_torch < LEAST_RECONFIGURE:
        pytest.skip("PyTorch 2.14 and later have reconfigure()")
    passes(case, size)


WORKS_HERE = "None"
#: Where ours answers otherwise than Gloo's, and how.
OTHERWISE = {
    # dist.split_group, which wants a GPU, would hand ours to C++; group.split_group works.
    "backend.supports_splitting": "False",
    # batch_isend_irecv asks for them.
    "group._start_coalescing": WORKS_HERE,
    "group._end_coalescing": "<gloo_bypass._work._Done object at >",
    # Gloo's are called by PyTorch's C++, which ours does not go through.
    "group.register_pre_hook": "RuntimeError: Backend bypass does not support registerPreHook",
    "group.register_post_hook": "RuntimeError: Backend bypass does not support registerPostHook",
    "group.unregister_pre_hook": "RuntimeError: Backend bypass does not support unregisterPreHook",
    "group.unregister_post_hook": "RuntimeError: Backend bypass does not support unregisterPostHook",
}
ANSWER = re.compile(r"^((?:group|backend)\.\w+)=(.*)$", re.MULTILINE)
NAMES = sorted(set(re.findall(r'^    "(\w+)": ', (PROGRAMS / "same_names.py").read_text(), re.MULTILINE)))


@pytest.fixture(scope="module")
def answers(new_enough, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("names")
    return [
        dict(ANSWER.findall(run([PROGRAMS / "same_names.py", backend], environment_for(folder, **LOADED)).stdout))
        for backend in ("gloo", "bypass")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_Answer_OfAGroupOrItsBackend_IsAsGloos(answers, name):
    gloos, ours = answers
    places = [where for where in (f"group.{name}", f"backend.{name}") if where in gloos]
    places = [where for where in places if not gloos[where].startswith("AttributeError")]
    if not places:
        pytest.skip(f"this PyTorch's Gloo has no {name}")
    for where in places:
        assert ours[where] == OTHERWISE.get(where, gloos[where].replace("gloo", "bypass")), where
