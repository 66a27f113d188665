"""torch.distributed's backend "bypass": every collective against Gloo's. Ranks are processes on this machine."""

import pytest
from test_door import new_enough, ranks_of  # noqa: F401  the fixture


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_Collectives_EveryKindAndType_AreAsGloos(new_enough, size):  # noqa: F811
    with ranks_of("same_as_gloo.py", size) as ranks:
        ranks.succeed()
        assert all(int(ranks.value(rank, "checked")) > 100 for rank in range(size))


@pytest.mark.parametrize("size", [2, 3])
def test_Messages_TagsAndAnySource_AreAsGloos(new_enough, size):  # noqa: F811
    with ranks_of("same_as_gloo.py", size, "messages") as ranks:
        ranks.succeed()


@pytest.mark.parametrize("transport", ["DPDK", "UDP"])
def test_Collectives_InputsShareMemoryWithOutputs_AreAsGloos(new_enough, transport):  # noqa: F811
    with ranks_of("same_as_gloo.py", 2, "inputs_in_outputs", GLOO_DEVICE_TRANSPORT=transport) as ranks:
        ranks.succeed()
