"""Everything to one HTML page that needs nothing else: pictures are in it, no script, no outside address. Pure."""

import base64
from pathlib import Path

import jinja2

from . import machine, place, plots, published, summary, wording

FOLDER = Path(__file__).parent
# Which plots stand beside which table.
TRAINING_PLOTS = ("step_breakdown", "all_reduce_time")
ALL_REDUCE_PLOTS = ("bandwidth", "latency")
GUEST_PLOTS = ("guest_bandwidth", "guest_latency")


def data_uri(png):
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def pictures(light, dark):
    """Name -> what the template needs to show a plot in both themes."""
    return {name: {"light": data_uri(png), "dark": data_uri(dark[name]) if name in dark else None,
                   "alt": plots.DESCRIPTIONS[name]} for name, png in light.items()}


def tile(value, label, good=None):
    return {"value": value, "label": label, "good": good}


def tiles(measurement, made):
    """The few figures that answer: the same? who was faster?"""
    transports = measurement.transports
    if len(transports) < 2:
        return []
    first, other = transports[0], transports[1]
    sweep = (("10M floats", summary.TEN_MILLION_BYTES), ("1 element", summary.ONE_ELEMENT_BYTES))
    compared = [(made.training, "step_s", "training step", other), (made.training, "all_reduce_s", "all-reduce in training", other)]
    compared += [(made.all_reduce, f"all_reduce_{size}", f"ring all-reduce, {label}", transport)
                 for transport in transports[1:] for label, size in sweep]
    found = []
    if made.same_bits is not None:
        found.append(tile("identical" if made.same_bits else "different", "trained parameters, bit for bit", made.same_bits))
    for rows, key, label, transport in compared:
        one = summary.ratio_at(rows, key, transport)
        if one is not None:
            good = True if one.value >= 1.02 else False if one.value < 0.95 else None
            found.append(tile(f"{one.value:.2f}\u202f\u00d7", f"{label}: {transport} as fast as {first}", good))
    cpu = summary.figure_at(made.idle, "cpu_percent", other)
    if cpu is not None:
        found.append(tile(f"{cpu.median:.2f} %", f"of a core for an idle rank over {other}", cpu.median < 1.0))
    return found


def all_reduce_lines(frame, transports):
    """The whole sweep: for each size, each transport's median and 99th percentile, bandwidth, ratio and wrong elements."""
    lines = []
    for size in sorted(frame["bytes"].unique()):
        cells, medians = [], {}
        for transport in transports:
            part = frame[(frame["bytes"] == size) & (frame["transport"] == transport)]
            if not len(part):
                cells.append(None)
                continue
            one = part.iloc[-1]
            medians[transport] = one["p50_us"]
            cells.append({"p50": wording.number(one["p50_us"]), "p99": wording.number(one["p99_us"]),
                          "busbw": wording.number(summary.busbw(size, one["p50_us"], one["ranks"])),
                          "wrong": one["wrong"]})
        ratios = [summary.times_better(medians.get(transports[0]), medians.get(transport), "lower")
                  for transport in transports[1:]]
        wrong = [cell["wrong"] for cell in cells if cell and cell["wrong"] is not None]
        lines.append({"size": summary.size_text(int(size)), "cells": cells,
                      "wrong": int(sum(wrong)) if wrong else "not checked",
                      "ratios": ["" if value is None else f"{value:.2f}\u202f\u00d7" for value in ratios]})
    return lines


def samples_text(rows):
    counts = sorted({figure.samples for row in rows for figure in row.figures.values()})
    return " to ".join(str(count) for count in ([counts[0], counts[-1]] if len(counts) > 1 else counts))


def repeats_done(measurement):
    return {transport: int(measurement.runs[measurement.runs["transport"] == transport]["repeat"].nunique())
            for transport in measurement.transports}


def rdma_notes(measurement, made):
    """Of RDMA: what it stands beside."""
    found = []
    if len(measurement.beside):
        found.append("perftest's ib_write_bw ran before, between and after the all-reduces that it stands beside, on the same device, "
                     "with 1 MiB messages and both directions busy; the figure is half of what it reports for both directions together.")
    if made.bound:
        found.append("Gloo's own transport over verbs knows bound buffers only, on which no collective of PyTorch runs. It is compared in "
                     "Gloo's ring-chunked algorithm, which every transport runs, with the transports in turn as above.")
    return found


def place_note(measurement):
    where = measurement.place
    if where.kind == place.GUEST:
        return (f"Everything was measured {where.in_words()}, because {where.why}. Each instruction takes about ten times as long there: "
                "compare these figures with each other, and with no other machine's.")
    return "Both ranks share this machine's processors and memory with the transport; nothing here went over a wire."


