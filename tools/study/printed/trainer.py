"""Runs of ddp_train, and the records that they write."""

import json
import os
import subprocess

# So that a rank computes alike whatever their number.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def environment(**settings):
    return ENVIRONMENT | os.environ | settings


def problem_of(flags, own):
    """Why `flags`, which would win over the study's own, cannot go to ddp_train, or ''. `own`: {flag: what sets it}."""
    set_twice = (name for name in (flag.partition("=")[0] for flag in flags) if name in own)
    return next((f'{name} after "--": {own[name]}' for name in set_twice), "")


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
