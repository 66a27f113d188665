"""One process at a time, and what it says of others."""

import pytest
from gloo_bypass_tools.common.exclusive import alone


class Refused(Exception):
    pass


def test_Alone_AnotherHasIt_IsRefused(tmp_path):
    with alone(tmp_path, Refused()):
        with pytest.raises(Refused):
            with alone(tmp_path, Refused()):
                pass
    with alone(tmp_path, Refused()):
        pass


def test_Alone_WhatTheBodyRaises_IsNotTakenForAnother(tmp_path):
    with pytest.raises(BlockingIOError, match="fork"):  # EAGAIN, as a full process table gives it
        with alone(tmp_path, Refused()):
            raise BlockingIOError(11, "fork: Resource temporarily unavailable")