def notes(measurement, made):
    """What was measured and how, each a sentence or two; honest about what the numbers cannot say."""
    plan, found = measurement.record["plan"], []
    order = " ".join(measurement.transports)
    if made.training:
        done = repeats_done(measurement)
        each = min(done.values()) if done else 0
        measured = plan["steps"] - plan["warm_up"]
        times = "once" if each == 1 else f"{each} times over"
        found.append(f"Training ran in the order {order}, {times}, each run in fresh processes with the same seed: "
                     f"{plan['steps']} steps, {plan['warm_up']} of them warm-up, {measured} measured. Figures are medians "
                     "over all measured steps of all ranks and runs.")
        found.append(f"With {samples_text(made.training)} samples a quantity, the 99th percentile of the training is close to "
                     "its slowest step: read it as that. For rates the 1st percentile stands in its place.")
        if each > 1:
            found.append("The range after a ratio is over the repeats: each run against the run of the other transport next "
                         "to it.")
        found.append("T_ar runs from the moment the first bucket of gradients is handed over until the last one is done, on each "
                     "rank; the part not hidden runs from the moment the last bucket is handed over. It includes waiting for "
                     "the slower rank.")
        found.append("Bytes are what each transport counts itself: the kernel's counters of the TCP connections, which leave headers "
                     "out and retransmissions in, and the plug-in's counters.")
    if made.all_reduce:
        rounds = int(measurement.reduces["rounds"].max())
        found.append(f"All-reduces are Gloo's ring on float sums, driven directly. The transports alternated in {rounds} rounds in the "
                     "same processes, and every size was checked for wrong elements. Times are over every single "
                     "iteration of every rank; bandwidth is bus bandwidth as nccl-tests defines it, size / time \u00d7 2(N\u22121)/N, "
                     "of the median time. GB means 10\u2079 bytes.")
    if made.idle:
        found.append(f"An idle rank is connected, has reduced a few times, and then does nothing for {plan['idle_s']:g} seconds. Memory "
                     "is what it holds more than before it had a device (its proportional share of shared pages).")
    # A guest's own load says nothing of the machine that it runs on.
    load = measurement.record.get("host", measurement.record["machine"]).get("load_before")
    if load is not None:
        busy = load > 0.5
        found.append(f"The machine's load was {load:g} when the measurement began" +
                     (": something else was running, so take the figures as provisional." if busy else "."))
    found += rdma_notes(measurement, made)
    found.append(place_note(measurement))
    found += [f"{one['what']} was left out: {one['why']}." for one in measurement.record.get("left_out", [])]
    return found


def machine_lines(record):
    found = record["machine"]
    memory = found.get("memory_gib")
    lines = [("Processor", found.get("processor")), ("Cores", found.get("cores")),
             ("Memory", f"{memory} GiB" if memory else None), ("System", found.get("operating_system")),
             ("Kernel", found.get("kernel")), ("Virtualisation", found.get("virtualisation")),
             ("RDMA", measured_device(record)), ("Commit", found.get("commit")), ("Date", found.get("date"))]
    if "host" in record:
        host = record["host"]
        lines.append(("Host of the guest", f"{machine.in_words(host)}, {host.get('operating_system')}, kernel {host.get('kernel')}, load "
                                           f"{host.get('load_before')} before"))
    lines += list(found.get("packages", {}).items())
    return [(key, value) for key, value in lines if value]


def measured_device(record):
    where = place.from_record(record)
    if where.kind == place.GUEST:
        return "SoftRoCE (rdma_rxe) in the guest"
    return f"{where.device}{', in software' if where.in_software else ''}" if where.device else None


def run_lines(measurement):
    """Digest -> where it was seen."""
    lines = []
    for (transport, digest), part in measurement.runs.groupby(["transport", "sha256"], sort=False):
        lines.append({"transport": transport, "digest": digest, "runs": int(part["repeat"].nunique()),
                      "ranks": int(part["rank"].nunique())})
    return lines


def html_of(measurement, made, light, dark):
    record = measurement.record
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"number": wording.number, "label": wording.label, "ratio_range": wording.ratio_range,
                            "duration": wording.duration}
    return environment.get_template("page.html.j2").render(
        record=record, plan=record["plan"], transports=measurement.transports, made=made,
        tiles=tiles(measurement, made), pictures=pictures(light, dark), training_plots=TRAINING_PLOTS,
        all_reduce_plots=ALL_REDUCE_PLOTS, all_reduce_lines=all_reduce_lines, run_lines=run_lines(measurement), headings=wording.heading,
        measurement=measurement, guest=measurement.guest, guest_plots=GUEST_PLOTS, in_words=machine.in_words,
        guest_notes=notes(measurement.guest, made.guest) if measurement.guest else [], notes=notes(measurement, made), machine_lines=machine_lines(record), machine=machine.in_words(record["machine"]),
        source=published.SOURCE, parameters=int(measurement.runs["parameters"].max()) if len(measurement.runs) else 0)
