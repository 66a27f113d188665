"""One process at a time."""

import fcntl
import os
from contextlib import contextmanager


@contextmanager
def alone(path, refusal):
    """While it lasts no other process that asks for it has this folder or file. Raises `refusal` where one has it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # the body may raise it, too: a fork that the system refuses
            raise refusal from None
        yield
    finally:
        os.close(descriptor)
