"""The one exception of this package: what went wrong in one line, and the exit status it gives."""

MISSING = 125  # the root could not be had; a command in it has not run


class RootError(Exception):
    def __init__(self, message, status=MISSING):
        super().__init__(message)
        self.status = status
