"""Ranks as processes, one transport a process: PyTorch reads GLOO_DEVICE_TRANSPORT once.

Each round goes over all programs, and each program over all transports in turn, so that a slow minute takes one round
of a few turns. A turn's ranks check themselves that their bytes went over the transport that they name; that all turns
of a program came to the same result is checked here.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gloo_bypass_tools.common import processes, transports
from gloo_bypass_tools.common.rank_processes import QuietRanks, StillRunning, free_port
from gloo_bypass_tools.report import programs

# Of one turn, PyTorch's import included.
TURN_S = 900.0
RANK = "gloo_bypass_tools.compare_programs.rank"


class TurnError(Exception):
    """A turn that failed; the text is one line."""


@dataclass(frozen=True)
class Missing:
    """A turn that was not measured, and why."""

    program: str
    transport: str
    round: int
    why: str

    def in_words(self):
        return f"{self.program} over {self.transport}, round {self.round}: {self.why}"


def samples_of(records):
    """{Key without its program: samples of all ranks}."""
    found = {}
    for record in records:
        for row in record["rows"]:
            where = row["quantity"], row["bytes"], row["compute_ms"]
            found.setdefault(where, []).extend(row["samples_us"])
    return found


def only_of(values, what):
    found = sorted(set(values))
    if len(found) != 1:
        raise TurnError(f"{what} differ: {', '.join(one[:16] for one in found)}")
    return found[0]


class Measurement:
    """`folder`: a short one for sockets and results, `logs` for what the ranks say. Both are there, and are the
    caller's."""

    def __init__(self, interpreter, options, folder, logs):
        self.interpreter, self.options, self.folder, self.logs = interpreter, options, Path(folder), Path(logs)
        # {(program, transport): [by_key of each round]}
        self.rounds, self.missing, self.digests = {}, [], {}
        self.count = 0

    def environment_of(self, rank, transport, port):
        device, own = transports.device_of(transport)
        values = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": self.options.ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "GLOO_DEVICE_TRANSPORT": device,
            "GLOO_BYPASS_COLLECTIVES": "own" if own else "gloo",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": self.options.threads,
            "GLOO_BYPASS_MEMIF_DIRECTORY": self.folder / "m",
            "USE_LIBUV": 0,  # Debian 13's PyTorch asks for libuv by default, and has none
        }
        return self.interpreter.environment() | values

    def turn(self, program, transport, number):
        """The samples of one program's ranks over one transport; TurnError where they failed."""
        self.count += 1
        logs = self.logs / f"{program.name}-{transport.replace('/', '-')}-{number}"
        logs.mkdir()
        results = [self.folder / f"{self.count}-{rank}.json" for rank in range(self.options.ranks)]
        settings, port, ranks = json.dumps(program.sizes[self.options.effort]), free_port(), QuietRanks(logs)
        try:
            for rank, result in enumerate(results):
                words = [self.interpreter.program, "-m", RANK, program.module, settings, result]
                # A signal may come before the list knows of a rank.
                ranks.start(words, self.environment_of(rank, transport, port), processes.end_with_starter)
            failed = ranks.wait(TURN_S)
        except StillRunning:
            raise TurnError(f"not done within {TURN_S:g} s; logs: {logs}") from None
        finally:
            ranks.end()
        if failed is not None:
            said = processes.last_line(failed.log) or "it said nothing"
            ended = processes.describe_status(failed.status)
            raise TurnError(f"rank {failed.number} {ended}: {said}; log: {failed.log}")
        records = [json.loads(result.read_text()) for result in results]
        self.check(program, transport, records)
        return {programs.Key(program.name, *where): samples for where, samples in samples_of(records).items()}

    def check(self, program, transport, records):
        only_of([record["transport"] for record in records] + [transport], "transports of the ranks")
        digest = only_of([record["checksum"] for record in records], "results of the ranks")
        # Our own collectives add in another order than Gloo's, which tells from three ranks on.
        ordered = program.name + (transports.OWN_SUFFIX if transport in transports.OWN and len(records) > 2 else "")
        first, over = self.digests.setdefault(ordered, (digest, transport))
        if digest != first:
            raise TurnError(f"its result differs from that over {over}: a transport must not change results")

    def measure(self, wanted, progress, between=lambda: None):
        """`wanted`: programs. Calls `progress(text)` before each turn and `between()` before each round."""
        failed = set()
        for number in range(1, self.options.rounds + 1):
            between()
            for program in wanted:
                for transport in programs.turns(list(self.options.transports), number):
                    if (program.name, transport) in failed:
                        continue
                    progress(f"round {number}: {program.name} over {transport}")
                    try:
                        by_key = self.turn(program, transport, number)
                    except TurnError as error:
                        self.missing.append(Missing(program.name, transport, number, str(error)))
                        failed.add((program.name, transport))
                        continue
                    figures = programs.with_differences(program, by_key)
                    self.rounds.setdefault((program.name, transport), []).append(figures)

    def rows(self):
        """Records of a stored run, in the order of the programs and transports."""
        found = []
        for (_, transport), rounds in self.rounds.items():
            for key in rounds[0]:
                each = [figures[key] for figures in rounds if key in figures]
                times = {name: round(value, 3) for name, value in asdict(programs.of_all_rounds(each)).items()}
                rounds_us = [round(one.median_us, 3) for one in each]
                found.append(asdict(key) | {"transport": transport, **times, "rounds_us": rounds_us})
        return found
