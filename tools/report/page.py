"""Everything to one HTML page that needs nothing else: pictures are in it, no script, no outside address. Pure."""

import base64
from pathlib import Path

import jinja2

from gloo_bypass_tools.report import machine, memory_rates, place, plots, programs, published, summary, wording

FOLDER = Path(__file__).parent / "templates"
# Which plots stand beside which table.
TRAINING_PLOTS = ("step_breakdown", "all_reduce_time")
ALL_REDUCE_PLOTS = ("bandwidth", "latency")
GUEST_PLOTS = ("guest_bandwidth", "guest_latency")


def data_uri(png):
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def pictures(light, dark):
    """Name -> what the template needs to show a plot in both themes."""
    found = {}
    for name, png in light.items():
        in_dark = data_uri(dark[name]) if name in dark else None
        found[name] = {"light": data_uri(png), "dark": in_dark, "alt": plots.DESCRIPTIONS[name]}
    return found


def tile(value, label, good=None, doubt=False):
    return {"value": value, "label": label, "good": good, "doubt": doubt}


def ratio_tile(one, label, doubt=""):
    """A ratio as a claim; where there is a doubt about it, the doubt."""
    if doubt:
        return tile("in doubt", f"{label}: {one.value:.2f}\u202f\u00d7 was measured, but {doubt}", doubt=True)
    good = True if one.value >= 1.02 else False if one.value < 0.95 else None
    return tile(f"{one.value:.2f}\u202f\u00d7", label, good)


def not_steady(run):
    """A sentence on a run of programs during which the machine was not steady; ''."""
    return run.doubt and (
        f"Computation that sends nothing did not take equally long over the transports ({run.doubt}"
        "): what is said of torch.distributed is in doubt."
    )


def set_aside_in_words(record):
    """A sentence on a training that was measured twice; ''."""
    if "set_aside" not in record:
        return ""
    return (
        "{why} when training was first measured, so it was measured again in turns of {steps} steps; only these have "
        "figures here."
    ).format(**record["set_aside"])


def tiles(measurement, made):
    """The few figures that answer: the same? who was faster?"""
    transports = measurement.transports
    if len(transports) < 2:
        return []
    first, other = transports[0], transports[1]
    sweep = (("10M floats", summary.TEN_MILLION_BYTES), ("1 element", summary.ONE_ELEMENT_BYTES))
    forward = made.doubted.get(other)
    doubt = forward and f"the forward pass, which sends nothing, was {forward:.2f}\u202f\u00d7 as fast"
    compared = [
        (made.training, "step_s", "training step", other, doubt),
        (made.training, "all_reduce_s", "all-reduce in training", other, doubt),
    ]
    compared += program_tiles(measurement, made)
    compared += [
        (made.all_reduce, f"all_reduce_{size}", f"ring all-reduce, {label}", transport, "")
        for transport in transports[1:]
        for label, size in sweep
    ]
    found = []
    if made.same_bits is not None:
        same = "identical" if made.same_bits else "different"
        found.append(tile(same, "trained parameters, bit for bit", made.same_bits))
    for rows, key, label, transport, why in compared:
        one = summary.ratio_at(rows, key, transport)
        if one is not None:
            found.append(ratio_tile(one, f"{label}: {transport} as fast as {first}", why))
    cpu = summary.figure_at(made.idle, "cpu_percent", other)
    if cpu is not None:
        found.append(tile(f"{cpu.median:.2f} %", f"of a core for an idle rank over {other}", cpu.median < 1.0))
    return found


def program_tiles(measurement, made):
    """What programs of PyTorch gain: (rows, key, label, transport, doubt)."""
    found = []
    for run in measurement.programs:
        doubt = "what sends nothing did not take equally long" if run.doubt else ""
        for key, label in (
            (f"{programs.TOKEN}_0_0", "tensor-parallel decoding"),
            (f"{programs.HOT}_8192_0", "PyTorch's all_reduce, 8 KiB"),
        ):
            found.append((made.programs, key, label, run.transports[1], doubt))
    return found


