"""Chakra's files: written as others read them, and read whatever they hold."""

import gzip
import random

import pytest
from conftest import compute, message, reduce
from gloo_bypass_tools.execution_traces import schema, trace
from gloo_bypass_tools.execution_traces.trace import Node, Trace, TraceError

# GlobalMetadata(version="1.0.0"), and a Node by protobuf's wire format: id 7, name "AR", type COMM_COLL_NODE, data_deps
# [3, 4] packed, start 300, duration 5, attr comm_type int64 0 (an ALL_REDUCE) and comm_size int64 1024.
BY_HAND = bytes.fromhex(
    "07 0a 05 31 2e 30 2e 30"
    "06 08 03 18 04 38 09"  # node 3, a COMP_NODE of 9 us
    "06 08 04 18 04 38 01"
    "30 08 07 12 02 41 52 18 07 2a 02 03 04 30 ac 02 38 05"
    "52 0d 0a 09 63 6f 6d 6d 5f 74 79 70 65 48 00"
    "52 0e 0a 09 63 6f 6d 6d 5f 73 69 7a 65 48 80 08"
)


def test_Read_AFileByHand_HasItsNodes(tmp_path):
    path = tmp_path / "x.0.et"
    path.write_bytes(BY_HAND)
    first, second, third = trace.read(path).nodes
    assert (first.id, first.kind, first.duration_us) == (3, trace.COMPUTE, 9)
    assert second.id == 4
    assert third == Node(
        7, "AR", trace.COLLECTIVE, [3, 4], start_us=300, duration_us=5, operation="ALL_REDUCE", bytes=1024
    )


def test_WrittenAndRead_AreTheSame(tmp_path):
    nodes = [
        Node(0, "ProfilerStep#3", trace.NOTHING, duration_us=99, step=3),
        compute(1, 12, step=3, start_us=5),
        reduce(2, 400, [1], group="tp", step=3),
        reduce(3, 0, [1], operation="BARRIER"),
        message(trace.SEND, 4, 1, 16, [2], tag=9),
        message(trace.RECEIVE, 5, 1, 24),
        Node(6, "kernel", trace.COMPUTE, [2], duration_us=300, stream=7),
        Node(7, "gemm", trace.COMPUTE, [2], operations=10**12),
    ]
    path = tmp_path / "x.0.et"
    for octets in (trace.as_bytes(Trace(nodes), "x"), gzip.compress(trace.as_bytes(Trace(nodes), "x"))):
        path.write_bytes(octets)
        found = trace.read(path)
        assert found.nodes == nodes and found.steps_us == {3: 99}


