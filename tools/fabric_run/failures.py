"""What ends a run. The text is one line: what, where, and what to do."""


class FabricRunError(Exception):
    """`status` is the exit status: 1 something failed, 2 bad input, 128 + N ended by signal N."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status
