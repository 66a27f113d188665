#!/usr/bin/python3
"""Holds ddp_train's trace against PyTorch's own profiler, and its metrics against the trace.

PyTorch's profiler names what it sees of a DDP step over Gloo; the trace must use the same names. Time and overlap of
the all-reduce, which ddp_train reports by its own clock, are computed anew from the buckets in the trace.

usage: PYTHONPATH=tests/trainer trace_reference.py DDP_TRAIN
"""

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import reference_run  # exits with 77 where torch is missing
import torch
import torch.distributed as dist

RANKS, STEPS = 2, 5
DRAW_STEP = os.path.join(os.path.dirname(__file__), "../../../../trainer/metrics/tracing/draw_step.py")
# Spans without a name in PyTorch: its engine has none for a whole backward, its reducer none for a bucket that fills.
OUR_OWN = ("backward", "exposed gloo:all_reduce", "queued")


def profiled_names(folder):
    """Names of the events of one DDP step in PyTorch's profiler."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.autograd.profiler.profile() as profile:
        with torch.profiler.record_function("ProfilerStep#1"):  # as torch.profiler.profile.step() does
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            dist.barrier()
    dist.destroy_process_group()
    return {event.name for event in profile.function_events}


def check_names(spans, known):
    names = {span["name"] for span in spans if not span["name"].endswith(" gradients")}
    names = {"ProfilerStep*" if name.startswith("ProfilerStep#") else name for name in names}  # its name for any step
    strange = sorted(names - known - set(OUR_OWN))
    assert not strange, f"PyTorch's profiler does not know {strange}; it knows {sorted(known)}"
    print(f"PyTorch's profiler has the names {sorted(names & known)}")
    assert len(names & known) == 5, names


def check_all_reduces(spans, records):
    for record in records:
        buckets = [
            span
            for span in spans
            if span["name"] == "gloo:all_reduce" and span["pid"] == 0 and span["args"]["step"] == record["step"]
        ]
        assert len(buckets) == record["buckets"], record
        assert sum(span["args"]["bytes"] for span in buckets) == record["gradient_bytes"], record
        last_done = max(span["ts"] + span["dur"] for span in buckets)
        whole = last_done - min(span["ts"] for span in buckets)
        exposed = last_done - max(span["ts"] for span in buckets)
        print(f"step {record['step']}: {len(buckets)} buckets, {whole:.1f} us, {exposed:.1f} us exposed")
        assert abs(whole - record["t_ar_s"] * 1e6) < 0.01, record
        assert abs(exposed - record["t_ar_exposed_s"] * 1e6) < 0.01, record
        assert abs(100 * (1 - exposed / whole) - record["overlap"]) < 0.01, record


def check_picture(spans, trace_file, picture):
    """Each span of a step is drawn, but the step's own."""
    subprocess.run([DRAW_STEP, trace_file, "3", picture], check=True, timeout=100)
    rectangles = xml.etree.ElementTree.parse(picture).findall(".//{http://www.w3.org/2000/svg}g/*[@fill][@x][@width]")
    expected = [span for span in spans if span["args"]["step"] == 3 and not span["name"].startswith("ProfilerStep#")]
    assert len(rectangles) == len(expected) > 20, (len(rectangles), len(expected))
    refused = subprocess.run([DRAW_STEP, trace_file, str(STEPS + 1), picture], capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        trace_file = os.path.join(folder, "trace.json")
        flags = f"--precision fp32 --spawn {RANKS} --bucket-cap-mb 0.02 --first-bucket-mb 0.005 --trace {trace_file}"
        steps = reference_run.steps_of(program, STEPS, flags)
        with open(trace_file) as file:
            trace = json.load(file)
        known = profiled_names(folder)
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        check_picture(spans, trace_file, os.path.join(folder, "step.svg"))
    assert {span["pid"] for span in spans} == set(range(RANKS))
    check_names(spans, known)
    check_all_reduces(spans, steps)


if __name__ == "__main__":
    main()
