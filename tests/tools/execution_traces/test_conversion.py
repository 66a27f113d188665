"""Execution traces made of what ddp_train and PyTorch's profiler write, of documents with known times."""

import argparse
import copy

import pytest
from conftest import span, training
from gloo_bypass_tools.execution_traces import command, from_ddp_train, from_profiler, plan, trace
from gloo_bypass_tools.execution_traces.trace import COLLECTIVE, COMPUTE, TraceError


def computed(nodes, step):
    """(name, duration) of what a step computes, in order."""
    return [(node.name, node.duration_us) for node in nodes if node.kind == COMPUTE and node.step == step]


def by_name(nodes, name, step):
    return next(node for node in nodes if node.name == name and node.step == step)


def ancestors(nodes, node):
    found, left, known = set(), list(node.waits_for), {one.id: one for one in nodes}
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += known[number].waits_for
    return found


# --- ddp_train ---


def test_DdpTrain_AStep_IsCutWhereBucketsAreHandedOver():
    (first, second) = from_ddp_train.convert("t.json", training())
    for nodes in (first.nodes, second.nodes):
        assert computed(nodes, 1) == [
            ("DistributedDataParallel.forward", 300),
            ("backward", 150),
            ("backward", 200),
            ("backward", 10),  # from the last bucket's end on; 40 us were waited
            ("Optimizer.step#AdamW.step", 200),
        ]
        assert [node.bytes for node in nodes if node.kind == COLLECTIVE and node.step == 2] == [400, 800, 0]
        assert ("between steps", 200) in [(node.name, node.duration_us) for node in nodes if node.step is None]
    assert first.steps_us == {1: 1000, 2: 1000}


def test_DdpTrain_Optimizer_WaitsForBucketsAndTheNextStepForTheBarrier():
    nodes = from_ddp_train.convert("t.json", training())[0].nodes
    buckets = {by_name(nodes, f"all-reduce of bucket {number}", 1).id for number in (0, 1)}
    last_of_backward = [node for node in nodes if node.name == "backward" and node.step == 1]
    assert buckets <= ancestors(nodes, last_of_backward[-1]) and not buckets & ancestors(nodes, last_of_backward[1])
    assert by_name(nodes, "barrier", 1).id in ancestors(nodes, by_name(nodes, "DistributedDataParallel.forward", 2))
    first_bucket = by_name(nodes, "all-reduce of bucket 0", 1)
    assert ancestors(nodes, first_bucket) & {one.id for one in nodes if one.name == "backward"}


def test_DdpTrain_BucketsThatAllEndedDuringBackward_AreStillNeeded():
    document = training(steps=1)
    document["traceEvents"] = [one for one in document["traceEvents"] if "exposed" not in one["name"]]
    nodes = from_ddp_train.convert("t.json", document)[0].nodes
    bucket = by_name(nodes, "all-reduce of bucket 1", 1)
    assert bucket.id in ancestors(nodes, by_name(nodes, "Optimizer.step#AdamW.step", 1))
    assert bucket.id not in ancestors(nodes, [node for node in nodes if node.name == "backward"][-1])


def test_DdpTrain_Durations_SumToTheStep():
    document = training(ranks=1, steps=5)
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            event["ts"] += 0.37 * event["args"]["step"]
    (one,) = from_ddp_train.convert("t.json", document)
    assert sum(duration for _, duration in computed(one.nodes, 3)) == 1000 - 40 - 100


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"exchange": "--compress"}, "exchanged by '--compress'"),
        ({"exchange": "--zero"}, "exchanged by '--zero'"),
        ({"steps": 0}, "it has no steps"),
        ({"steps": 1, "left_out": 3}, "no whole step"),
    ],
)
def test_DdpTrain_WhatIsNotUnderstood_IsRefused(changes, said):
    with pytest.raises(TraceError, match=said):
        from_ddp_train.convert("t.json", training(**changes))


def test_DdpTrain_MoreRanksThanItHas_IsRefusedAndTakesNoMemory():
    document = training()
    document["distributedInfo"]["world_size"] = 10**18
    with pytest.raises(TraceError, match="does not have the spans of all 1000000000000000000 ranks"):
        from_ddp_train.convert("t.json", document)


def test_DdpTrain_AStepThatWasNotedDownInPart_IsLeftOut():
    assert from_ddp_train.convert("t.json", training(steps=2, left_out=3))[0].steps_us == {1: 1000}


