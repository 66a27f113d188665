"""Plays podman: takes the command lines that scripts/run-containers gives, keeps what exists as files under
$DOUBLE_STATE, and runs a "container" as a process of this machine: `$DOUBLE_RANK` with the container's environment.

Every command line is one line of $DOUBLE_STATE/calls.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(os.environ.get("DOUBLE_STATE", "."))


def make(folder, rank_script):
    """An executable `podman` in `folder`; its ranks run `rank_script`. Returns its folder for PATH."""
    folder.mkdir(parents=True)
    (folder / "podman").write_text(
        f'#!/bin/sh\nexport DOUBLE_STATE="{folder}/state"\nexport DOUBLE_RANK="{folder}/rank"\n'
        f'exec /usr/bin/python3 "{Path(__file__).resolve()}" "$@"\n'
    )
    (folder / "rank").write_text("#!/bin/bash\n" + rank_script)
    for name in ("podman", "rank"):
        (folder / name).chmod(0o755)
    for kind in ("container", "network", "volume"):
        (folder / "state" / kind).mkdir(parents=True)
    return folder


def values(words, option):
    return [words[i + 1] for i in range(len(words) - 1) if words[i] == option]


def run(words):
    name = values(words, "--name")[0]
    if "--detach" in words:
        waiting = subprocess.Popen(
            words[-2:],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        (STATE / "container" / name).write_text(f"{waiting.pid}\n")
        return 0
    return rank(words, name)


def execute(words):
    """`exec`: the container's name follows its last option."""
    return rank(words, words[words.index("--workdir") + 2])


def rank(words, name):
    environment = dict(os.environ, **dict(pair.split("=", 1) for pair in values(words, "--env")))
    # As with podman, the container exists before its program writes anything.
    process = subprocess.Popen(
        [os.environ["DOUBLE_RANK"]], env=environment, start_new_session=True, preexec_fn=lambda: belong(name)
    )
    status = process.wait()
    return 128 - status if status < 0 else status


def belong(name):
    with open(STATE / "container" / name, "a") as pids:
        pids.write(f"{os.getpid()}\n")


def end(name):
    path = STATE / "container" / name
    for pid in path.read_text().split() if path.exists() else []:
        try:
            os.killpg(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass


def main(words):
    with open(STATE / "calls", "a") as calls:
        calls.write(json.dumps(words) + "\n")
    verb = words[0]
    if verb == "run":
        return run(words[1:])
    if verb == "exec":
        return execute(words[1:])
    if verb == "image":
        return 0 if (STATE / "image").exists() else 125
    if verb in ("network", "volume") and words[1] == "create":
        (STATE / verb / words[-1]).touch()
    elif verb in ("network", "volume"):
        for name in (word for word in words[2:] if not word.startswith("--")):
            (STATE / verb / name).unlink()
    elif verb == "ps":
        print("\n".join(path.name for path in (STATE / "container").iterdir()))
    elif verb in ("kill", "rm"):
        for name in (word for word in words[1:] if not word.startswith("--")):
            end(name)
            if verb == "rm":
                (STATE / "container" / name).unlink()
    elif verb == "cp":
        shutil.copy(STATE / "calls", words[2])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
