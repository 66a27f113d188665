"""The Python of the commands in this folder, which lies in tools/. Installed, it lies in here."""

from pathlib import Path

__path__.append(str(Path(__file__).resolve().parents[2] / "tools"))
