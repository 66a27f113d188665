"""The Python of the commands in this folder, which lies in tools/. Installed, it lies in here."""

from pathlib import Path

_here = Path(__file__).resolve().parent
if not (_here / "common").exists():
    __path__ = [str(_here.parents[1] / "tools")]