def test_Read_NamesBeyondWhatIsKept_AreCut(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MOST_NAMED", 7)
    path = tmp_path / "x.0.et"
    path.write_bytes(trace.as_bytes(Trace([Node(number, "kernel", trace.COMPUTE) for number in range(3)]), "x"))
    assert [node.name for node in trace.read(path).nodes] == ["kernel", "k", ""]


@pytest.mark.parametrize(
    "version, schema_said, accepted",
    [("1.0.0", "", True), ("0.0.4", "", True), ("", "1.0.1", True), ("", "1.0.2-chakra.0.0.4", True), ("", "", True)]
    + [("1.0", "", True), ("0.0.4.1", "", True), ("0.0.40", "", False), ("1.00", "", False)]
    + [("2.0.0", "", False), ("", "1.0.2-chakra.3.1", False), ("0.0.3", "", False)],
)
def test_Version_OfAnotherSchema_IsRefused(tmp_path, version, schema_said, accepted):
    header = schema.GlobalMetadata(version=version)
    if schema_said:
        header.attr.append(schema.Attribute(name="schema", string_val=schema_said))
    path = tmp_path / "x.0.et"
    path.write_bytes(trace.with_length(header) + trace.with_length(schema.Node(id=1, type=4)))
    if accepted:
        assert len(trace.read(path).nodes) == 1
    else:
        with pytest.raises(TraceError, match="this reads 0.0.4 and 1.0"):
            trace.read(path)


def attribute(name, **value):
    return schema.Attribute(name=name, **value)


@pytest.mark.parametrize(
    "node, said",
    [
        (schema.Node(id=1), "its type 0 is none"),
        (schema.Node(id=1, type=4, data_deps=[2]), "waits for node 2, which there is not"),
        (schema.Node(id=1, type=4, duration_micros=2**63), "more than a day"),
        (
            schema.Node(id=1, type=4, attr=[attribute("pg_name", string_val="g" * (1 << 21))]),
            "names of groups have over",
        ),
        (schema.Node(id=1, type=5), "to or from which rank"),
        (schema.Node(id=1, type=5, attr=[attribute("comm_dst", int32_val=-1)]), "comm_dst is no number"),
        (schema.Node(id=1, type=7, attr=[attribute("comm_type", int64_val=10)]), "comm_type is no number from 0 to 9"),
        (schema.Node(id=1, type=7, attr=[attribute("comm_type", string_val="x")]), "comm_type is no number"),
        (
            schema.Node(
                id=1, type=7, attr=[attribute("comm_type", int64_val=0), attribute("comm_size", int64_val=1 << 41)]
            ),
            "comm_size is no number",
        ),
    ],
)
def test_Node_ThatCannotBe_IsRefused(tmp_path, node, said):
    path = tmp_path / "x.0.et"
    path.write_bytes(trace.with_length(schema.GlobalMetadata(version="1.0.0")) + trace.with_length(node))
    with pytest.raises(TraceError, match=said) as refused:
        trace.read(path)
    assert str(path) in str(refused.value) and "node 1" in str(refused.value)


def test_Read_MoreDependenciesThanMemoryHolds_IsRefused(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MOST_DEPENDENCIES", 5)
    nodes = [compute(1), compute(2, waits_for=[1] * 3), compute(3, waits_for=[1] * 3)]
    path = tmp_path / "x.0.et"
    path.write_bytes(trace.as_bytes(Trace(nodes), "x"))
    with pytest.raises(TraceError, match="more than 5 others"):
        trace.read(path)


def test_Quoted_KeepsALineALine():
    assert trace.quoted("a\nb\x1b[31m") == r"'a\nb\x1b[31m'" and len(trace.quoted("x" * 1000)) == 62


def test_Read_TwoNodesOfOneId_AreRefused(tmp_path):
    path = tmp_path / "x.0.et"
    path.write_bytes(trace.as_bytes(Trace([compute(1), compute(1)]), "x"))
    with pytest.raises(TraceError, match="one id"):
        trace.read(path)


@pytest.mark.parametrize(
    "octets, said",
    [
        (b"", "holds no nodes"),
        (b"\xff\xff\xff\xff\xff\xff", "no Chakra execution trace"),
        (b"\xff\xff\xff\x7f" + bytes(100), "a message of 268435455 bytes"),
        (BY_HAND[:-3], "is cut off"),
        (b'{"traceEvents": []}', "no Chakra execution trace|cut off"),
        (gzip.compress(BY_HAND)[:-9], "ended before"),
        (gzip.compress(BY_HAND)[:12] + b"\xff" * 40, "Error|invalid"),
    ],
)
def test_Read_WhatIsNoTrace_IsRefused(tmp_path, octets, said):
    path = tmp_path / "x.0.et"
    path.write_bytes(octets)
    with pytest.raises(TraceError, match=said):
        trace.read(path)


def test_Read_ChangedOctets_GiveATraceOrAnError(tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw, path = random.Random(seed), tmp_path / "x.0.et"
    whole = bytearray(trace.as_bytes(Trace([compute(1), reduce(2, 64, [1]), message(trace.SEND, 3, 1)]), "x"))
    for _ in range(3000):
        octets = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            octets[draw.randrange(len(octets))] = draw.randrange(256)
        path.write_bytes(octets[: draw.choice([len(octets), draw.randrange(len(octets))])])
        try:
            assert trace.read(path).nodes
        except TraceError as error:
            assert str(path) in str(error)


def test_FilesOf_APrefix_NeedsAllRanks(tmp_path, write_traces):
    write_traces([compute(1)], [compute(1)], [compute(1)])
    (tmp_path / "run.01.et").write_bytes(b"")  # no rank's
    assert [path.name for path in trace.files_of(tmp_path / "run")] == ["run.0.et", "run.1.et", "run.2.et"]
    assert trace.files_of(tmp_path / "run.1.et") == [tmp_path / "run.1.et"]
    (tmp_path / "run.1.et").unlink()
    with pytest.raises(TraceError, match="run.1.et is missing"):
        trace.files_of(tmp_path / "run")
    with pytest.raises(TraceError, match="no other.0.et"):
        trace.files_of(tmp_path / "other")
