"""The options of each kind of study, the plans that they make, and what can be refused before anything is made."""

import argparse
import os
from dataclasses import dataclass, replace
from pathlib import Path

from gloo_bypass_tools.common.argument_types import assignment, names_of, number_in
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.fabric_run import place
from gloo_bypass_tools.fabric_run.command import sysctl
from gloo_bypass_tools.report.command import size_of
from gloo_bypass_tools.study import (
    catalogue,
    cells,
    edge_study,
    estimates,
    measurement,
    sweep_cells,
    sweeps,
    training,
    transports,
)

TRAINING_STEPS = 4  # at small size
# Of ddp_train, where they are not those that come with it.
FILES = {
    "data": "the text to train on",
    "vocab": "its vocabulary (vocab.json)",
    "merges": "its merges (merges.txt)",
    "weights": "a safetensors file to begin with",
}
# As fabric-run has it.
LARGEST_MTU = 32000


def subset_of(known):
    given = names_of(known)

    def parse(text):
        names = given(text)
        # In the order of the list, so that tables read as published.
        return tuple(name for name in known if name in names) if "TCP" not in known else names

    return parse


def losses_of(text):
    one = number_in(float, 0, 50)
    values = tuple(one(part.strip()) for part in text.split(","))
    if len(set(values)) != len(values):
        raise argparse.ArgumentTypeError(f"'{text}' names one twice")
    return values


