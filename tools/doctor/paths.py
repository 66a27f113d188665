"""The checks of each path."""

from gloo_bypass_tools.doctor import common_checks as common
from gloo_bypass_tools.doctor import dpdk_checks as dpdk
from gloo_bypass_tools.doctor import rdma_checks as rdma
from gloo_bypass_tools.doctor import training_checks as training
from gloo_bypass_tools.doctor import udp_checks as udp

TITLES = {
    "memif": "DPDK over shared memory, within a host: GLOO_DEVICE_TRANSPORT=DPDK",
    "netdev": "DPDK over a Linux interface: GLOO_DEVICE_TRANSPORT=DPDK GLOO_BYPASS_LINK=netdev",
    "pci": "DPDK over a NIC: GLOO_DEVICE_TRANSPORT=DPDK GLOO_BYPASS_LINK=pci",
    "udp": "UDP through the kernel's sockets: GLOO_DEVICE_TRANSPORT=UDP, and between hosts GLOO_DEVICE_TRANSPORT=DPDK",
    "rdma": "RDMA: GLOO_DEVICE_TRANSPORT=RDMA",
    "softroce": f"RDMA without an adapter, on this machine's own kernel: {common.tool('softroce')}",
    "training": "Training with PyTorch, over any transport",
}
AUTO = (
    "GLOO_DEVICE_TRANSPORT=DPDK with no other setting (GLOO_BYPASS_LINK=auto) needs memif within a host (without "
    "it udp is used there too, which is slower), and udp between hosts"
)
# Names of findings about what the wheel, or PyTorch from pip, brings along.
IN_WHEEL = (
    "release",
    "DPDK libraries",
    "DPDK driver net_af_packet",
    "DPDK driver bus_pci",
    "PyTorch",
    "Gloo",
    "plug-in",
    "BLAS",
)


def checks(path, plugin=None, wheel=False):
    """Functions of a machine that give a finding each, in the order in which they should be mended."""
    base = [common.release, common.processor, common.free_memory]
    return {
        "memif": [*base, common.dpdk_libraries, dpdk.memif_directory],
        "netdev": [
            *base,
            common.dpdk_driver("net_af_packet"),
            dpdk.interface,
            dpdk.capabilities,
            common.locked_memory(common.NETDEV_LOCKED_BYTES, "a packet socket's ring"),
            common.huge_pages,
        ],
        "pci": [
            *base,
            common.dpdk_driver("bus_pci"),
            dpdk.nic_driver_in_wheel if wheel else dpdk.nic_driver,
            dpdk.pci_device,
            dpdk.iommu,
            dpdk.vfio_rights,
            dpdk.pci_huge_pages,
            common.huge_page_mount,
            common.locked_memory(common.NETDEV_LOCKED_BYTES, "vfio"),
            dpdk.pci_address_settings,
        ],
        "udp": [*base, udp.sockets, udp.segmentation, udp.buffers, udp.address],
        "rdma": [
            *base,
            rdma.verbs_library,
            rdma.devices,
            rdma.gid,
            rdma.device_files,
            rdma.pinned_memory,
            rdma.registration_cache,
        ],
        "softroce": [
            rdma.softroce_tools,
            rdma.softroce_module,
            rdma.softroce_device,
            rdma.verbs_library,
            rdma.pinned_memory,
        ],
        "training": [
            *base,
            training.container,
            training.torch,
            training.gloo,
            common.plugin(plugin),
            training.transport_choice,
            training.host_address,
            training.blas,
            training.cores,
            training.governor,
            training.shared_memory,
        ],
    }[path]


def examine(machine, path, plugin=None, wheel=False):
    """`wheel`: for the Python package from a wheel, not for a build with Debian's packages."""
    findings = [check(machine) for check in checks(path, plugin, wheel)]
    return [finding for finding in findings if not (wheel and finding.name in IN_WHEEL)]