def all_reduce_lines(frame, transports):
    """The whole sweep: for each size, each transport's median and 99th percentile, bandwidth, ratio and wrong
    elements."""
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
            figures = {"p50": one["p50_us"], "p99": one["p99_us"]}
            figures["busbw"] = summary.busbw(size, one["p50_us"], one["ranks"])
            cells.append({name: wording.number(value) for name, value in figures.items()} | {"wrong": one["wrong"]})
        first, *others = (medians.get(transport) for transport in transports)
        ratios = [summary.times_better(first, other, "lower") for other in others]
        ratios = ["" if value is None else f"{value:.2f}\u202f\u00d7" for value in ratios]
        wrong = [cell["wrong"] for cell in cells if cell and cell["wrong"] is not None]
        wrong = int(sum(wrong)) if wrong else "not checked"
        lines.append({"size": summary.size_text(int(size)), "cells": cells, "wrong": wrong, "ratios": ratios})
    return lines


def samples_text(rows):
    counts = sorted({figure.samples for row in rows for figure in row.figures.values()})
    return " to ".join(str(count) for count in ([counts[0], counts[-1]] if len(counts) > 1 else counts))


def repeats_done(measurement):
    runs = measurement.runs
    return {one: int(runs[runs["transport"] == one]["repeat"].nunique()) for one in measurement.transports}


def environment_over(folders, **filters):
    """The environment of page templates. An undefined name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": wording.number, "duration": wording.duration} | filters
    return environment


def paragraphs(environment, template, **values):
    """The paragraphs of a plain-text template. The page escapes them."""
    text = environment.overlay(autoescape=False).get_template(template).render(values)
    return [" ".join(one.split()) for one in text.split("\n\n") if one.strip()]


def notes(measurement, made):
    """What was measured and how, a paragraph each."""
    record = measurement.record
    done = repeats_done(measurement).values() if made.training else ()
    return paragraphs(
        environment_over(FOLDER),
        "notes.txt.j2",
        plan=record["plan"],
        made=made,
        place=measurement.place,
        transports=measurement.transports,
        each=min(done, default=0),
        beside=len(measurement.beside) > 0,
        steps=record.get("set_aside", record["plan"])["steps"],
        programs=measurement.programs,
        others=record.get("others_cores"),
        set_aside=set_aside_in_words(record),
        samples=samples_text(made.training) if made.training else "",
        rounds=int(measurement.reduces["rounds"].max()) if made.all_reduce else 0,
        # A guest's own load says nothing of the machine that it runs on.
        load=record.get("host", record["machine"]).get("load_before"),
        left_out=record.get("left_out", []),
    )


def machine_lines(record):
    found = record["machine"]
    memory = found.get("memory_gib")
    lines = [
        *((name, found.get(name.lower())) for name in ("Processor", "Cores")),
        ("Memory", f"{memory} GiB" if memory else None),
        ("System", found.get("operating_system")),
        *((name, found.get(name.lower())) for name in ("Kernel", "Virtualisation")),
        ("RDMA", measured_device(record)),
        *((name, found.get(name.lower())) for name in ("Commit", "Date")),
        ("Copies and additions", memory_rates.in_words(record.get("rates", []))),
        ("Cut off, and gone on with", ", ".join(record.get("continued", []))),
    ]
    if "host" in record:
        host = record["host"]
        system, kernel, load = (host.get(key) for key in ("operating_system", "kernel", "load_before"))
        said = f"{machine.in_words(host)}, {system}, kernel {kernel}, load {load} before"
        lines.append(("Host of the guest", said))
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
        counts = {"runs": int(part["repeat"].nunique()), "ranks": int(part["rank"].nunique())}
        lines.append({"transport": transport, "digest": digest, **counts})
    return lines


def html_of(measurement, made, light, dark):
    record = measurement.record
    environment = environment_over(FOLDER, label=wording.label, ratio_range=wording.ratio_range)
    return environment.get_template("page.html.j2").render(
        made=made,
        tiles=tiles(measurement, made),
        pictures=pictures(light, dark),
        training_plots=TRAINING_PLOTS,
        all_reduce_plots=ALL_REDUCE_PLOTS,
        all_reduce_lines=all_reduce_lines,
        run_lines=run_lines(measurement),
        headings=wording.heading,
        measurement=measurement,
        not_steady=not_steady,
        guest_plots=GUEST_PLOTS,
        in_words=machine.in_words,
        guest_notes=notes(measurement.guest, made.guest) if measurement.guest else [],
        notes=notes(measurement, made),
        machine_lines=machine_lines(record),
        machine=machine.in_words(record["machine"]),
        source=published.SOURCE,
        parameters=int(measurement.runs["parameters"].max()) if len(measurement.runs) else 0,
    )