def add_common(parser, names, repeats):
    parser.add_argument(
        "--transports",
        type=subset_of(transports.ALL),
        default=("TCP", "DPDK"),
        metavar="A,B",
        help=f"of {', '.join(transports.ALL)} (default TCP,DPDK); RDMA, and TCP beside it (TCP-netem), "
        "cross links of the kernel's netem",
    )
    parser.add_argument(
        "--where",
        choices=("auto", place.HOST, place.IN_GUEST),
        default="auto",
        help="RDMA, TCP-netem: here, or in one guest of scripts/rdma-guest; auto: there if this kernel has "
        "no SoftRoCE or netem",
    )
    parser.add_argument(
        "--variants",
        type=subset_of(names),
        default=tuple(names),
        metavar="A,B",
        help=f"of {', '.join(names)} (default all)",
    )
    parser.add_argument(
        "--repeats",
        type=number_in(int, 1, 100),
        default=repeats,
        metavar="N",
        help=f"of all runs, in turn (default {repeats})",
    )
    parser.add_argument(
        "--mtu",
        type=number_in(int, 576, LARGEST_MTU),
        default=1500,
        metavar="N",
        help="longest IP packet, of all transports (default 1500)",
    )
    parser.add_argument(
        "--seed", type=number_in(int, 0, 2**63 - 1), default=1, metavar="N", help="of the fabric's losses (default 1)"
    )
    parser.add_argument(
        "--env",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the ranks over all but TCP; may be repeated (default "
        + ", ".join(f"{k}={v}" for k, v in cells.SETTINGS.items())
        + ")",
    )
    parser.add_argument(
        "--sysctl",
        type=sysctl,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the ranks over TCP, as net.ipv4.tcp_congestion_control=cubic; may be repeated",
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="a new folder for the results (default results/study-<name>-<time>)"
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build", metavar="DIR", help="build folder (default build)"
    )


def add_sizes(parser, size=True):
    """Of an all-reduce, in place of the scale's. `size`: whether it is not swept itself."""
    if size:
        parser.add_argument("--bytes", type=size_of, metavar="S", help="of the vector, as 16M, instead of the scale's")
    parser.add_argument(
        "--rounds",
        type=number_in(int, 1, 10000),
        metavar="N",
        help="all-reduces timed in a run, instead of the scale's",
    )
    parser.add_argument(
        "--warm-up", type=number_in(int, 0, 10000), metavar="N", help="all-reduces before them, instead of the scale's"
    )


def sizes_of(options):
    given = vars(options)
    return {name: given[name] for name in ("bytes", "rounds", "warm_up") if given.get(name) is not None}


def common_of(options):
    return {
        "study": options.study.name,
        "scale": options.scale,
        "transports": options.transports,
        "variants": options.variants,
        "repeats": options.repeats,
        "mtu": options.mtu,
        "seed": options.seed,
        "settings": tuple((cells.SETTINGS | dict(options.env)).items()),
        "sysctls": tuple(options.sysctl),
    }


def add_edge(parser, study):
    parser.add_argument(
        "--scale",
        choices=tuple(study.scales),
        default="small",
        help=f"small: {study.scales['small'].bytes // edge_study.MIB} MiB; published: 327.65 MB (default small)",
    )
    add_common(parser, [variant.name for variant in study.variants], repeats=2)
    parser.add_argument(
        "--segments",
        type=subset_of(edge_study.SEGMENTS),
        default=edge_study.SEGMENTS,
        metavar="A,B",
        help="largest segments of Gloo's ring: default (1 MiB), two (two a rank); default both",
    )
    lossy = f", with loss {' and '.join(study.lossy['small'])} alone" if study.lossy["small"] else ""
    parser.add_argument(
        "--losses",
        type=losses_of,
        metavar="P,P",
        help="per cent of the slow edge's frames, of all variants but base, as in "
        f"0,0.1,1 (default {', '.join(f'{one:g}' for one in study.losses)}{lossy})",
    )
    parser.add_argument(
        "--ranks",
        type=number_in(int, 2, 64),
        default=study.ranks,
        metavar="N",
        help=f"published: {study.ranks} (default)",
    )
    add_sizes(parser)


def edge_plan(options):
    study, scale = options.study, options.study.scales[options.scale]
    lossy = study.lossy[options.scale]
    if options.losses is not None:
        lossy = tuple(variant.name for variant in study.variants if variant.name != edge_study.BASE)
    plan = cells.Plan(
        **common_of(options),
        segments=options.segments,
        losses=study.losses if options.losses is None else options.losses,
        lossy=lossy,
        ranks=options.ranks,
        bytes=scale.bytes,
        rounds=scale.rounds,
        warm_up=scale.warm_up,
    )
    return replace(plan, **sizes_of(options))


def edge_problem(plan, _study):
    if plan.bytes < 4 * 2 * plan.ranks or plan.bytes % 4:
        return (
            f"--bytes {plan.bytes}: it must be a multiple of 4, and {8 * plan.ranks} at least with {plan.ranks} ranks"
        )
    if not cells.cells_of(plan):
        return "nothing to measure: base is measured without loss only; add 0 to --losses, or a variant"
    return ""


def add_training(parser, study):
    parser.add_argument(
        "--scale",
        choices=("small", "published"),
        default="small",
        help="small: the first 4 steps of the epoch; published: all of it, minutes a run (default small)",
    )
    add_common(parser, [variant.name for variant in study.variants], repeats=1)
    add_steps(parser, training.MODEL)


def add_steps(parser, model):
    parser.add_argument(
        "--steps",
        type=number_in(int, 2, 100000),
        metavar="N",
        help="of a run, at most the epoch's, instead of the scale's",
    )
    parser.add_argument(
        "--warm-up",
        type=number_in(int, 0, 1000),
        default=1,
        metavar="N",
        help="first steps not in T_step and T_ar (default 1)",
    )
    for name, about in FILES.items():
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"{about}, for ddp_train")
    parser.add_argument(
        "--model",
        choices=(training.MODEL, sweeps.TINY),
        default=model,
        help=f"tiny: to try it; has nothing published beside it (default {model})",
    )
    parser.add_argument(
        "--guest-model",
        choices=(training.MODEL, training.TINY),
        default=training.TINY,
        help="of what is trained in the guest, whose processor is emulated (default tiny; distilgpt2 takes "
        "many minutes a step)",
    )
    parser.add_argument(
        "--guest-seq-length",
        type=number_in(int, 1, 128),
        default=training.GUEST_SEQUENCE_LENGTH,
        metavar="N",
        help=f"its tokens a sample there (default {training.GUEST_SEQUENCE_LENGTH}; elsewhere "
        f"{training.SEQUENCE_LENGTH})",
    )


def files_of(options):
    given = vars(options)
    return tuple((f"--{name}", str(given[name].absolute())) for name in FILES if given[name])


