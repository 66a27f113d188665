"""scripts/model volume: what an all-reduce puts on the wire, with the headers of each path."""

from gloo_bypass_tools.common.options import add_number
from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.model import framing, output, prediction, quantities, ring, schedule, vector

HELP = "bytes of an all-reduce, with each path's headers"
DESCRIPTION = """Bytes of one training step's all-reduce, of S bytes of gradients over N ranks.

  S = parameters x bits / 8
  ring       2 (N-1) S in total; 2 (N-1)/N S sent by each rank, and received
  broadcast  (N-1) S, once, before the first step
  headers    of Ethernet, IP and what follows; Gloo's preambles; notices, grants and acknowledgements

Bytes are those of a capture: without preamble, check sequence and gap on the wire. MB is 1e6 bytes."""
# Flows are shown as a matrix up to so many ranks.
MAX_MATRIX = 8


def add_options(parser):
    add_number(parser, "--ranks", int, 2, 4096, "from 2 to 4096", default=2)
    vector.add_options(parser)
    add_number(parser, "--mtu", int, 576, 65535, "of the interfaces, bytes", default=1500, metavar="B")


def costs(options, made):
    """Path -> Cost of all buckets."""
    found = {}
    for path in framing.paths(options.mtu):
        total = framing.NOTHING
        for bucket in made:
            parts = schedule.cut(bucket.size, options.ranks, options.segment_bytes, options.bits // 8)
            total += framing.event_cost(path, options.ranks, parts.segments())
        found[path] = total
    return found


def payload_table(options, size):
    title = f"Payload: {vector.name_of(options)}, {options.bits} bit, {options.ranks} ranks"
    table = output.table(title, "<", "formula", "bytes", "MB")
    for name, formula, value in (
        ("gradients, S", "P x bits / 8", size),
        ("ring, all ranks", "2(N-1) S", ring.event_bytes(options.ranks, size)),
        ("ring, a rank sends", "2(N-1)/N S", ring.rank_bytes(options.ranks, size)),
        ("broadcast, once", "(N-1) S", ring.broadcast_bytes(options.ranks, size)),
    ):
        output.add_row(table, name, formula, f"{value:,.0f}", f"{value / 1e6:,.3f}")
    return table


def path_table(options, size, found):
    payload = ring.event_bytes(options.ranks, size)
    columns = ("<path", "MB", "overhead", "edge of the ring", "its way back", "frames", "<a frame carries")
    table = output.table("With headers, an event, all ranks", *columns)
    for path, cost in found.items():
        overhead = quantities.percent(cost.total / payload - 1)
        edges = (f"{each / options.ranks / 1e6:,.3f}" for each in (cost.forward, cost.backward))
        cells = (f"{cost.total / 1e6:,.3f}", overhead, *edges, f"{cost.frames:,.0f}")
        output.add_row(table, path.name, *cells, path.about)
    return table


def matrix_table(options, size, cost):
    """Who sends how much to whom, before the first step and in each, over TCP as a bridge sees it."""
    title = "Flows, MB (first broadcast + each event)"
    table = output.table(title, "<from \\ to", *(str(rank) for rank in range(options.ranks)))
    forward, tree = set(ring.ring_edges(options.ranks)), set(ring.broadcast_edges(options.ranks))
    for start in range(options.ranks):
        cells = []
        for end in range(options.ranks):
            there = cost.forward if (start, end) in forward else 0
            back = cost.backward if (end, start) in forward else 0
            event = (there + back) / options.ranks
            first = f"{size / 1e6:,.1f} + " if (start, end) in tree else ""
            cells.append("" if start == end else f"{first}{event / 1e6:,.2f}" if first or event else "0")
        output.add_row(table, str(start), *cells)
    return table


def published_lines(options, size, found):
    """What the published capture says of the same event, and which headers that takes."""
    variant = {2: "ws=2", 4: "ws=4"}.get(options.ranks)
    if variant is None or size != prediction.Setting().size or options.bits != 32:
        return []
    figure = measurements.figure("5.14", "world-size", variant, "bytes_per_event", "median")
    payload = ring.event_bytes(options.ranks, size)
    excess = figure.base / payload - 1
    by_name = {path.name: cost for path, cost in found.items()}
    offloaded, wire = by_name["TCP, offloaded"], by_name["TCP"]
    each = framing.TCP_FRAME_BYTES / excess
    return [
        f"published (table 5.14, {variant}, median): {figure.value:,.3f} MB, "
        f"{quantities.percent(excess)} above the payload; model, TCP "
        f"offloaded: {quantities.megabytes(offloaded.total)}, published / model {figure.base / offloaded.total:.5f}",
        f"that overhead, acknowledgements included, is {framing.TCP_FRAME_BYTES} bytes for each {each:,.0f} bytes of "
        f"data; frames of {options.mtu} bytes would make it {quantities.percent(wire.total / payload - 1, 1)}. So the "
        "bridge saw packets of up to 64 KiB: offloading was off on the bridge, but the containers' own interfaces "
        "handed on what was not segmented",
    ]


def run(options):
    made = vector.buckets_of(options)
    size = sum(bucket.size for bucket in made)
    found = costs(options, made)
    payload = ring.event_bytes(options.ranks, size)
    offloaded = next(cost for path, cost in found.items() if path.name == "TCP, offloaded")
    record = {
        "schema": "gloo-bypass/model-volume/1",
        "inputs": vector.as_record(options, made) | {"mtu": options.mtu},
        "gradient_bytes": size,
        "event_bytes": payload,
        "rank_bytes": ring.rank_bytes(options.ranks, size),
        "broadcast_bytes": ring.broadcast_bytes(options.ranks, size),
        "ring_edges": ring.ring_edges(options.ranks),
        "broadcast_edges": ring.broadcast_edges(options.ranks),
        "paths": [
            {
                "path": path.name,
                "about": path.about,
                "event_bytes": cost.total,
                "overhead": cost.total / payload - 1,
                "edge_bytes": cost.forward / options.ranks,
                "back_bytes": cost.backward / options.ranks,
                "frames": cost.frames,
            }
            for path, cost in found.items()
        ],
    }
    tables = [payload_table(options, size), path_table(options, size, found)]
    if options.ranks <= MAX_MATRIX:
        tables.append(matrix_table(options, size, offloaded))
    output.finish(options, record, tables, published_lines(options, size, found))
    return 0
