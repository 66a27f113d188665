"""Makes gloo_bypass_tools importable, and provides a stored run in the command's format."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "tools" / "report")]

from program_runs import run_record  # noqa: E402


@pytest.fixture
def write_run(tmp_path):
    """Writes a record, and returns its path."""

    def write(name="run.json", **figures):
        path = tmp_path / name
        path.write_text(json.dumps(run_record(**figures)))
        return path

    return write