def files_problem(plan):
    """Of files that are not there, or cannot be where they are needed."""
    given = dict(plan.files)
    for flag, path in given.items():
        if not os.access(path, os.R_OK):
            return f"{flag} {path}: is not there, or cannot be read"
    if ("--vocab" in given) != ("--merges" in given):
        return "--vocab and --merges go together"
    if plan.files and any(one in transports.KERNEL_LINKS for one in plan.transports):
        return f"{', '.join(given)}: not with {', '.join(transports.KERNEL_LINKS)}, which may be measured in the guest"
    return ""


def training_plan(options):
    steps = options.steps or (0 if options.scale == "published" else TRAINING_STEPS)
    return training.TrainingPlan(
        **common_of(options),
        **guest_of(options),
        model=options.model,
        steps=steps,
        warm_up=options.warm_up,
        files=files_of(options),
    )


def guest_of(options):
    return {"guest_model": options.guest_model, "guest_sequence_length": options.guest_seq_length}


def training_problem(plan, study):
    if problem := files_problem(plan):
        return problem
    for name in plan.variants:
        if (steps := training.steps_of(plan, study.variant(name))) <= plan.warm_up:
            return f"--warm-up {plan.warm_up} leaves none of the {steps} steps of {name} to measure"
    return ""


def add_sweep(parser, study):
    sizes = {
        name: f"{scale.bytes / 1e6:.4g} MB, {scale.rounds} rounds"
        if study.workload == sweeps.REDUCE
        else f"{scale.steps} steps"
        if scale.steps
        else "a whole epoch"
        for name, scale in study.scales.items()
    }
    parser.add_argument(
        "--scale",
        choices=tuple(study.scales),
        default="small",
        help=f"small: {sizes['small']}; published: {sizes['published']} (default small)",
    )
    add_common(parser, [point.name for point in study.variants], repeats=1)
    if study.workload == sweeps.REDUCE:
        add_sizes(parser, size=not any(point.bytes for point in study.variants))
    else:
        add_steps(parser, study.model)


def sweep_plan(options):
    study, scale = options.study, options.study.scales[options.scale]
    plan = sweeps.SweepPlan(
        **common_of(options),
        model=study.model,
        steps=scale.steps,
        warm_up=scale.warm_up,
        bytes=scale.bytes,
        rounds=scale.rounds,
    )
    if study.workload == sweeps.REDUCE:
        return replace(plan, **sizes_of(options))
    return replace(
        plan,
        **guest_of(options),
        model=options.model,
        steps=options.steps or scale.steps,
        warm_up=options.warm_up,
        files=files_of(options),
    )


def sweep_problem(plan, study):
    return files_problem(plan) or sweep_cells.problem_of(plan, study)


@dataclass(frozen=True)
class Kind:
    """One kind of study. plan_of(options); problem(plan, study): what is wrong with it, or ''; cell_s(plan, study,
    cell, cores): of a run, on a quick machine; programs: names in cells.Programs, besides the fabric;
    guest_problem(plan, study): why it cannot be measured in the guest, or ''."""

    studies_are: type
    add_options: object
    plan_of: object
    problem: object
    measurement: type
    programs: object
    plan_type: type
    cell_s: object
    guest_problem: object = lambda plan, study: ""

    @property
    def studies(self):
        return catalogue.of_kind(self.studies_are)


def sweep_programs(study):
    return ("all_reduce_perf",) if study.workload == sweeps.REDUCE else ("trainer", "analyser")


KINDS = (
    Kind(
        edge_study.EdgeStudy,
        add_edge,
        edge_plan,
        edge_problem,
        measurement.EdgeMeasurement,
        lambda study: ("all_reduce_perf",),
        cells.Plan,
        estimates.edge_cell_s,
    ),
    Kind(
        training.TrainingStudy,
        add_training,
        training_plan,
        training_problem,
        measurement.TrainingMeasurement,
        lambda study: ("trainer", "analyser"),
        training.TrainingPlan,
        estimates.training_cell_s,
    ),
    Kind(
        sweeps.Sweep,
        add_sweep,
        sweep_plan,
        sweep_problem,
        measurement.SweepMeasurement,
        sweep_programs,
        sweeps.SweepPlan,
        estimates.sweep_cell_s,
        guest_problem=sweep_cells.guest_problem_of,
    ),
)


def kind_of(name):
    return next(kind for kind in KINDS if isinstance(catalogue.STUDIES[name], kind.studies_are))
