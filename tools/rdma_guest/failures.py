"""The one exception of this package."""

from gloo_bypass_tools.common.failures import Failure

MISSING = 125  # something that rdma-guest needs is not there, or the guest did not come up
TIME_LIMIT = 124  # the time limit, as timeout(1) has it


class GuestError(Failure):
    status = MISSING
