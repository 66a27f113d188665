import os

import pytest


def pytest_collection_modifyitems(items):
    reason = os.environ.get("PLUGIN_NO_DPDK", "")
    if reason:
        for item in items:
            if "without_dpdk" not in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config):
    config.addinivalue_line("markers", "without_dpdk: also runs where the DPDK transport was not built")
