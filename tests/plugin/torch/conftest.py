import os

import pytest


def pytest_collection_modifyitems(items):
    no_dpdk, no_rdma = os.environ.get("PLUGIN_NO_DPDK", ""), os.environ.get("PLUGIN_NO_RDMA", "")
    for item in items:
        if no_dpdk and "without_dpdk" not in item.keywords:
            item.add_marker(pytest.mark.skip(reason=no_dpdk))
        if no_rdma and "rdma" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=no_rdma))


def pytest_configure(config):
    config.addinivalue_line("markers", "rdma: needs the RDMA transport in the build")
    config.addinivalue_line("markers", "without_dpdk: also runs where the DPDK transport was not built")
    config.addinivalue_line("markers", "transport_alone: the same under any PyTorch, and not repeated with pip's")
