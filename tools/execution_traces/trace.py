"""Execution traces of ranks, as Chakra has them: what a rank computed, sent and reduced, and what waited for what.

A file PREFIX.N.et holds rank N's nodes; it may be compressed by gzip. What a file says is checked as it is read: a
TraceError names the file, and the node.
"""

import gzip
import os
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError

from gloo_bypass_tools.common.failures import BAD_INPUT, Failure
from gloo_bypass_tools.execution_traces import schema

# The version that is written, and those that are read, whose field numbers are the same: with whatever follows a dot.
VERSION, READ = "1.0.0", ("0.0.4", "1.0")
MOST_NODES, MOST_NODE_BYTES, MOST_BYTES = 1 << 20, 16 << 20, 4 << 30
MOST_RANKS, MOST_DEPENDENCIES = 1024, 1 << 24
# Of all nodes' names together so many characters are kept: a kernel's may hold all its types. And all groups' names may
# have so many.
MOST_NAMED, MOST_GROUPS_NAMED = 64 << 20, 1 << 20
# Numbers that a node may have, so that sums of them stay whole and no wait is endless: a day, a tebibyte.
MOST_US, MOST_COMM_BYTES = 86_400_000_000, 1 << 40

COMPUTE, COLLECTIVE, SEND, RECEIVE, NOTHING = "compute", "collective", "send", "receive", "nothing"
_KINDS = {
    "COMP_NODE": COMPUTE,
    "MEM_LOAD_NODE": COMPUTE,
    "MEM_STORE_NODE": COMPUTE,
    "COMM_COLL_NODE": COLLECTIVE,
    "COMM_SEND_NODE": SEND,
    "COMM_RECV_NODE": RECEIVE,
    "METADATA_NODE": NOTHING,
}


class TraceError(Failure):
    """A file that is no trace, or one that cannot be played."""

    status = BAD_INPUT


@dataclass
class Node:
    """`waits_for`: ids of nodes that have ended before this one begins. `on_cpu`: computed by the rank's processor, not
    by an accelerator; those of one `stream` follow each other. `operation`: one of schema.COLLECTIVES, and `bytes` what
    each rank puts into it. `peer`: of a send or receive. `operations`: of floating point, where no duration is known.
    `step`: the training step that it is part of, if that is known."""

    id: int
    name: str
    kind: str
    waits_for: list = field(default_factory=list)
    start_us: int = 0
    duration_us: int = 0
    on_cpu: bool = False
    stream: int = 0
    operation: str = ""
    bytes: int = 0
    group: str = ""
    peer: int = 0
    tag: int = 0
    operations: int = 0
    step: int | None = None


@dataclass
class Trace:
    """Of one rank. `steps_us`: {step: how long it took in the run that was traced}."""

    nodes: list
    steps_us: dict = field(default_factory=dict)


def quoted(text):
    """Of a file's text, for a line that a user reads."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


# --- files ---------------------------------------------------------------------------------------------------------


def files_of(prefix):
    """The files of ranks 0 to N - 1 of PREFIX; one file alone is one rank of as many as the caller says."""
    path = Path(prefix)
    if path.is_file():
        return [path]
    stem, found = path.name + ".", {}
    try:
        names = os.listdir(path.parent)
    except OSError as error:
        raise TraceError(f"{path.parent}: {error.strerror}") from error
    for name in names:
        rank = name.removeprefix(stem).removesuffix(".et")
        if name == f"{stem}{rank}.et" and rank.isascii() and rank.isdigit() and str(int(rank)) == rank:
            found[int(rank)] = path.parent / name
    if not found:
        raise TraceError(
            f"{prefix}: there is no such file, and no {path.name}.0.et; scripts/execution-trace makes traces"
        )
    for rank in range(max(found) + 1):
        if rank not in found:
            raise TraceError(f"{prefix}: of ranks 0 to {max(found)}, {path.name}.{rank}.et is missing")
    return [found[rank] for rank in range(len(found))]


def varint(file, path):
    """A message's length; None at the end of the file."""
    value = shift = 0
    while octet := file.read(1):
        value |= (octet[0] & 0x7F) << shift
        if octet[0] < 0x80:
            return value
        shift += 7
        if shift > 28:
            break
    if shift == 0:
        return None
    raise TraceError(f"{path}: this is no Chakra execution trace: a message's length is cut off, or too long")


