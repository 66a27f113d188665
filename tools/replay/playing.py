"""The ranks of a play as processes of this machine; or this one rank of it, where RANK says which."""

import json
import os
import tempfile
import time
from pathlib import Path

from gloo_bypass_tools.common import processes, transports
from gloo_bypass_tools.common.failures import BAD_INPUT, Failure
from gloo_bypass_tools.common.rank_processes import QuietRanks, StillRunning, free_port

PLAYER = "gloo_bypass_tools.replay.player"
SECURITY, OFF = "GLOO_BYPASS_SECURITY", ("", "off")
# Beyond the play itself: PyTorch's import, and ranks that come late.
START_S = 120.0
MOST_S = 30 * 86400.0


class PlayError(Failure):
    """A play that failed."""


def own_rank(plan):
    """The rank that this process is to play, by RANK and WORLD_SIZE, or None."""
    if "RANK" not in os.environ:
        return None
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        raise PlayError("RANK is set, and RANK and WORLD_SIZE are no numbers: set both, or none", BAD_INPUT) from None
    if ranks != plan.ranks or not 0 <= rank < ranks:
        raise PlayError(f"the trace is of {plan.ranks} ranks, this is rank {rank} of {ranks}", BAD_INPUT)
    return rank


def environment(options, interpreter, folder, alone):
    """Of a rank: `alone`, its place is given by whoever started this one."""
    base = dict(os.environ) | {"PYTHONPATH": interpreter.environment()["PYTHONPATH"], "PYTHONUNBUFFERED": "1"}
    if not alone:
        base = interpreter.environment() | {"GLOO_BYPASS_MEMIF_DIRECTORY": folder / "m", "GLOO_SOCKET_IFNAME": "lo"}
        base |= {name: value for name, value in os.environ.items() if name.startswith("GLOO_")}
        base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": options.plan.ranks}
    if options.transport:
        base |= transports.settings_of(options.transport)
    if transports.is_gloos(device := base.get("GLOO_DEVICE_TRANSPORT", "TCP")) and base.get(SECURITY, "") not in OFF:
        why = f"{SECURITY}={base[SECURITY]} encrypts nothing over {device}: choose another --transport, or leave it out"
        raise PlayError(why, BAD_INPUT)
    # Debian 13's PyTorch asks for libuv by default, and has none.
    return base | {"OMP_NUM_THREADS": "1", "USE_LIBUV": "0"}


class Progress:
    """The players' files whose times say when they last made progress."""

    def __init__(self, folder, limit_s):
        self.folder, self.limit_s, self.began = folder, limit_s, time.time()

    def check(self):
        """PlayError where no player has for the limit, as it would say itself if it could."""
        last = max((path.stat().st_mtime for path in self.folder.glob("*.progress")), default=self.began)
        if time.time() - max(last, self.began) > self.limit_s:
            raise PlayError(f"no rank has begun or ended anything for {self.limit_s:.0f} s")


def play(options, interpreter):
    """(answers of all ranks, or None where another process has them; the transport's name)"""
    plan, rank = options.plan, own_rank(options.plan)
    # A rank may have nothing to do while another one computes.
    limit_s = options.timeout + plan_s(plan)
    settings = json.dumps({"repeat": options.repeat, "timeout_s": limit_s, "busy": options.compute == "busy"})
    with tempfile.TemporaryDirectory(prefix="gb-replay-") as name:
        folder = Path(name)
        result, variables = folder / "result.json", environment(options, interpreter, folder, rank is not None)
        ranks = QuietRanks(folder)
        try:
            for each in range(plan.ranks) if rank is None else [rank]:
                path = folder / f"plan-{each}.json"
                path.write_text(json.dumps(plan.of_rank(each)))
                words = [interpreter.program, "-m", PLAYER, path, result, settings]
                place = {"RANK": each, "LOCAL_RANK": each} if rank is None else {}
                ranks.start(words, variables | place, processes.end_with_starter)
            failed = ranks.wait(MOST_S, Progress(folder, limit_s + START_S).check)
            if failed is not None:
                said = processes.last_line(failed.log) or "it said nothing"
                number = failed.number if rank is None else rank
                raise PlayError(f"rank {number} {processes.describe_status(failed.status)}: {said}")
        except StillRunning as error:
            raise PlayError(f"not done within a month: {error}") from None
        finally:
            for one in ranks.running():
                processes.end_group(one.process)
        answers = json.loads(result.read_text()) if rank in (None, 0) else None
    return answers, transports.name_by(variables)


def plan_s(plan):
    """What the rank that computes most computes."""
    return max(sum(action.duration_us for action in actions) for actions in plan.actions) / 1e6
