"""How a command ends early: one line on stderr, and an exit status."""

import signal
import sys

FAILED, BAD_INPUT = 1, 2


class Failure(Exception):
    """Ends a command. The text is one line for the user: what went wrong, where, and what to do. `status` is the exit
    status."""

    status = FAILED

    def __init__(self, text, status=None):
        super().__init__(text)
        self.status = self.status if status is None else status


class Interrupted(Exception):
    """A signal asked for the end of this command. The text is the signal's name, `status` the exit status it means."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def kept_exception(body):
    """None, or what ended `body()` early: a signal, a failure or an error of the system, after which there is something
    left to store. It is to be raised then."""
    try:
        body()
    except (Interrupted, KeyboardInterrupt, Failure, OSError) as error:
        return error
    return None


def why_ended(error):
    """Why the rest was not measured, of what kept_exception() returned."""
    return in_words(error) if isinstance(error, (Failure, OSError)) else "interrupted"


def in_words(error):
    """One line; of an error of the system, the file and the reason."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def exit_status(program, body, failures=(OSError,)):
    """The exit status of a command: what `body()` returns, or that of the exception that ends it, with a line on
    stderr. `failures`: exceptions with the status FAILED."""
    try:
        return body()
    except Interrupted as interruption:
        said, status = f"ended by {interruption}", interruption.status
    except KeyboardInterrupt:
        said, status = "interrupted", 128 + signal.SIGINT
    except failures as error:
        said, status = in_words(error), FAILED
    except Failure as error:
        said, status = str(error), error.status
    print(f"{program}: {said}", file=sys.stderr)
    return status
