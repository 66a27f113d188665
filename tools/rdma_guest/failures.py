"""The one exception of this package: what went wrong in one line, and the exit status it gives."""

MISSING = 125  # something that rdma-guest needs is not there, or the guest did not come up
TIME_LIMIT = 124  # the time limit, as timeout(1) has it


class GuestError(Exception):
    def __init__(self, message, status=MISSING):
        super().__init__(message)
        self.status = status
