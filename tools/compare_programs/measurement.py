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
from gloo_bypass_tools.compare_programs import encryption, libraries
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
    caller's. `prepared`: {name: other library}, which stand among the transports."""

    def __init__(self, interpreter, options, folder, logs, prepared=None):
        self.interpreter, self.options, self.folder, self.logs = interpreter, options, Path(folder), Path(logs)
        self.prepared = prepared or {}
        self.secrets = encryption.settings(options.transports, folder)
        # {(program, transport): [by_key of each round]}
        self.rounds, self.missing, self.digests = {}, [], {}
        self.count = 0

    def place_of(self, rank, port):
        """What every library's ranks find in their environment."""
        return {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": self.options.ranks,
            "LOCAL_SIZE": self.options.ranks,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OMP_NUM_THREADS": self.options.threads,
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # results that do not depend on timing
            "USE_LIBUV": 0,  # Debian 13's PyTorch asks for libuv by default, and has none
            "GLOO_SOCKET_IFNAME": "lo",
        }

    def environment_of(self, transport):
        settings = transports.settings_of(transport) | {"GLOO_BYPASS_MEMIF_DIRECTORY": self.folder / "m"}
        return self.interpreter.environment() | settings | self.secrets.get(transport, {})

    def start(self, ranks, program, transport, result):
        """Starts all ranks; `result`: the file for what one measured, its number as {rank}."""
        settings, port = json.dumps(program.sizes[self.options.effort]), free_port()
        library, environment = self.prepared.get(transport), self.environment_of(transport)
        if library:
            environment = library.environment() | {"TMPDIR": self.folder}
        for rank in range(1 if library and library.starts_all else self.options.ranks):
            own_result = result.replace("{rank}", str(rank))
            words = [self.interpreter.program, "-m", RANK, program.module, program.device, settings, own_result]
            if library:
                words = library.words(self.options.ranks, settings, result)
            # A signal may come before the list knows of a rank.
            ranks.start(words, environment | self.place_of(rank, port), processes.end_with_starter)

    def turn(self, program, transport, number):
        """The samples of one program's ranks over one transport; TurnError where they failed."""
        self.count += 1
        logs = self.logs / f"{program.name}-{transport.replace('/', '-')}-{number}"
        logs.mkdir()
        result, ranks = f"{self.folder}/{self.count}-{{rank}}.json", QuietRanks(logs)
        try:
            self.start(ranks, program, transport, result)
            failed = ranks.wait(TURN_S)
        except StillRunning:
            raise TurnError(f"not done within {TURN_S:g} s; logs: {logs}") from None
        finally:
            for rank in ranks.running():
                processes.end_group(rank.process)  # asks first: mpirun then ends its ranks and removes their memory
        if failed is not None:
            said = processes.last_line(failed.log) or "it said nothing"
            ended = processes.describe_status(failed.status)
            raise TurnError(f"rank {failed.number} {ended}: {said}; log: {failed.log}")
        files = [Path(result.replace("{rank}", str(rank))) for rank in range(self.options.ranks)]
        records = [json.loads(file.read_text()) for file in files]
        self.check(program, transport, records)
        return {programs.Key(program.name, *where): samples for where, samples in samples_of(records).items()}

    def check(self, program, transport, records):
        only_of([record["transport"] for record in records] + [transport], "transports of the ranks")
        digest = only_of([record["checksum"] for record in records], "results of the ranks")
        # From three ranks on the order of adding tells. Our own collectives' is another than Gloo's, and over memory
        # another than over a network.
        own = transports.device_of(transport)[1] and len(records) > 2
        ordered = f"{program.name}/{transport.removesuffix(transports.SEALED_SUFFIX)}" if own else program.name
        first, over = self.digests.setdefault(ordered, (digest, transport))
        if digest != first:
            raise TurnError(f"its result differs from that over {over}: a transport must not change results")

    def transports_of(self, program):
        """Libraries run one program alone."""
        one = program.name == libraries.PROGRAM
        return [transport for transport in self.options.transports if one or transport not in self.prepared]

    def leave_out_the_rest(self, wanted, why):
        """Of a measurement that was ended early: what has no round."""
        known = {(one.program, one.transport) for one in self.missing} | set(self.rounds)
        for program in wanted:
            for transport in self.transports_of(program):
                if (program.name, transport) not in known:
                    self.missing.append(Missing(program.name, transport, 1, why))

    def measure(self, wanted, progress, between=lambda: None):
        """`wanted`: programs. Calls `progress(text)` before each turn and `between()` before each round."""
        failed = set()
        for number in range(1, self.options.rounds + 1):
            between()
            for program in wanted:
                for transport in programs.turns(self.transports_of(program), number):
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
