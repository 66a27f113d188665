"""The one exception of this package."""


class WheelError(Exception):
    """One line that says what went wrong, and what to do."""
