"""How our groups come about (programs/membership.py): without a backend's name, and beside others."""

import pytest
from test_door import new_enough, ranks_of  # noqa: F401  the fixture

OWN = {"GLOO_BYPASS_COLLECTIVES": "own"}
THE_LINE = "gloo-bypass: GLOO_BYPASS_COLLECTIVES=own: this program's Gloo groups use our collectives"


def passes(case, size, **environment):
    """How often each rank has said that Gloo's groups are ours."""
    with ranks_of("membership.py", size, case, **environment) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "end") for rank in range(size)] == ["ok"] * size
        return [ranks.output(rank).count(THE_LINE) for rank in range(size)]


@pytest.mark.parametrize("case, size", [("no_backend", 2), ("mesh", 4), ("two_backends", 2)])
def test_Setting_ProgramNamesNoBackendOrSeveral_GroupsForCpusAreOurs(new_enough, case, size):  # noqa: F811
    assert passes(case, size, **OWN) == [1] + [0] * (size - 1)


def test_Setting_IsMissing_GroupsAreGloos(new_enough):  # noqa: F811
    passes("no_backend_is_gloos", 2)
