"""Training as people write it, over our collectives and over Gloo: the same numbers."""

import pytest
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
