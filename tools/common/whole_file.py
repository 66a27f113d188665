"""Files that are there whole, or not at all."""

import contextlib
import os
from pathlib import Path


def write_whole(target, content):
    """Writes bytes beside a path and renames them into it. OSError, which leaves nothing behind."""
    partial = Path(f"{target}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
