"""What the model says of each schedule, and what is chosen, from the program `schedule`.

A schedule is that of collectives/schedule: the program prints the steps that ranks execute, and model/steps.py executes
them in virtual time. Over emulated links alpha and beta are theirs, so nothing is fitted. Elsewhere the ranks' cores do
the work: alpha and beta are those of our ring with as many ranks, from its smallest and its largest vector, and all
other times are predicted.
"""

import functools
import json
import subprocess
from dataclasses import dataclass, replace

from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.model import framing, schedule, steps
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.study import prediction
from gloo_bypass_tools.study.collectives import links

ASK_S = 30
KIND = "all-reduce"
CALIBRATED_BY = "ring"
MTU = 1500
PATH = "DPDK netdev, pci"  # framing's name for datagrams in frames of the MTU, which UDP's are too


class Program:
    """`path`: of the program. RecordError where it does not answer as expected."""

    def __init__(self, path):
        self.path = path

    def said(self, *words):
        try:
            done = ask([self.path, *words], ASK_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RecordError(f"{self.path}: {error}") from error
        if done.returncode != 0:
            raise RecordError(f"{self.path}: {errors_of(done)[-1]}")
        return done.stdout

    def algorithms(self):
        """Of all-reduces, in the order of the catalogue."""
        lines = (line.split() for line in self.said("--list").splitlines())
        return [words[1] for words in lines if words[0] == KIND]

    @functools.lru_cache(maxsize=None)
    def schedule(self, ranks, size, hosts=(), algorithm=""):
        """Without an algorithm the one that the table chooses."""
        words = [KIND, "--json", "--ranks", ranks, "--bytes", size]
        words += ["--hosts", ",".join(map(str, hosts))] if hosts else []
        words += ["--algorithm", algorithm] if algorithm else []
        return steps.schedule_of(json.loads(self.said(*words)), str(self.path))


def far_link():
    path = next(one for one in framing.paths(MTU) if one.name == PATH)
    share = framing_share(path)
    return steps.Link(links.DELAY_MS * 1e-3, prediction.bytes_a_second(links.RATE_MBIT) * share)


def framing_share(path):
    """Of the bytes on a link: how many are the vector's."""
    return links.MIB / path.message(links.MIB, both_ways=True).forward


def gloos_ring_s(size, ranks, link):
    """Gloo's own schedule over emulated links."""
    segment = schedule.cut(size, ranks).segment
    completion = prediction.completion_of("UDP", 2e3 * link.alpha_s, segment)
    edge = schedule.Edge(link.beta, link.alpha_s, link.alpha_s)
    return schedule.time_s(size, [edge] * ranks, completion)


@dataclass(frozen=True)
class Model:
    """Of one link with one number of ranks. `link` None: it could not be calibrated."""

    program: Program
    place: links.Link
    ranks: int
    link: steps.Link | None

    def time_s(self, contender, size):
        """None where there is no schedule of ours to compute with."""
        if self.link is None or contender in links.EXECUTORS:
            return None
        if contender == links.GLOO:
            return gloos_ring_s(size, self.ranks, self.link) if self.place.far else None
        return self.schedule_s(contender, size, self.link)

    def schedule_s(self, algorithm, size, link):
        return steps.time_s(self.program.schedule(self.ranks, size, self.place.hosts(self.ranks), algorithm), link)

    def fastest_on_own_cores(self, algorithms, size):
        """By the model, if each rank had a core: where ranks share cores, few messages count for more than few rounds.
        None where the ranks' cores do nothing, or nothing is known of them."""
        if self.link is None or self.link.cores is None:
            return None
        link = replace(self.link, cores=self.ranks)
        return min(algorithms, key=lambda name: self.schedule_s(name, size, link))


def model_of(program, place, ranks, rows, cores):
    """`rows`: of this link and these ranks."""
    if place.far:
        return Model(program, place, ranks, far_link())
    ring = sorted((row["bytes"], row["p50_us"] * 1e-6) for row in rows if row["contender"] == CALIBRATED_BY)
    if len(ring) < 2:
        return Model(program, place, ranks, None)
    hosts = place.hosts(ranks)
    small, large = (
        (program.schedule(ranks, size, hosts, CALIBRATED_BY), time_s) for size, time_s in (ring[0], ring[-1])
    )
    return Model(program, place, ranks, steps.calibrated(small, large, cores))


def choices_of(program, place, ranks, size):
    """Names of contenders: what runs there by itself, and what the table chooses among channels."""
    return place.default, program.schedule(ranks, size, place.hosts(ranks)).algorithm


def algorithms_of(rows):
    """The contenders that have a schedule, in the order of the rows."""
    names = dict.fromkeys(row["contender"] for row in rows)
    return [name for name in names if name != links.GLOO and name not in links.EXECUTORS]


def add_predictions(program, rows, cores):
    """Gives each row the model's time, and returns (parameters of the model, choices), as the stored run has them."""
    groups = {}
    for row in rows:
        groups.setdefault((row["link"], row["ranks"]), []).append(row)
    parameters, choices = [], []
    for (name, ranks), of_group in groups.items():
        place = links.BY_NAME[name]
        model = model_of(program, place, ranks, of_group, cores)
        if model.link:
            values = {"alpha_us": model.link.alpha_s * 1e6, "beta_GBps": model.link.beta / 1e9}
            parameters.append({"link": name, "ranks": ranks, **values, "cores": model.link.cores})
        for row in of_group:
            time_s = model.time_s(row["contender"], row["bytes"])
            row["model_us"] = None if time_s is None else round(time_s * 1e6, 3)
        for size in sorted({row["bytes"] for row in of_group}):
            default, chosen = choices_of(program, place, ranks, size)
            own = model.fastest_on_own_cores(algorithms_of(of_group), size)
            names = {"default": default, "table": chosen, "own_cores": own}
            choices.append({"link": name, "ranks": ranks, "bytes": size, **names})
    return parameters, choices
