"""The results folder. It is made once and never overwritten; each file in it is whole or absent.

A file is written beside its place and renamed into it, so a full disk or a Ctrl-C leaves no half of one.
"""

import json
import os
import time
from pathlib import Path

from gloo_bypass_tools.common.failures import BAD_INPUT, Failure
from gloo_bypass_tools.common.whole_file import write_whole


class ResultsError(Failure):
    """The folder or a file in it cannot be written."""

    status = BAD_INPUT


class ResultsFolder:
    """Owns one folder of results. Single-threaded."""

    def __init__(self, path):
        self.path = Path(path)

    @staticmethod
    def create(path):
        """Makes the folder; refuses one that exists, so that nobody's results are lost."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            for name in ("raw", "logs", "plots"):
                (path / name).mkdir()
        except FileExistsError as error:
            if not path.exists():
                raise ResultsError(
                    f"cannot make {path}: {error.filename} is a file: choose another --output"
                ) from error
            raise ResultsError(f"{path} exists already: choose another --output, or move it away") from error
        except OSError as error:
            raise ResultsError(f"cannot make {path}: {error.strerror}: choose another --output") from error
        return ResultsFolder(path)

    def place(self, name):
        return self.path / name

    def relative(self, path):
        return str(Path(path).relative_to(self.path))

    def write_text(self, name, text):
        return self.write_bytes(name, text.encode("utf-8"))

    def write_json(self, name, value):
        return self.write_text(name, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def write_bytes(self, name, content):
        target = self.path / name
        try:
            write_whole(target, content)
        except OSError as error:
            raise ResultsError(
                f"cannot write {target}: {error.strerror}: make room, or choose another --output"
            ) from error
        return target

    def adopt(self, partial_name, name):
        """Gives a file that a program has finished writing its final name."""
        target = self.path / name
        try:
            os.replace(self.path / partial_name, target)
        except OSError as error:
            raise ResultsError(f"cannot rename {partial_name} to {target}: {error.strerror}") from error
        return target


def study_path(root, name):
    """The same of a study: results/study-NAME-<UTC time>."""
    default = default_path(root)
    return default.with_name(f"study-{name}-{default.name}")


def default_path(root, now=None):
    """results/<UTC time> under `root`; the characters are safe in any file system."""
    moment = time.gmtime(now)
    return Path(root) / "results" / time.strftime("%Y-%m-%dT%H-%M-%SZ", moment)
