"""The one exception of this package."""

from gloo_bypass_tools.common.failures import Failure

MISSING = 125  # the root could not be had; a command in it has not run


class RootError(Failure):
    status = MISSING