# --- PyTorch's profiler ---

FLOAT = {"Input type": ["float"]}


def operator(name, begin_us, end_us, thread=1, category="cpu_op", **more):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 9,
        "tid": thread,
        "ts": begin_us,
        "dur": end_us - begin_us,
    } | {"args": more}


def launch(begin_us, end_us, count, synchronous=False):
    inputs = ["", "", "", "", str(not synchronous), "-1"]
    return operator(
        "c10d::allreduce_",
        begin_us,
        end_us,
        **{"Input Dims": [[[count]], []], "Input type": ["TensorList"], "Concrete Inputs": inputs},
    )


def profile(rank=0, ranks=1):
    """A step of 2 ms: computes to 500, issues 100 floats, computes 600 to 1000, nothing runs until the all-reduce's end
    at 1500, the optimiser to 1800, and a synchronous all-reduce of one float until 1950."""
    events = [
        operator("ProfilerStep#4", 0, 2000, category="user_annotation"),
        operator("aten::mm", 0, 500),
        launch(500, 510, 100),
        operator("gloo:all_reduce", 505, 1500, 2, "user_annotation", **FLOAT),
        operator("aten::mm", 600, 1000),
        operator("aten::add", 1520, 1550),
        operator("Optimizer.step#SGD.step", 1550, 1800, category="user_annotation"),
        operator("aten::add_", 1560, 1800),
        launch(1800, 1810, 1, synchronous=True),
        operator("gloo:all_reduce", 1805, 1950, 2, "user_annotation", **FLOAT),
        operator("aten::sub", 1960, 2000),
    ]
    return {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": ranks}, "traceEvents": events}


def test_Profiler_AStep_ComputesButWhereItWaits():
    (one,) = from_profiler.convert({"p.json": profile()})
    assert [(node.bytes, node.step) for node in one.nodes if node.kind == COLLECTIVE] == [(400, 4), (4, 4)]
    # 500 until the first launch; 500 to 1000; 1500 to 1800 and 10 for the second launch; 1950 to the end.
    assert sum(duration for _, duration in computed(one.nodes, 4)) == 500 + 500 + 310 + 50
    first, second = (node for node in one.nodes if node.kind == COLLECTIVE)
    assert first.id in ancestors(one.nodes, by_name(one.nodes, "Optimizer.step#SGD.step", 4))
    assert second.id in ancestors(one.nodes, one.nodes[-1])
    assert one.steps_us == {4: 2000}


def test_Profiler_WhatNobodyWaitedForVisibly_IsNeededByTheOptimizer():
    document = profile()
    for event in document["traceEvents"]:
        if event["name"] == "gloo:all_reduce" and event["ts"] == 505:
            event["dur"] = 200  # ends while mm runs
    (one,) = from_profiler.convert({"p.json": document})
    first = next(node for node in one.nodes if node.kind == COLLECTIVE)
    assert first.id in ancestors(one.nodes, by_name(one.nodes, "Optimizer.step#SGD.step", 4))
    assert sum(duration for _, duration in computed(one.nodes, 4)) == 500 + 500 + 500 + 310 + 50


def changed(change):
    document = copy.deepcopy(profile())
    change(document["traceEvents"])
    return document


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda events: events[2]["args"].pop("Input Dims"), "record_shapes=True"),
        (lambda events: events[3]["args"].pop("Input type"), "of which type its elements are"),
        (
            lambda events: events.__setitem__(slice(None), [one for one in events if "c10d" not in one["name"]]),
            "no collective",
        ),
        (lambda events: events[2].update(tid=7), "several threads"),
        (
            lambda events: events.append(operator("c10d::send", 900, 901)),
            "'c10d::send': understood are c10d::allreduce_",
        ),
        (
            lambda events: events.append(operator("ncclDevKernel_AllReduce", 1, 2, category="kernel")),
            "a profile of a GPU",
        ),
    ],
)
def test_Profiler_WhatIsNotUnderstood_IsRefused(change, said):
    with pytest.raises(TraceError, match=said):
        from_profiler.convert({"p.json": changed(change)})