def messages(path):
    """The messages of a file, as bytes."""
    total = 0
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        with gzip.open(raw) if packed else raw as file:
            while (length := varint(file, path)) is not None:
                total += length
                if length > MOST_NODE_BYTES or total > MOST_BYTES:
                    raise TraceError(f"{path}: a message of {length} bytes, {total} in all: this is no execution trace")
                message = file.read(length)
                if len(message) < length:
                    raise TraceError(f"{path}: the file is cut off: a message has {len(message)} of {length} bytes")
                yield message


def read(path):
    """The Trace of one rank."""
    try:
        with warnings.catch_warnings(record=True) as partly:
            warnings.simplefilter("always", RuntimeWarning)
            every = messages(path)
            check_version(path, schema.GlobalMetadata.FromString(next(every, b"")))
            found = trace_of(path, (schema.Node.FromString(message) for message in every))
        if partly:  # protobuf's own program in C++ warns of a message that it could read only in part
            raise TraceError(f"{path}: this is no Chakra execution trace: {partly[0].message}")
        return found
    except (DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: this is no Chakra execution trace: {error}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error


def check_version(path, header):
    said = header.version
    for attribute in header.attr:
        if attribute.name == "schema" and "chakra." in attribute.string_val:
            said = said or attribute.string_val.partition("chakra.")[2]
    if said and not f"{said}.".startswith(tuple(f"{version}." for version in READ)):
        raise TraceError(f"{path}: a trace of Chakra {quoted(said)}; this reads {' and '.join(READ)}")


def trace_of(path, messages_of_nodes):
    found, steps_us, dependencies = Trace([]), {}, 0
    left, of_groups, groups = MOST_NAMED, MOST_GROUPS_NAMED, {}
    for message in messages_of_nodes:
        if len(found.nodes) == MOST_NODES:
            raise TraceError(f"{path}: more than {MOST_NODES} nodes")
        dependencies += len(message.data_deps)
        if dependencies > MOST_DEPENDENCIES:
            raise TraceError(f"{path}: its nodes wait for more than {MOST_DEPENDENCIES} others in all")
        node = node_of(path, message)
        node.name = node.name[:left]
        left -= len(node.name)
        of_groups -= 0 if node.group in groups else len(node.group)
        node.group = groups.setdefault(node.group, node.group)
        if of_groups < 0:
            raise TraceError(f"{path}: up to node {node.id} names of groups have over {MOST_GROUPS_NAMED} characters")
        found.nodes.append(node)
        if node.kind == NOTHING and node.step is not None:
            steps_us[node.step] = node.duration_us
    if not found.nodes:
        raise TraceError(f"{path}: it holds no nodes")
    check_dependencies(path, found.nodes)
    found.steps_us = steps_us
    return found


# --- nodes ---------------------------------------------------------------------------------------------------------


def number_of(path, message, attributes, name, most, default=0):
    """Whichever kind of number a writer chose."""
    if name not in attributes:
        return default
    kind = attributes[name].WhichOneof("value") or ""
    value = getattr(attributes[name], kind) if kind else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise TraceError(f"{path}: node {message.id}: its {name} is no number from 0 to {most}")
    return value


def operation_of(path, message, attributes):
    code = number_of(path, message, attributes, "comm_type", len(schema.COLLECTIVES) - 1)
    return schema.COLLECTIVES[code]


def kind_of(path, message, attributes):
    kind = _KINDS.get(schema.NODE_TYPES[message.type] if 0 <= message.type < len(schema.NODE_TYPES) else "")
    if kind is None:
        raise TraceError(f"{path}: node {message.id}: its type {message.type} is none that Chakra 1.0 has")
    # Chakra's converter calls the host's part of a collective one, too; only the kernel's has what is needed.
    if kind == COLLECTIVE and "comm_type" not in attributes:
        return COMPUTE
    return kind


def node_of(path, message):
    attributes = {attribute.name: attribute for attribute in message.attr}
    kind = kind_of(path, message, attributes)
    if message.duration_micros > MOST_US:
        raise TraceError(f"{path}: node {message.id}: its duration_micros {message.duration_micros} is more than a day")
    node = Node(
        message.id,
        message.name,
        kind,
        list(message.data_deps),
        message.start_time_micros,
        message.duration_micros,
        attributes["is_cpu_op"].bool_val if "is_cpu_op" in attributes else False,
        number_of(path, message, attributes, "stream", 1 << 62),
        operation_of(path, message, attributes) if kind == COLLECTIVE else "",
        number_of(path, message, attributes, "comm_size", MOST_COMM_BYTES),
        attributes["pg_name"].string_val if "pg_name" in attributes else "",
        operations=number_of(path, message, attributes, "num_ops", (1 << 63) - 1),
        step=number_of(path, message, attributes, "step", 1 << 53, None),
    )
    if kind in (SEND, RECEIVE):
        node.peer = number_of(path, message, attributes, "comm_dst" if kind == SEND else "comm_src", MOST_RANKS - 1, -1)
        node.tag = number_of(path, message, attributes, "comm_tag", (1 << 31) - 1)
        if node.peer < 0:
            raise TraceError(f"{path}: node {node.id}: it does not say to or from which rank it goes")
    return node


def check_dependencies(path, nodes):
    ids = {node.id for node in nodes}
    if len(ids) < len(nodes):
        raise TraceError(f"{path}: two of its nodes have one id")
    for node in nodes:
        for other in node.waits_for:
            if other not in ids:
                raise TraceError(f"{path}: node {node.id} waits for node {other}, which there is not")


# --- writing -------------------------------------------------------------------------------------------------------


def check_writable(path, trace):
    """TraceError for numbers that read() would refuse."""
    for node in trace.nodes:
        for what, value, most in (
            ("start", node.start_us, 1 << 62),
            ("duration", node.duration_us, MOST_US),
            ("bytes", node.bytes, MOST_COMM_BYTES),
            ("step", node.step or 0, 1 << 53),
        ):
            if not isinstance(value, int) or not 0 <= value <= most:
                raise TraceError(f"{path}: {quoted(node.name)}: its {what} is no number from 0 to {most}")


def attributes_of(node):
    yield schema.Attribute(name="is_cpu_op", bool_val=node.on_cpu)
    if node.kind == COLLECTIVE:
        yield schema.Attribute(name="comm_type", int64_val=schema.COLLECTIVES.index(node.operation))
    if node.kind in (COLLECTIVE, SEND, RECEIVE):
        yield schema.Attribute(name="comm_size", int64_val=node.bytes)
    if node.kind in (SEND, RECEIVE):
        yield schema.Attribute(name="comm_dst" if node.kind == SEND else "comm_src", int32_val=node.peer)
        yield schema.Attribute(name="comm_tag", int32_val=node.tag)
    if node.group:
        yield schema.Attribute(name="pg_name", string_val=node.group)
    if node.stream:
        yield schema.Attribute(name="stream", int64_val=node.stream)
    if node.operations:
        yield schema.Attribute(name="num_ops", int64_val=node.operations)
    if node.step is not None:
        yield schema.Attribute(name="step", int64_val=node.step, doc_string="of training")


def message_of(node):
    types = {kind: schema.NODE_TYPES.index(name) for name, kind in reversed(_KINDS.items())}
    return schema.Node(
        id=node.id,
        name=node.name,
        type=types[node.kind],
        data_deps=node.waits_for,
        start_time_micros=node.start_us,
        duration_micros=node.duration_us,
        attr=attributes_of(node),
    )


def with_length(message):
    packed = message.SerializeToString()
    length, value = bytearray(), len(packed)
    while value >= 0x80:
        length.append(value & 0x7F | 0x80)
        value >>= 7
    length.append(value)
    return bytes(length) + packed


def as_bytes(trace, source):
    """The file of one rank. `source`: of what run, for whoever reads it."""
    header = schema.GlobalMetadata(version=VERSION, attr=[schema.Attribute(name="source", string_val=source)])
    return b"".join([with_length(header), *(with_length(message_of(node)) for node in trace.nodes)])
