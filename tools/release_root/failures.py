"""The one exception of this package."""

from gloo_bypass_tools.common.failures import Failure

MISSING = 125  # there is no root, so no command has run in it


class RootError(Failure):
    status = MISSING