def test_Profiler_Ranks_AreOrderedByTheirNumbersAndComplete():
    documents = {"b.json": profile(1, 2), "a.json": profile(0, 2)}
    documents["b.json"]["traceEvents"][0]["name"] = "ProfilerStep#9"
    zero, one = from_profiler.convert(documents)
    assert zero.steps_us == {4: 2000} and one.steps_us == {9: 2000}
    with pytest.raises(TraceError, match="one of 2 ranks"):
        from_profiler.convert({"a.json": profile(0, 2)})
    grouped = profile()
    grouped["distributedInfo"]["pg_count"] = 2
    with pytest.raises(TraceError, match="2 process groups"):
        from_profiler.convert({"a.json": grouped})
    with pytest.raises(TraceError, match="not ranks 0 to 1"):
        from_profiler.convert({"a.json": profile(0, 2), "b.json": profile(0, 2)})


# --- the command ---


def with_span(name="ProfilerStep#1", **changes):
    """A training whose last rank has a span that is changed."""
    document = training()
    next(one for one in reversed(document["traceEvents"]) if one["name"] == name).update(changes)
    return document


def test_Command_Convert_WritesWhatShowReads(write_json, tmp_path, capsys):
    assert command.main(["convert", str(write_json(training())), str(tmp_path / "run")]) == 0
    written = capsys.readouterr().out
    assert command.main(["show", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == written and "2 x ALL_REDUCE of 800 bytes" in written
    plan.make([trace.read(path) for path in trace.files_of(tmp_path / "run")])


@pytest.mark.parametrize(
    "document, said",
    [
        ([], "neither a trace of this ddp_train nor an export"),
        ({"traceEvents": [], "distributedInfo": {}}, "not as its writer makes it"),
        ({"traceEvents": [{"ph": "X"}], "distributedInfo": {"rank": 0, "world_size": 1}}, "no collective"),
        (
            training() | {"traceEvents": [span("ProfilerStep#1", 0, 5, 1, rank) | {"ts": "soon"} for rank in (0, 1)]},
            "writer makes it",
        ),
        (training() | {"ranks": []}, "writer makes it"),
        (with_span(dur=float("inf")), "writer makes it"),
        (with_span(dur=-5.0), "its duration is no number"),
        (with_span(dur=1e12), "its duration is no number"),
        (with_span("gloo:all_reduce", args={"step": 1, "bucket": 0, "bytes": 2**70}), "its bytes is no number"),
        (with_span("gloo:all_reduce", args={"step": 1, "bucket": 0, "bytes": "x"}), "its bytes is no number"),
    ],
)
def test_Command_WhatIsNoTrace_IsOneLineAndWritesNothing(write_json, tmp_path, capsys, document, said):
    assert command.main(["convert", str(write_json(document)), str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not list(tmp_path.glob("run*"))


def test_Command_AnEarlierTraceOfMoreRanks_IsNotMixedWithTheNew(write_json, tmp_path, capsys):
    path, prefix = write_json(training(ranks=3)), str(tmp_path / "run")
    assert command.main(["convert", str(path), prefix]) == 0
    before = (tmp_path / "run.0.et").read_bytes()
    assert command.main(["convert", str(write_json(training(ranks=2, steps=1))), prefix]) == 2
    assert "run.2.et is there, of a trace of more than 2 ranks" in capsys.readouterr().err
    assert (tmp_path / "run.0.et").read_bytes() == before
    assert command.main(["convert", str(write_json(training(ranks=3, steps=1))), prefix]) == 0


def test_Command_AFileThatCannotBeWritten_LeavesTheOthersAsTheyWere(write_json, tmp_path, capsys):
    (tmp_path / "run.1.et.partial").mkdir()
    assert command.main(["convert", str(write_json(training())), str(tmp_path / "run")]) == 1
    assert "run.1.et.partial: Is a directory" in capsys.readouterr().err and not list(tmp_path.glob("*.et"))


def test_Command_NoJson_IsOneLine(tmp_path, capsys):
    (tmp_path / "x").write_bytes(b"[" * 100_000)
    assert command.main(["convert", str(tmp_path / "x"), str(tmp_path / "run")]) == 2
    assert "this is no JSON" in capsys.readouterr().err


def test_Prefix_OfAFolderThatIsThere_IsTaken(tmp_path):
    (tmp_path / "run").mkdir()
    assert command.trace_prefix(str(tmp_path / "run")) == tmp_path / "run"
    (tmp_path / "link.0.et").symlink_to(tmp_path / "other")
    (tmp_path / "other").touch()
    with pytest.raises(argparse.ArgumentTypeError, match="symbolic link"):
        command.trace_prefix(str(tmp_path / "link"))
