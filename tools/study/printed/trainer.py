"""Runs of ddp_train, and the records that they write."""

import json
import os
import subprocess
import sys

from gloo_bypass_tools.model import prediction
from gloo_bypass_tools.study import definition, estimates
from gloo_bypass_tools.study.printed.technique_entries import EIGHT_BLOCKS

# So that a rank computes alike whatever their number.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
DEFAULT_BATCH = 8
# The limit of a run that the caller gives none: so many times its estimate, since over 300 ms TCP takes nine times as
# long as that says, and a busy machine longer; a day where there is no estimate. ddp_train itself ends what is stuck.
PATIENCE, LEAST_LIMIT_S, UNKNOWN_LIMIT_S = 20.0, 600, 86_400
MOST_LIMIT_S = 7 * 86_400  # that fabric-run takes
# Of the models that studies name.
PARAMETERS = {
    definition.TINY: 45_952,
    definition.MODEL: prediction.MODEL.parameter_count(),
    str(EIGHT_BLOCKS[1]): 436_224,
}
# What changes what a step computes, so that nothing is known of its time.
OTHER_WORK = ("--batch-size", "--seq-length", "--accumulate")


def environment(**settings):
    return ENVIRONMENT | os.environ | settings


def problem_of(flags, own):
    """Why `flags`, which would win over the study's own, cannot go to ddp_train, or ''. `own`: {flag: what sets it}."""
    set_twice = (name for name in (flag.partition("=")[0] for flag in flags) if name in own)
    return next((f'{name} after "--": {own[name]}' for name in set_twice), "")


def values_of(words):
    """[(flag, its value)] of a command's words, --flag=value and --flag value."""
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    return list(zip(parts, parts[1:]))


def model_of(chosen, model):
    """The model's name, or its file: of the flags `chosen`, or, where they name none, of the flags `model`."""
    named = [value for flag, value in values_of(chosen) if flag in ("--model", "--model-config")]
    return named[-1] if named else model[1]


def computing_s(chosen, name, ranks):
    """What a step of so many ranks computes, on a quick machine with this one's cores; None where that is not known of
    the model or `chosen`, the flags of ddp_train, change it."""
    if name not in PARAMETERS or any(flag.partition("=")[0] in OTHER_WORK for flag in chosen):
        return None
    crowd = max(1.0, ranks / len(os.sched_getaffinity(0)))
    return crowd * (DEFAULT_BATCH * estimates.SAMPLE_S if name == definition.MODEL else estimates.TINY_STEP_S)


def limit_s(asked, run_s):
    """Of a run: what the caller `asked` for, or, if None, by its estimate `run_s`, which may be None."""
    if asked is not None:
        return asked
    return UNKNOWN_LIMIT_S if run_s is None else min(MOST_LIMIT_S, max(LEAST_LIMIT_S, round(PATIENCE * run_s)))


def say_failed(why):
    """That a run was not measured; the others go on."""
    print(f"not measured: {why}", file=sys.stderr, flush=True)


def reason_of(status, said):
    """Why a program failed, in a line."""
    lines = said.strip().splitlines()
    return lines[-1] if lines else f"exit status {status}"


def run(words, name, timeout_s=None):
    """Standard output of the program; RuntimeError, with the run's name, where it fails."""
    command = [str(word) for word in words]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment())
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name}: not done within {timeout_s:g} s (--timeout)") from None
    if ended.returncode:
        raise RuntimeError(f"{name}: {reason_of(ended.returncode, ended.stderr.strip() or ended.stdout)}")
    return ended.stdout


def records_of(text):
    """Of the whole lines so far."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
