"""The measurement, stage by stage: trainings A B A B, all-reduces, RDMA beside its yardsticks, idle ranks.

A stage that fails is written down and the others still run, so that what could be measured is reported. After every
stage the folder is complete as far as it goes: scripts/report can draw it at any time.
"""

import math
import os
import shutil
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.rank_processes import free_port
from gloo_bypass_tools.common.transports import names
from gloo_bypass_tools.report import machine, programs, rdma_ports, records, schedule, steadiness, stored_programs
from gloo_bypass_tools.report.memory_rates import RateSamples
from gloo_bypass_tools.report.results import ResultsError
from gloo_bypass_tools.report.stages import Stages, telling

# What comes after the trainings, as a reserve in the planning.
AFTER_TRAINING_S = 135.0
# Where the forward pass says that the machine was not steady, training is measured again in turns of so many steps
# behind the warm-up: what slows a machine for minutes then slows the turns of all transports.
AGAIN_STEPS, LEAST_AGAIN_REPEATS, MOST_AGAIN_REPEATS = 2, 2, 4
# Of scripts/compare-programs, which takes most of a minute.
PROGRAMS_LIMIT_S = 240.0
BENCHMARK_LIMIT_S = 180.0
# Iterations and warm-up iterations of a round: many where one takes microseconds, few where it takes milliseconds.
SMALL_ITERATIONS, LARGE_ITERATIONS = (200, 20), (10, 3)
# Where an instruction takes ten times as long.
EMULATED_SMALL_ITERATIONS, EMULATED_LARGE_ITERATIONS = (30, 5), (5, 2)
EMULATED_LIMIT_FACTOR = 5.0
SMALL_LIMIT_BYTES = 65536
# Beside ib_write_bw: the all-reduce's size, how often the two take turns at least, and ib_write_bw's messages.
WRITE_BESIDE_BYTES, LEAST_WRITE_REPEATS, WRITE_MESSAGE_BYTES = 4 * 2**20, 2, 2**20
WRITE_ITERATIONS, EMULATED_WRITE_ITERATIONS = 2000, 100
# Gloo's own transport over verbs, and the algorithm that it can run.
GLOO_IBVERBS, BOUND_ALGORITHM = "GLOO_IBVERBS", "ring_chunked"
BOUND_SIZES = (("small", 4), ("middle", 64 * 2**10), ("large", 4 * 2**20))


@dataclass(frozen=True)
class Plan:
    """What is to be measured. `repeats`, at least 1, is the most of them; `minutes` may allow fewer."""

    transports: tuple = ("TCP", "DPDK")
    ranks: int = 2
    model: str = "distilgpt2"
    batch_size: int = 8
    seq_len: int = 64
    steps: int = 6
    warm_up: int = 1
    repeats: int = 3
    seed: int = 1
    sizes: tuple = (4, 64 * 2**20, 4)
    idle_s: float = 5.0
    minutes: float = 9.0
    training: bool = True
    benchmark: bool = True
    trainer_arguments: tuple = ()
    # The machine is emulated in software: fewer iterations, longer limits.
    emulated: bool = False


@dataclass
class Budget:
    """Since when the time runs, on the monotonic clock."""

    started: float = field(default_factory=time.monotonic)

    def restart(self):
        self.started = time.monotonic()

    def elapsed_s(self):
        return time.monotonic() - self.started


def environment_for(transport, inherited):
    """The children's environment: the transport by name, the loopback interface unless the user chose one.

    RDMA is left to find the interface that has a device: the loopback has none.
    """
    environment = dict(inherited)
    if transport:
        environment["GLOO_DEVICE_TRANSPORT"] = transport
    if transport == "RDMA":
        return environment
    if not environment.get("GLOO_SOCKET_IFNAME") and not environment.get("GLOO_BYPASS_INTERFACE"):
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    return environment


def trainer_command(program, plan, metrics):
    size = ["--model", plan.model, "--batch-size", plan.batch_size, "--seq-length", plan.seq_len]
    steps = ["--steps", plan.steps, "--seed", plan.seed, "--skip-first", plan.warm_up, "--no-progress"]
    return [program, "--spawn", plan.ranks, *size, *steps, "--metrics", metrics, *plan.trainer_arguments]


