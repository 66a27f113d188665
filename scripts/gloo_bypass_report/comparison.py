"""The measurement, stage by stage: trainings A B A B, all-reduces, idle ranks.

A stage that fails is written down and the others still run, so that what could be measured is reported. After every
stage the folder is complete as far as it goes: scripts/report can draw it at any time.
"""

import os
import shlex
import time
from dataclasses import asdict, dataclass, field

from . import children, machine, records, schedule
from .results import ResultsError

# What comes after the trainings, as a reserve in the planning.
AFTER_TRAINING_S = 75.0
BENCHMARK_LIMIT_S = 180.0
# Iterations and warm-up iterations of a round: many where one takes microseconds, few where it takes milliseconds.
SMALL_ITERATIONS, LARGE_ITERATIONS = (200, 20), (10, 3)
SMALL_LIMIT_BYTES = 65536
# Settings of the children that bear on the figures, to be named in the report.
TELLING_PREFIXES = ("GLOO_", "OMP_", "OPENBLAS_", "MKL_")


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


@dataclass
class Budget:
    """Since when the time runs, on the monotonic clock."""

    started: float = field(default_factory=time.monotonic)

    def restart(self):
        self.started = time.monotonic()

    def elapsed_s(self):
        return time.monotonic() - self.started


def environment_for(transport, inherited):
    """The children's environment: the transport by name, the loopback interface unless the user chose one."""
    environment = dict(inherited)
    if transport:
        environment["GLOO_DEVICE_TRANSPORT"] = transport
    if not environment.get("GLOO_SOCKET_IFNAME") and not environment.get("GLOO_BYPASS_INTERFACE"):
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    return environment


def telling(environment):
    return {key: value for key, value in sorted(environment.items()) if key.startswith(TELLING_PREFIXES)}


def trainer_command(program, plan, metrics):
    return [program, "--spawn", plan.ranks, "--model", plan.model, "--batch-size", plan.batch_size,
            "--seq-length", plan.seq_len, "--steps", plan.steps, "--seed", plan.seed, "--skip-first", plan.warm_up,
            "--no-progress", "--metrics", metrics, *plan.trainer_arguments]


def benchmark_parts(sizes):
    """The sweep in two parts, each with as many iterations as suit its sizes, and 10M floats: (name, b, e, f, n, w)."""
    low, high, factor = sizes
    parts, size = {}, low
    while size <= high:
        parts.setdefault("small" if size <= SMALL_LIMIT_BYTES else "large", []).append(size)
        size *= factor
    listed = [(name, part[0], part[-1], factor, *(SMALL_ITERATIONS if name == "small" else LARGE_ITERATIONS))
              for name, part in parts.items()]
    return [*listed, ("10M floats", 40_000_000, 40_000_000, 2, *LARGE_ITERATIONS)]


