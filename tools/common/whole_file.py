"""Files that are there whole, or not at all."""

import contextlib
import os
from pathlib import Path


def write_whole(target, content):
    """Writes bytes beside a path and renames them into it; what is there and no file (a pipe, /dev/stdout) is written
    to and stays what it is. OSError, which leaves nothing behind."""
    path = Path(target)
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)
    else:
        write_all_whole({target: content})


def write_all_whole(contents):
    """The same for {path of a file: bytes}: none is renamed before all are written. The error names the file."""
    partial = {Path(f"{target}.partial"): target for target in contents}
    try:
        for path, target in partial.items():
            with open(path, "wb") as file:
                file.write(contents[target])
                file.flush()
                os.fsync(file.fileno())
        for path, target in partial.items():
            os.replace(path, target)
    except BaseException as error:  # Ctrl-C too
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)  # a full disk's has none
        for path in partial:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise
