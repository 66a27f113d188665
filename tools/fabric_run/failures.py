"""What ends a run."""

from gloo_bypass_tools.common.failures import Failure


class FabricRunError(Failure):
    """`status`: 1 something failed, 2 bad input, 128 + N ended by signal N."""
