"""Plays mmdebstrap: notes its command line in $DOUBLE_CALLS and makes a root of a few of this machine's programs, in a
moment.

$DOUBLE_SAYS is printed as an error instead; $DOUBLE_HANGS makes a part of a root, touches that path, and goes on for
ever.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("bash", "cat", "touch", "sleep", "env", "rm", "mkdir", "kill", "ls")


def copy(path, root):
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(os.path.realpath(path), target)


def make_root(root):
    for folder in ("dev", "proc", "sys", "tmp", "run", "etc", "root", "bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        program = shutil.which(name)
        shutil.copy(os.path.realpath(program), root / "bin" / name)
        for word in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split():
            if word.startswith("/"):
                copy(word, root)
    (root / "etc/debian_version").write_text("the double's\n")


def main(words):
    with open(os.environ["DOUBLE_CALLS"], "a", encoding="utf-8") as calls:
        calls.write(json.dumps(words) + "\n")
    root = Path(words[-2])
    if "DOUBLE_HANGS" in os.environ:
        (root / "half").mkdir(parents=True)
        Path(os.environ["DOUBLE_HANGS"]).touch()
        while True:
            time.sleep(1)
    if "DOUBLE_SAYS" in os.environ:
        root.mkdir()
        print(
            "I: running apt-get update...\n" + os.environ["DOUBLE_SAYS"] + "\nE: mmdebstrap failed to run",
            file=sys.stderr,
        )
        return 1
    make_root(root)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
