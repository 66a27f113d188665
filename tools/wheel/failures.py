"""The one exception of this package."""

from gloo_bypass_tools.common.failures import Failure


class WheelError(Failure):
    pass
