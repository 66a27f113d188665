"""A study's options, the plan that follows from them, and the checks that need no run."""

import os
from pathlib import Path

from gloo_bypass_tools.common.argument_types import assignment, distinct, names_of, number_in, numbers_in, size_of
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.fabric_run import place
from gloo_bypass_tools.fabric_run.command import sysctl
from gloo_bypass_tools.study import definition, transports
from gloo_bypass_tools.study.plan import SETTINGS, cells_of, plan_of, steps_of

# Of ddp_train, where they are not those that come with it.
FILES = {
    "data": "the text to train on",
    "vocab": "its vocabulary (vocab.json)",
    "merges": "its merges (merges.txt)",
    "weights": "a safetensors file to begin with",
}
# As fabric-run has it.
LARGEST_MTU = 32000
MODELS = (definition.MODEL, definition.TINY)
REPEATED = {"action": "append", "default": []}


def in_order_of(known):
    """Some of these names, in the order of this list, so that tables read as published."""
    given = names_of(known)

    def parse(text):
        names = given(text)
        return tuple(name for name in known if name in names)

    return parse


class Options:
    """Adds options to a parser: flag, metavar, help, and what argparse takes besides."""

    def __init__(self, parser):
        self.parser = parser

    def add(self, flag, metavar, about, **rest):
        self.parser.add_argument(flag, metavar=metavar, help=about, **rest)

    def number(self, flag, about, low, high, kind=int, **rest):
        self.add(flag, "N", about, type=number_in(kind, low, high), **rest)


def add_options(parser, study):
    options, names = Options(parser), [point.name for point in study.variants]
    scales = "; ".join(f"{name}: {scale.about}" for name, scale in study.scales.items())
    options.add("--scale", None, f"{scales} (default small)", choices=tuple(study.scales), default="small")
    add_common(options, names, study.repeats)
    if study.layout == definition.EDGE:
        add_slow_edge(options, study)
    if study.workload == definition.TRAIN:
        add_training(options, study)
    else:
        add_sizes(options, is_swept=any(point.bytes for point in study.variants))


def add_common(options, names, repeats):
    about = (
        f"of {', '.join(transports.ALL)} (default TCP,DPDK); RDMA, and TCP beside it (TCP-netem), cross links of the "
    )
    about += "kernel's netem"
    options.add("--transports", "A,B", about, type=names_of(transports.ALL), default=("TCP", "DPDK"))
    about = "RDMA, TCP-netem: here, or in one guest of scripts/rdma-guest; auto: there if this kernel has no SoftRoCE "
    about += "or netem"
    options.add("--where", None, about, choices=("auto", place.HOST, place.IN_GUEST), default="auto")
    known = in_order_of(names)
    options.add("--variants", "A,B", f"of {', '.join(names)} (default all)", type=known, default=tuple(names))
    options.number("--repeats", "of all runs, in turn (default %(default)s)", 1, 100, default=repeats)
    options.number("--mtu", "longest IP packet, of all transports (default 1500)", 576, LARGEST_MTU, default=1500)
    about = "of the fabric's losses in the first repeat; each next repeat has the next number (default 1)"
    options.number("--seed", about, 0, 2**63 - 1, default=1)
    settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    about = f"for the ranks over all but TCP; may be repeated (default {settings})"
    options.add("--env", "NAME=VALUE", about, type=assignment, **REPEATED)
    about = "for the ranks over TCP, as net.ipv4.tcp_congestion_control=cubic; may be repeated"
    options.add("--sysctl", "NAME=VALUE", about, type=sysctl, **REPEATED)
    options.add("--output", "DIR", "a new folder for the results (default results/study-<name>-<time>)", type=Path)
    options.add("--build", "DIR", "build folder (default build)", type=Path, default=ROOT / "build")


