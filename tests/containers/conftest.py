"""Makes gloo_bypass_tools.containers importable, and runs scripts/run-containers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

RUN_LIMIT_S = 240


class Command:
    """scripts/run-containers with this test's engine and output folder."""

    def __init__(self, output, path):
        self.output = output
        self.environment = dict(os.environ, PATH=path)

    def start(self, *arguments):
        return subprocess.Popen(
            [ROOT / "scripts" / "run-containers", *map(str, arguments)],
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments):
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(timeout=RUN_LIMIT_S)
            finally:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
        return process.returncode, out, err

    def ranks(self, transport, *arguments, program=()):
        return self.run(
            "--transport", transport, "--output", self.output, *arguments, *(["--", *program] if program else [])
        )


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path / "output", os.environ["PATH"])
