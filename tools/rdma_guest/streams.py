"""What comes out of the guest: the command's two streams, each ended by a token, and the lines of the control port."""


class EndedStream:
    """Passes bytes on as they come, until the token; the token itself and what follows it stay behind.

    Bytes that may be the token's beginning are held back until it is clear whether they are.
    """

    def __init__(self, token, write):
        self.token_ = token
        self.write_ = write
        self.held_ = b""
        self.ended = False

    def feed(self, data):
        if self.ended:
            return
        data = self.held_ + data
        at = data.find(self.token_)
        if at >= 0:
            self.ended = True
            self.held_ = b""
            data = data[:at]
        else:
            keep = next(
                (n for n in range(min(len(self.token_) - 1, len(data)), 0, -1) if data.endswith(self.token_[:n])), 0
            )
            self.held_ = data[len(data) - keep :]
            data = data[: len(data) - keep]
        if data:
            self.write_(data)

    def flush(self):
        """The guest is gone: what was held back is no token."""
        if self.held_ and not self.ended:
            self.write_(self.held_)
        self.held_ = b""


class Lines:
    """Cuts bytes into lines and hands over each whole one."""

    def __init__(self, handle):
        self.handle_ = handle
        self.rest_ = b""

    def feed(self, data):
        *lines, self.rest_ = (self.rest_ + data).split(b"\n")
        for line in lines:
            self.handle_(line.decode(errors="replace"))