def add_slow_edge(options, study):
    known, about = (
        definition.SEGMENTS,
        "largest segments of Gloo's ring: default (1 MiB), two (two a rank); default both",
    )
    options.add("--segments", "A,B", about, type=in_order_of(known), default=known)
    lossy = f", with loss {' and '.join(study.lossy['small'])} alone" if study.lossy["small"] else ""
    default = f"{', '.join(f'{one:g}' for one in study.losses)}{lossy}"
    about = f"per cent of the slow edge's frames, of all variants but base, as in 0,0.1,1 (default {default})"
    options.add("--losses", "P,P", about, type=distinct(numbers_in(float, 0, 50)))
    options.number("--ranks", "published: %(default)s (default)", 2, 64, default=study.ranks)


def add_sizes(options, is_swept):
    """Of an all-reduce, in place of the scale's."""
    if not is_swept:
        options.add("--bytes", "S", "of the vector, as 16M, instead of the scale's", type=size_of)
    options.number("--rounds", "all-reduces timed in a run, instead of the scale's", 1, 10000)
    options.number("--warm-up", "all-reduces before them, instead of the scale's", 0, 10000)


def add_training(options, study):
    options.number("--steps", "of a run, at most the epoch's, instead of the scale's", 2, 100000)
    options.number("--warm-up", "first steps not in T_step and T_ar (default 1)", 0, 1000, default=1)
    for name, about in FILES.items():
        options.add(f"--{name}", "FILE", f"{about}, for ddp_train", type=Path)
    about = "tiny: to try it; has nothing published beside it (default %(default)s)"
    options.add("--model", None, about, choices=MODELS, default=study.model)
    about = "of what is trained in the guest, whose processor is emulated (default tiny; distilgpt2 takes many minutes "
    about += "a step)"
    options.add("--guest-model", None, about, choices=MODELS, default=definition.TINY)
    about = f"its tokens a sample there (default %(default)s; elsewhere {definition.SEQUENCE_LENGTH})"
    options.number("--guest-seq-length", about, 1, 128, default=definition.GUEST_SEQUENCE_LENGTH)


# Options that stand in the plan by their names, where they are given.
PLANNED = (
    *("transports", "variants", "repeats", "mtu", "seed", "segments", "losses", "ranks", "bytes", "rounds"),
    *("warm_up", "steps", "model", "guest_model"),
)


def plan_from_options(options):
    study, given = options.study, vars(options)
    changes = {name: given[name] for name in PLANNED if given.get(name) is not None}
    changes |= {"settings": tuple((SETTINGS | dict(options.env)).items()), "sysctls": tuple(options.sysctl)}
    if "losses" in changes:
        changes["lossy"] = tuple(point.name for point in study.variants if point.name != definition.BASE)
    if study.workload == definition.TRAIN:
        changes["guest_sequence_length"] = options.guest_seq_length
        changes["files"] = tuple((f"--{name}", str(given[name].absolute())) for name in FILES if given[name])
    return plan_of(study, options.scale, **changes)


def problem_of(plan, study):
    """Why this cannot be measured; empty where it can."""
    if not cells_of(plan):
        return "nothing to measure: base is measured without loss only; add 0 to --losses, or a variant"
    points = [study.variant(name) for name in plan.variants]
    if study.workload == definition.TRAIN:
        return files_problem(plan) or next(filter(None, (steps_problem(plan, point) for point in points)), "")
    return next(filter(None, map(size_problem, map(plan.at, points))), "")


def steps_problem(plan, point):
    if (steps := steps_of(plan, point)) > plan.warm_up:
        return ""
    return f"--warm-up {plan.warm_up} leaves none of the {steps} steps of {point.name} to measure"


def size_problem(plan):
    if plan.bytes % 4 == 0 and plan.bytes >= 8 * plan.ranks:
        return ""
    return f"--bytes {plan.bytes}: it must be a multiple of 4, and {8 * plan.ranks} at least with {plan.ranks} ranks"


def files_problem(plan):
    """Why ddp_train cannot have these files; empty where it can."""
    given = dict(plan.files)
    for flag, path in given.items():
        if not os.access(path, os.R_OK):
            return f"{flag} {path}: is not there, or cannot be read"
    if ("--vocab" in given) != ("--merges" in given):
        return "--vocab and --merges go together"
    if plan.files and any(one in transports.KERNEL_LINKS for one in plan.transports):
        return f"{', '.join(given)}: not with {', '.join(transports.KERNEL_LINKS)}, which may be measured in the guest"
    return ""
