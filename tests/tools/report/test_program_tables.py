"""Stored runs as Markdown."""

from gloo_bypass_tools.report import program_tables as tables
from gloo_bypass_tools.report import programs, stored_programs


def cells_of(text, beginning):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {beginning}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_Whole_Run_HasEachQuantityWithItsRatioAndItsMachine(write_run):
    text = tables.whole(stored_programs.read(write_run()))
    assert text.startswith("2 ranks of 1 thread on 2 cores of a processor; PyTorch 2.13.0+cpu")
    assert "load 0.10 before, other programs took 0.02 of a core. The machine copies 64 MiB at 17 GB/s" in text
    assert cells_of(text, "tensor-parallel decoding: a token")[1:] == [
        "50 ms, 100 ms; 20 tokens/s",
        "12.5 ms, 25 ms; 80 tokens/s",
        "4 x",
    ]
    assert cells_of(text, "`all_reduce`: 8 KiB, adds to 2 ms")[1:] == ["2 ms", "500 us", "4 x"]
    assert cells_of(text, "the same without its all-reduces")[-1] == ""
    assert programs.ROUND not in text.replace("rounds", "") and "Left out: something: a reason." in text
    assert "not steady" not in text


def test_Whole_RunBesideAnotherLibrary_SaysItsVersion(write_run):
    run = stored_programs.read(write_run(lambda record: record.update(libraries={"MPICH": "mpich 5.0.2"})))
    assert "\n\nMPICH: mpich 5.0.2." in tables.whole(run)


def test_Whole_RatioOverTheRounds_IsInBrackets(write_run):
    def spread(record):
        for row in record["rows"]:
            if row["quantity"] == programs.HOT:
                us = row["median_us"]
                row["rounds_us"] = [0.5 * us, us, us] if row["transport"] == "TCP" else [us, us, 0.8 * us]

    text = tables.whole(stored_programs.read(write_run(spread)))
    assert cells_of(text, "`all_reduce`: 8 KiB |")[-1] == "4 x (2 to 5)"


def test_Whole_RatioAboveAHundred_IsWrittenOut(write_run):
    def slow_round(record):
        for row in record["rows"]:
            if row["quantity"] == programs.HOT:
                us = row["median_us"]
                row["rounds_us"] = [us, us, 60 * us] if row["transport"] == "TCP" else [us, us, us]

    text = tables.whole(stored_programs.read(write_run(slow_round)))
    assert cells_of(text, "`all_reduce`: 8 KiB |")[-1] == "4 x (4 to 240)"


def test_Whole_WhatLoses_IsBold(write_run):
    text = tables.whole(stored_programs.read(write_run(dpdk_us=2000.0)))
    assert cells_of(text, "`all_reduce`: 8 KiB |")[-1] == "**0.5 x**"


def test_Whole_MachineThatWasNotSteady_IsSaid(write_run):
    assert "**The machine was not steady**" in tables.whole(stored_programs.read(write_run(alone_us=(500.0, 900.0))))


def test_Tables_OwnCollectives_HaveTheNameThatProgramsUse(write_run):
    def own(record):
        record["transports"] = ["TCP", "DPDK/own"]
        for row in record["rows"]:
            row["transport"] = row["transport"].replace("DPDK", "DPDK/own")

    run = stored_programs.read(write_run(own))
    assert "|  | TCP | `bypass` |  |" in tables.whole(run)
    assert "| Gloo TCP | `bypass` | faster |" in tables.headline([run])
    assert tables.heading("UDP/own") == "`bypass` over UDP" and tables.heading("UDP") == "UDP"


def test_Headline_WhatSendsNothing_HasNoRatio(write_run):
    text = tables.headline([stored_programs.read(write_run(alone_us=(500.0, 600.0)))])
    assert cells_of(text, "its exposed all-reduce")[-1] == "4 x"
    assert cells_of(text, "of that, DDP's copies of gradients")[1:] == ["50 ms", "50 ms", ""]
    assert "0.83 x" not in text


def test_Whole_DifferenceBelowZero_IsNothingAndHasNoRatio(write_run):
    def below(record):
        for row in record["rows"]:
            if row["quantity"] == programs.EXPOSED and row["transport"] == "DPDK":
                row.update(median_us=-5.0, p99_us=-5.0, mean_us=-5.0, rounds_us=[-5.0])

    assert cells_of(tables.whole(stored_programs.read(write_run(below))), "its exposed all-reduce")[2:] == ["0 us", ""]


def test_Headline_FastAndSlowRunOfOneMachine_AreRanges(write_run):
    fast, slow = (
        stored_programs.read(write_run(name=f"{name}.json", tcp_us=tcp, dpdk_us=dpdk))
        for name, tcp, dpdk in (("a", 1000.0, 250.0), ("b", 2000.0, 1000.0))
    )
    text = tables.headline([fast, slow])
    assert text.count("| --- ") == 4 and "| PyTorch 2.13, 2 ranks on 2 cores of a processor |" in text
    assert cells_of(text, "tensor-parallel decoding, 24 layers of 1,024 |")[1:] == [
        "10 to 20 tokens/s",
        "20 to 80 tokens/s",
        "2 to 4 x",
    ]
    assert cells_of(text, "`all_reduce` of 8 KiB")[1:] == ["1 to 2 ms", "250 us to 1 ms", "2 to 4 x"]
    assert "64 MiB" not in text, "it was not measured"


def test_Headline_GainAndLoss_AreNotBoldAndOnlyLossesAre(write_run):
    gain, loss = (
        stored_programs.read(write_run(name=f"{name}.json", dpdk_us=dpdk))
        for name, dpdk in (("a", 500.0), ("b", 1250.0))
    )
    assert cells_of(tables.headline([gain, loss]), "`all_reduce` of 8 KiB")[-1] == "0.8 to 2 x"
    assert cells_of(tables.headline([loss]), "`all_reduce` of 8 KiB")[-1] == "**0.8 x**"


def test_Headline_MachinesWithMoreCores_HaveTablesOfTheirOwn(write_run):
    runs = [stored_programs.read(write_run(name=f"{cores}.json", cores=cores)) for cores in (16, 2)]
    text = tables.headline(runs)
    assert text.index("on 2 cores") < text.index("on 16 cores") and text.count("\n| --- |") == 2


def test_Headline_OlderPyTorchOfTheSameMachine_IsLeftOut(write_run):
    old = stored_programs.read(write_run(lambda record: record.update(torch="1.13.0a0"), "old.json", dpdk_us=100.0))
    new = stored_programs.read(write_run())
    assert tables.headline([old, new]) == tables.headline([new])
    assert "PyTorch 1.13, " in tables.headline([old])


def test_Headline_ProcessorsOfOneKind_AreAllNamed(write_run):
    other = stored_programs.read(write_run(lambda record: record["machine"].update(processor="another"), "b.json"))
    assert "2 cores of a processor and another |" in tables.headline([stored_programs.read(write_run()), other])


def test_Headline_RunOfLittleEffort_IsLeftOut(write_run):
    assert tables.headline([stored_programs.read(write_run(lambda record: record.update(effort="tiny")))]) == ""
