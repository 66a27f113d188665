"""Medians, 99th percentiles and differences against values worked out by hand; who goes when."""

import pytest
from gloo_bypass_tools.common.samples import quantile
from gloo_bypass_tools.report import programs
from gloo_bypass_tools.report.programs import Key


@pytest.mark.parametrize("share, wanted", [(0, 1.0), (0.5, 51.0), (0.99, 100.0), (1, 101.0), (0.995, 100.5)])
def test_Quantile_OneToAHundredAndOne_IsLinearBetweenNeighbours(share, wanted):
    assert quantile(range(101, 0, -1), share) == pytest.approx(wanted)


def test_Figures_OfSamples_AreMedianTailAndMean():
    assert programs.figures_of([3.0, 1.0, 2.0, 10.0]) == programs.Figures(2.5, pytest.approx(9.79), 4.0, 4)
    assert programs.figures_of([7.0]) == programs.Figures(7.0, 7.0, 7.0, 1)


def test_Differences_OfRounds_AreOfTheMeansAndOfStepsOfTheMedians():
    whole, alone = Key("all_reduce", programs.ROUND, 8192, 2), Key("all_reduce", programs.ROUND_ALONE, 8192, 2)
    other = Key("all_reduce", programs.ROUND, 8192, 10)
    found = programs.with_differences(
        programs.BY_NAME["all_reduce"], {whole: [5.0, 5.0, 11.0], alone: [2.0, 2.0, 5.0], other: [1.0]}
    )
    added = found[Key("all_reduce", programs.ADDED, 8192, 2)]
    assert (added.median_us, added.p99_us, added.mean_us) == (4.0, 4.0, 4.0)
    assert Key("all_reduce", programs.ADDED, 8192, 10) not in found and found[whole].median_us == 5.0
    steps = {
        Key("training", programs.STEP): [5.0, 5.0, 11.0],
        Key("training", programs.STEP_ALONE): [2.0, 2.0, 5.0],
        Key("training", programs.STEP_UNSENT): [3.0, 4.5, 3.5],
    }
    found = programs.with_differences(programs.BY_NAME["training"], steps)
    assert found[Key("training", programs.EXPOSED)].median_us == 3.0
    assert found[Key("training", programs.COPIES)].median_us == 1.5


def test_AllRounds_OneSlowRound_IsTheTailAndNotTheMedian():
    rounds = [programs.figures_of([us, us]) for us in (1.0, 900.0, 2.0)]
    found = programs.of_all_rounds(rounds)
    assert (found.median_us, found.p99_us, found.samples) == (2.0, 900.0, 6)


def test_Turns_EachTransport_BeginsInTurn():
    assert [programs.turns(["A", "B", "C"], number) for number in (1, 2, 3, 4)] == [
        ["A", "B", "C"],
        ["B", "C", "A"],
        ["C", "A", "B"],
        ["A", "B", "C"],
    ]


@pytest.mark.parametrize("ranks, said", [(2, ""), (16, ""), (3, "16 heads cannot be shared by 3 ranks")])
def test_Decoding_RanksThatCannotShareTheHeads_IsSaid(ranks, said):
    program = programs.BY_NAME["decoding"]
    assert said in program.problem(program.sizes[programs.FULL], ranks)
    assert bool(said) == bool(program.problem(program.sizes[programs.FULL], ranks))


def test_Sizes_OfEachEffort_HaveTheSameNames():
    for program in programs.TABLE:
        assert set(program.sizes) == set(programs.EFFORTS)
        assert len({tuple(sizes) for sizes in program.sizes.values()}) == 1, program.name