class Comparison:
    """One measurement into one results folder. Single-threaded; owns its children while a stage runs."""

    def __init__(self, root, build, plan, folder, display, budget, record=None):
        self.root, self.build, self.plan = root, build, plan
        self.folder, self.display, self.budget = folder, display, budget
        self.record = record or {}
        self.record.setdefault("schema", "gloo-bypass/comparison/1")
        self.record |= {"state": "running", "plan": asdict(plan), "machine": machine.describe(root),
                        "environment": telling(environment_for("", os.environ)), "stages": [], "failures": [],
                        "training": [], "all_reduce": [], "idle": []}

    def save(self):
        self.record["elapsed_s"] = round(self.budget.elapsed_s(), 1)
        self.folder.write_json("results.json", self.record)

    def run(self):
        """All stages. Returns whether none failed. KeyboardInterrupt passes through once the state is saved."""
        try:
            self.save()
            if self.plan.training:
                self.train_in_turns()
            if self.plan.benchmark:
                for part in benchmark_parts(self.plan.sizes):
                    self.measure_all_reduce(*part)
                self.measure_idle()
            self.record["state"] = "failed" if self.record["failures"] else "complete"
        except KeyboardInterrupt:
            self.record["state"] = "interrupted"
            raise
        finally:
            self.save()
        return not self.record["failures"]

    def stage(self, name, slug, command, limit_s, environment, on_tick=None, total=None):
        """Runs one program as a stage. Returns whether it succeeded; a failure is written down and said."""
        log = self.folder.place(f"logs/{slug}.log")
        before = time.monotonic()
        words = [str(word) for word in command]
        try:
            with self.display.stage(name, total=total):
                outcome = children.run(words, log, limit_s, environment=environment, directory=self.root, on_tick=on_tick)
                children.require_success(name, outcome, log)
            done = True
        except children.StageError as error:
            self.fail(name, str(error), log)
            done = False
        shown = telling({key: value for key, value in environment.items() if os.environ.get(key) != value})
        self.record["stages"].append({"name": name, "seconds": round(time.monotonic() - before, 1), "succeeded": done,
                                      "log": self.folder.relative(log), "command": shell_line(shown, words, self.root)})
        self.save()
        return done

    def fail(self, name, reason, log):
        self.record["failures"].append({"stage": name, "reason": reason, "log": self.folder.relative(log)})
        self.display.line(reason, style="red")

    def train_in_turns(self):
        """Repeats A B, at least one and as many as the time allows; a transport that fails is not tried again."""
        plan, repeat, repeats, failed = self.plan, 0, self.plan.repeats, set()
        total_s = plan.minutes * 60.0
        while repeat < repeats:
            repeat += 1
            before = self.budget.elapsed_s()
            for turn in schedule.repeat_turns(plan.transports, repeat):
                if turn.transport not in failed and not self.train(turn):
                    failed.add(turn.transport)
            if len(failed) == len(plan.transports):
                return
            left_s = schedule.remaining_s(total_s, self.budget.elapsed_s(), AFTER_TRAINING_S)
            repeats = schedule.affordable_repeats(left_s, max(0.1, self.budget.elapsed_s() - before), repeat, repeats)

    def train(self, turn):
        plan = self.plan
        slug = f"training-{turn.repeat}-{turn.transport}"
        partial = self.folder.place(f"raw/{slug}-rank{{rank}}.jsonl.partial")
        live = str(partial).replace("{rank}", "0")

        def tick():
            done, last = records.finished_steps(live)
            if last:
                self.display.advance(done, note=f"step {done} of {plan.steps}, loss {last.get('loss', 0):.3f}, "
                                                f"{last.get('t_step_s', 0):.2f} s a step")

        program = self.build / "trainer" / "ddp_train"
        if not self.stage(f"train over {turn.transport}, repeat {turn.repeat}", slug,
                          trainer_command(program, plan, partial), schedule.run_limit_s(plan.steps),
                          environment_for(turn.transport, os.environ), on_tick=tick, total=plan.steps):
            return False
        return self.take_training(turn, slug)

    def take_training(self, turn, slug):
        """Gives the ranks' files their names and checks that they can be read."""
        names = [f"raw/{slug}-rank{rank}.jsonl" for rank in range(self.plan.ranks)]
        try:
            for name in names:
                self.folder.adopt(name + ".partial", name)
                records.read_training(self.folder.place(name), turn.transport, turn.repeat, self.plan.warm_up)
        except (ResultsError, records.RecordError) as error:
            self.fail(f"train over {turn.transport}, repeat {turn.repeat}", str(error), self.folder.place(f"logs/{slug}.log"))
            self.save()
            return False
        self.record["training"].append({"transport": turn.transport, "repeat": turn.repeat, "files": names})
        self.save()
        return True

    def benchmark(self, name, slug, arguments, read, key):
        file = f"raw/{slug}.json"
        command = [self.build / "tools" / "all_reduce_perf", "--ranks", self.plan.ranks, "--transports",
                   ",".join(self.plan.transports), *arguments, "--deadline", int(BENCHMARK_LIMIT_S),
                   "--json", self.folder.place(file)]
        if self.stage(name, slug, command, BENCHMARK_LIMIT_S + 10.0, environment_for("", os.environ)):
            try:
                read(self.folder.place(file))
                self.record[key].append(file)
            except records.RecordError as error:
                self.fail(name, str(error), self.folder.place(f"logs/{slug}.log"))
            self.save()

    def measure_all_reduce(self, name, low, high, factor, iterations, warm_up):
        self.benchmark(f"all-reduce, {name}", "all-reduce-" + name.replace(" ", "-"),
                       ["-b", low, "-e", high, "-f", factor, "-n", iterations, "-w", warm_up],
                       records.read_all_reduce, "all_reduce")

    def measure_idle(self):
        if self.plan.idle_s > 0:
            self.benchmark("idle ranks", "idle", ["--idle", self.plan.idle_s], records.read_idle, "idle")


def shell_line(environment, words, root):
    """The command as one can paste it, with paths below the repository relative to it."""
    prefix = str(root) + os.sep
    return " ".join([*(f"{key}={shlex.quote(value)}" for key, value in environment.items()),
                     *(shlex.quote(word.removeprefix(prefix)) for word in words)])
