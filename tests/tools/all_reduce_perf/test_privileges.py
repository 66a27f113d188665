"""What each link needs of the system (docs/links-and-rdma.md, "Least privileges"), found by ranks that have no more."""

import os
import re
import shutil
import subprocess
import tempfile

import pytest

PERF = os.environ["ALL_REDUCE_PERF"]
SECONDS = 60
# An interface of the caller's own network namespace.
INTERFACE = (
    "ip link set lo up && ip link add v0 type veth peer name v1 && ip address add 10.32.0.1/24 dev v0 && "
    "ip link set v0 up && ip link set v1 up"
)

pytestmark = pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv not found")


def with_only(*capabilities):
    """No way back to more, whatever user runs the tests; but only root may give up what it could get later."""
    given_up = [f"--bounding-set=-all{''.join(f',+{name}' for name in capabilities)}"] if os.geteuid() == 0 else []
    return ["setpriv", "--inh-caps=-all", *given_up, "--no-new-privs"]


def run(command, **variables):
    with tempfile.TemporaryDirectory(prefix="gb-") as folder:  # a short path, since sockets lie in it
        variables = {"GLOO_BYPASS_MEMIF_DIRECTORY": folder + "/memif", **variables}
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **variables},
        )


def test_Capabilities_GivenUp_AreNone():
    status = run([*with_only(), "cat", "/proc/self/status"]).stdout
    assert set(re.findall(r"Cap(?:Prm|Eff|Inh|Amb):\s*0*([0-9a-f]*)\n", status)) == {""}, status


@pytest.mark.parametrize("transport, link", [("DPDK", "memif"), ("DPDK", "auto"), ("UDP", "auto")])
def test_MemoryAndUdp_WithoutCapabilitiesOrLockedMemory_Work(transport, link):
    command = ["prlimit", "--memlock=0", *with_only(), PERF, "--ranks", "2", "--transports", transport]
    done = run([*command, "-b", "4", "-e", "1M", "-f", "512"], GLOO_BYPASS_LINK=link)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Out of bounds values : 0 OK" in done.stdout


@pytest.mark.parametrize("capabilities", [("net_raw", "net_admin"), ("net_raw",), ("net_admin",)])
def test_Netdev_NeedsTwoCapabilities(capabilities):
    if os.geteuid() != 0 or run(["unshare", "-n", "sh", "-c", INTERFACE]).returncode != 0:
        pytest.skip("no network namespace can be made with an interface in it")
    program = f'{INTERFACE} && exec "$@"'
    ranks = [*with_only(*capabilities), PERF, "--ranks", "1", "--transports", "DPDK", "-b", "4", "-e", "4"]
    done = run(
        ["unshare", "-n", "sh", "-c", program, "sh", *ranks], GLOO_BYPASS_LINK="netdev", GLOO_BYPASS_INTERFACE="v0"
    )
    if len(capabilities) == 2:
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        assert done.returncode != 0 and "CAP_NET_RAW and CAP_NET_ADMIN" in done.stderr, done.stdout + done.stderr