def iterations(size, emulated=False):
    """Timed and warm-up iterations of a round."""
    if size <= SMALL_LIMIT_BYTES:
        return EMULATED_SMALL_ITERATIONS if emulated else SMALL_ITERATIONS
    return EMULATED_LARGE_ITERATIONS if emulated else LARGE_ITERATIONS


def benchmark_parts(sizes, emulated=False):
    """The sweep in two parts, each with as many iterations as suit its sizes, and 10M floats: (name, b, e, f, n, w).

    In emulation 10M floats are left out: they would take a minute.
    """
    low, high, factor = sizes
    parts, size = {}, low
    while size <= high:
        parts.setdefault("small" if size <= SMALL_LIMIT_BYTES else "large", []).append(size)
        size *= factor
    listed = [(name, part[0], part[-1], factor, *iterations(part[0], emulated)) for name, part in parts.items()]
    return listed if emulated else [*listed, ("10M floats", 40_000_000, 40_000_000, 2, *LARGE_ITERATIONS)]


class Comparison(Stages):
    """One measurement into one results folder. Single-threaded; owns its children while a stage runs."""

    def __init__(self, build, plan, folder, display, budget, record=None, compare_programs=None):
        described = machine.describe_system() if plan.emulated else machine.describe(ROOT)
        own = {"plan": asdict(plan), "machine": described, "environment": telling(environment_for("", os.environ))}
        super().__init__(ROOT, folder, display, own | (record or {}))
        self.build, self.plan, self.budget = build, plan, budget
        self.programs = compare_programs or ROOT / "scripts" / "compare-programs"
        self.step_rows, self.rates, self.others = [], RateSamples(), machine.OtherWork()
        self.limit_s = BENCHMARK_LIMIT_S * (EMULATED_LIMIT_FACTOR if plan.emulated else 1.0)

    def save(self):
        self.record["elapsed_s"] = round(self.budget.elapsed_s(), 1)
        super().save()

    def take_rates(self):
        """Measures how fast the machine copies and adds, unless it is emulated."""
        if not self.plan.emulated:
            self.rates.take()
            self.record["rates"] = list(self.rates)

    def run_stages(self):
        self.take_rates()
        self.others = machine.OtherWork()
        try:
            self.measure_all()
        finally:
            self.record["others_cores"] = self.others.cores()
        self.take_rates()

    def measure_all(self):
        if self.plan.training:
            self.train_until_steady()
        if self.plan.benchmark:
            self.measure_programs()
            for part in benchmark_parts(self.plan.sizes, self.plan.emulated):
                self.measure_all_reduce(*part)
            if "RDMA" in self.plan.transports:
                self.measure_beside_write()
                self.measure_bound()
            self.measure_idle()

    def train_until_steady(self):
        """Trains in turns; again and in shorter ones where the forward pass says that the machine was not steady. What
        was measured first is then set aside: kept, checked for its bits, and in no figure."""
        plan = self.plan
        self.train_in_turns(plan, "training", 1)
        found = steadiness.unsteady(self.step_rows, plan.transports)
        if not found or plan.emulated:
            return
        why = steadiness.in_words(found, plan.transports[0])
        again = replace(plan, steps=min(plan.steps, plan.warm_up + AGAIN_STEPS), repeats=MOST_AGAIN_REPEATS)
        self.display.line(f"{why}: measuring again, in turns of {again.steps} steps", style="yellow")
        first, self.record["training"], self.step_rows = self.record["training"], [], []
        self.record["set_aside"] = {"why": why, "training": first, "steps": again.steps}
        self.save()
        try:
            self.train_in_turns(again, "training-again", LEAST_AGAIN_REPEATS)
        finally:
            if {one["transport"] for one in self.record["training"]} != {one["transport"] for one in first}:
                # Cut off, or failed: the first figures stand, with the doubt about them.
                self.record["training"] = first
                del self.record["set_aside"]
            self.save()

    def train_in_turns(self, plan, series, least):
        """Repeats A B, at least so many and as many as the time allows; a transport that fails is not tried again."""
        repeat, repeats, failed = 0, plan.repeats, set()
        total_s = plan.minutes * 60.0
        while repeat < repeats:
            repeat += 1
            before = self.budget.elapsed_s()
            for turn in schedule.repeat_turns(plan.transports, repeat):
                if turn.transport not in failed and not self.train(plan, f"{series}-{repeat}-{turn.transport}", turn):
                    failed.add(turn.transport)
            if len(failed) == len(plan.transports):
                return
            left_s = schedule.remaining_s(total_s, self.budget.elapsed_s(), AFTER_TRAINING_S)
            took_s = max(0.1, self.budget.elapsed_s() - before)
            repeats = max(min(least, plan.repeats), schedule.affordable_repeats(left_s, took_s, repeat, repeats))

    def train(self, plan, slug, turn):
        partial = self.folder.place(f"raw/{slug}-rank{{rank}}.jsonl.partial")
        steps = records.StepsSoFar(str(partial).replace("{rank}", "0"))

        def tick():
            done, last = steps.look()
            if last:
                # null: it is not finite, or this rank had no sample.
                loss, step_s = last.get("loss"), last.get("t_step_s", 0)
                loss = math.nan if loss is None else loss
                note = f"step {done} of {plan.steps}, loss {loss:.3f}, {step_s:.2f} s a step"
                self.display.advance(done, note=note)

        limit_s = schedule.run_limit_s(plan.steps) * (EMULATED_LIMIT_FACTOR if plan.emulated else 1.0)
        command = trainer_command(self.build / "trainer" / "ddp_train", plan, partial)
        environment = environment_for(turn.transport, os.environ)
        if not self.stage(
            turn.name, slug, command, limit_s, environment, on_tick=tick, total=plan.steps, directory=Path.cwd()
        ):
            return False
        return self.take_training(turn, slug)

    def take_training(self, turn, slug):
        """Gives the ranks' files their names and checks that they can be read."""
        names = [f"raw/{slug}-rank{rank}.jsonl" for rank in range(self.plan.ranks)]
        try:
            for name in names:
                self.folder.adopt(name + ".partial", name)
                rows, _ = records.read_training(self.folder.place(name), turn.transport, turn.repeat, self.plan.warm_up)
                self.step_rows += rows
        except (ResultsError, records.RecordError) as error:
            self.fail(turn.name, str(error), self.folder.place(f"logs/{slug}.log"))
            self.save()
            return False
        self.record["training"].append({"transport": turn.transport, "repeat": turn.repeat, "files": names})
        self.save()
        return True

    def run_and_read(self, name, slug, command, read, limit_s=None):
        """Runs a program that writes raw/SLUG.json. Returns that name, or None where it failed or cannot be read."""
        file = f"raw/{slug}.json"
        command = [*command, "--json", self.folder.place(file)]
        if not self.stage(name, slug, command, limit_s or self.limit_s + 10.0, environment_for("", os.environ)):
            return None
        try:
            read(self.folder.place(file))
            return file
        except records.RecordError as error:
            self.fail(name, str(error), self.folder.place(f"logs/{slug}.log"))
            self.save()
            return None

    def benchmark(self, name, slug, arguments, read, transports=None):
        over = ",".join(transports or self.plan.transports)
        command = [self.build / "tools" / "all_reduce_perf", "--ranks", self.plan.ranks, "--transports", over]
        return self.run_and_read(name, slug, [*command, *arguments, "--deadline", int(self.limit_s)], read)

    def take(self, key, file):
        if file:
            self.record[key].append(file)
            self.save()

    def measure_all_reduce(self, name, low, high, factor, count, warm_up):
        slug, sizes = "all-reduce-" + name.replace(" ", "-"), ["-b", low, "-e", high, "-f", factor]
        arguments = [*sizes, "-n", count, "-w", warm_up]
        self.take("all_reduce", self.benchmark(f"all-reduce, {name}", slug, arguments, records.read_all_reduce))

    def measure_programs(self):
        """The transports through torch.distributed, as users have them: the same programs, one transport a process."""
        plan = self.plan
        usable = names(lambda one: one.name == one.device and not one.needs_device)
        named = [one for one in plan.transports if one in usable]
        if plan.emulated or len(named) < 2:
            return None
        if named[0] != plan.transports[0]:
            why = f"ratios are to {plan.transports[0]}, over which these programs are not run"
            return self.leave_out("The comparison through torch.distributed", why)
        if not (self.build / "plugin" / "python" / "gloo_bypass").is_dir():
            why = "the plug-in for Debian's PyTorch is not in this build"
            return self.leave_out("The comparison through torch.distributed", why)
        command = [self.programs, "--build", self.build, "--transports", ",".join(named), "--ranks", plan.ranks]
        command += ["--programs", "decoding,all_reduce", "--effort", programs.SHORT, "--rounds", 1]
        command += ["--output", self.folder.place("logs/programs")]
        read = stored_programs.read
        self.take("programs", self.run_and_read("torch.distributed", "programs", command, read, PROGRAMS_LIMIT_S))
        return None

    def measure_beside_write(self):
        """Measures all-reduces between runs of ib_write_bw on the same device, to compare them with what the adapter
        can do."""
        port = rdma_ports.chosen(rdma_ports.active(), os.environ)
        if port is None:
            return self.leave_out("ib_write_bw", "there is no active RDMA port with a RoCEv2 GID of an IPv4 address")
        if not shutil.which("ib_write_bw"):
            return self.leave_out("ib_write_bw", "it is not installed: apt install perftest")
        count, warm_up = iterations(WRITE_BESIDE_BYTES, self.plan.emulated)
        arguments = ["-b", WRITE_BESIDE_BYTES, "-e", WRITE_BESIDE_BYTES, "-n", count, "-w", warm_up, "--rounds", 2]
        before = self.write_bandwidth(port, 0)
        for repeat in range(1, max(LEAST_WRITE_REPEATS, self.plan.repeats) + 1):
            name, slug = f"all-reduce beside ib_write_bw, {repeat}", f"beside-write-{repeat}"
            file = before and self.benchmark(name, slug, arguments, records.read_all_reduce)
            after = file and self.write_bandwidth(port, repeat)
            if not after:
                return None
            self.take("beside_write", {"repeat": repeat, "all_reduce": file, "write": [before, after]})
            before = after
        return None

    def write_bandwidth(self, port, number):
        times = EMULATED_WRITE_ITERATIONS if self.plan.emulated else WRITE_ITERATIONS
        command = ["/usr/bin/python3", Path(__file__).with_name("write_bandwidth.py"), "--device", port.device]
        command += ["--port", port.number, "--gid-index", port.gid_index, "--tcp-port", free_port()]
        command += ["--bytes", WRITE_MESSAGE_BYTES, "--iterations", times, "--limit", self.limit_s]
        slug = f"write-bandwidth-{number}"
        return self.run_and_read(f"ib_write_bw, {number}", slug, command, records.read_write_bandwidth)

    def measure_bound(self):
        """Measures Gloo's own transport over verbs beside ours, with an algorithm that it can run."""
        for file in self.record["all_reduce"]:
            if GLOO_IBVERBS not in records.transports_built_in(self.folder.place(file)):
                return self.leave_out("Gloo's own ibverbs transport", "all_reduce_perf was built without it")
        over = [*self.plan.transports, GLOO_IBVERBS]
        for name, size in BOUND_SIZES:
            count, warm_up = iterations(size, self.plan.emulated)
            arguments = ["--algorithm", BOUND_ALGORITHM, "-b", size, "-e", size, "-n", count, "-w", warm_up]
            title, slug = f"{BOUND_ALGORITHM}, {name}", f"bound-{name}"
            self.take("bound", self.benchmark(title, slug, arguments, records.read_all_reduce, over))
        return None

    def measure_idle(self):
        if self.plan.idle_s > 0:
            self.take("idle", self.benchmark("idle ranks", "idle", ["--idle", self.plan.idle_s], records.read_idle))
