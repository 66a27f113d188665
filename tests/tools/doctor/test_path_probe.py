"""gloo-bypass-doctor --listen and --probe between two network namespaces: which direction is blocked, which sizes pass,
and the answers to a hostile peer."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCTOR = ["/usr/bin/python3", str(ROOT / "scripts" / "gloo-bypass-doctor")]
sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.common import rank_processes  # noqa: E402
from gloo_bypass_tools.doctor import path_probe  # noqa: E402

PREFIX = f"gbprobe{os.getpid()}"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def inside(end, *words):
    return ["ip", "netns", "exec", f"{PREFIX}-{end}", *words]


@pytest.fixture
def hosts():
    """Two namespaces, a and b, of 10.77.1.1 and .2, fd77:1::1 and ::2."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    try:
        for end in "ab":
            run("ip", "netns", "add", f"{PREFIX}-{end}")
        run(
            "ip", "-n", f"{PREFIX}-a", "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", f"{PREFIX}-b"
        )
        for number, end in enumerate("ab", 1):
            for words in (
                ["addr", "add", f"10.77.1.{number}/24", "dev", "v0"],
                ["link", "set", "lo", "up"],
                ["addr", "add", f"fd77:1::{number}/64", "dev", "v0", "nodad"],
                ["link", "set", "v0", "up"],
            ):
                run("ip", "-n", f"{PREFIX}-{end}", *words)
        yield None
    except FileNotFoundError as error:
        pytest.skip(f"{error.filename} is not installed")
    finally:
        for end in "ab":
            subprocess.run(["ip", "netns", "del", f"{PREFIX}-{end}"], capture_output=True, timeout=60, check=False)


class Listener:
    """In b."""

    def __init__(self, *arguments, **environment):
        self.process = subprocess.Popen(
            inside("b", *DOCTOR, "--listen", *arguments),
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.STDOUT,
            env={**ENVIRONMENT, **environment},
        )
        self.first = self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.rest = self.process.communicate()[0]


def probed(address, *arguments, **environment):
    """(exit status, findings by direction) of a probe from a."""
    result = subprocess.run(
        inside("a", *DOCTOR, "--probe", address, "--json", *arguments),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**ENVIRONMENT, **environment},
    )
    assert result.stderr == "", result.stderr
    return result.returncode, {finding["name"]: finding for finding in json.loads(result.stdout)["udp"]["findings"]}


@pytest.mark.parametrize("a, b", [("10.77.1.1", "10.77.1.2"), ("[fd77:1::1]", "[fd77:1::2]")])
@pytest.mark.parametrize("mtu", [1500, 9000, 3000])
def test_Probe_NothingIsBlocked_NamesTheInterfacesMtuBothWays(hosts, a, b, mtu):
    for end in "ab":
        run("ip", "-n", f"{PREFIX}-{end}", "link", "set", "v0", "mtu", str(mtu))
    with Listener() as listener:
        status, found = probed(b)
        said = listener.process.stdout.readline()
    assert status == 0 and listener.first.startswith("gloo-bypass-doctor: listens at *:47777 for 600 s")
    assert list(found) == [f"{a}:47777 to {b}:47777", f"{b}:47777 to {a}:47777"]
    assert {finding["found"] for finding in found.values()} == {f"packets of up to {mtu} bytes arrive"}
    assert f"from {a}:47777: packets of up to {mtu} bytes arrive" in said


@pytest.mark.parametrize("blocked", ["a", "b", "ab"])
def test_Probe_OneDirectionIsBlocked_NamesItAndOnlyIt(hosts, blocked):
    for end in blocked:
        run(*inside(end, "iptables", "-A", "INPUT", "-p", "udp", "-j", "DROP"))
    with Listener("10.77.1.2:47790") as listener:
        status, found = probed("10.77.1.2:47790")
        said = listener.process.stdout.readline() if "b" in blocked else ""
    a, b = "10.77.1.1:47790", "10.77.1.2:47790"
    assert status == 1
    for end, name in (("b", f"{a} to {b}"), ("a", f"{b} to {a}")):
        assert (found[name]["found"] == "blocked: nothing arrives") == (end in blocked), found
    assert ("nothing arrives over UDP" in said + listener.rest) == ("b" in blocked)


def test_Probe_OneDirectionLosesLargePackets_NamesTheSettingThatHelps(hosts):
    run(*inside("a", "iptables", "-A", "INPUT", "-p", "udp", "-m", "length", "--length", "1451:65535", "-j", "DROP"))
    with Listener():
        status, found = probed("10.77.1.2")
    there, back = found.values()
    assert status == 0 and there["state"] == "ok" and back["state"] == "warning"
    assert back["found"] == "packets of more than 1450 bytes do not arrive"
    assert back["mend"][0].startswith("export GLOO_BYPASS_MTU=1450 ")


def test_Direction_AddressTranslationBetween_SaysSo():
    way = path_probe.Direction("10.0.0.1:47777", "192.0.2.2:47777", 1500, 1500, "192.0.2.9:61001")
    assert way.problem == (
        "arrives from 192.0.2.9:61001: an address translation lies between, and ranks know only 10.0.0.1:47777"
    )
    assert "same on both sides" in way.advice


def test_Probe_FirewallsThatLetOnlyAnswersIn_IsNotBlockedAsRanksAreNot(hosts):
    for end in "ab":
        for rule in (["-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "ACCEPT"], ["-j", "DROP"]):
            try:
                run(*inside(end, "iptables", "-A", "INPUT", "-p", "udp", *rule))
            except subprocess.CalledProcessError:
                pytest.skip("the kernel has no connection tracking")
    with Listener():
        assert probed("10.77.1.2")[0] == 0


def test_Port_IsTheFirstOfTheRange(hosts):
    with Listener(GLOO_BYPASS_UDP_PORT="47800-47810") as listener:
        status, found = probed("10.77.1.2", GLOO_BYPASS_UDP_PORT="47800-47810")
    assert status == 0 and "*:47800" in listener.first and all(":47800 to " in name for name in found)


def doctor(*arguments):
    return subprocess.run(
        [*DOCTOR, *arguments], capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False
    )


def test_Probe_NobodyListens_OneLineSaysWhatToStart():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        result = doctor("--probe", f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert result.stderr == (
        f"gloo-bypass-doctor: no TCP connection to 127.0.0.1:{port} (Connection refused), which ranks need for "
        "MASTER_PORT as well: start gloo-bypass-doctor --listen there first\n"
    )


def test_Probe_SystemRefusesTheSocket_IsAProbeError(monkeypatch):
    """As where an address is local to a link and says of which only once."""
    monkeypatch.setattr(path_probe, "addresses", lambda control: (socket.AF_INET, "192.0.2.1", "127.0.0.1"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(path_probe.ProbeError, match="broke off .Cannot assign requested address.: start both"):
            path_probe.probe(server.getsockname(), "x")


def test_Listen_PortIsTaken_OneLineSaysSo():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = doctor("--listen", f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert result.stderr == f"gloo-bypass-doctor: cannot listen at 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--probe", ""],
        ["--probe", ":5"],
        ["--probe", "a:b"],
        ["--probe", "a:70000"],
        ["--probe", "a/b"],
        ["--probe", "[fd00::1"],
        ["--listen", "1.2.3.4:0"],
        ["--listen", "--probe", "a"],
        ["--listen", "--seconds", "0"],
    ],
)
def test_BadInput_OneLineAndExitStatus2(arguments):
    result = doctor(*arguments)
    assert result.returncode == 2 and result.stderr.splitlines()[-1].startswith("gloo-bypass-doctor: error: ")


@pytest.mark.parametrize("name", ["a..b", f"{'a' * 64}.b"])
def test_Probe_NameThatNoHostCanHave_IsOneLine(name):
    result = doctor("--probe", f"{name}:5")
    assert result.returncode == 1 and "no TCP connection to" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"[]\n",
        b"x" * 100_000,
        b"{}\n",
        b'{"token": "00", "port": 1, "mtu": 1500}\n',
        b'{"token": "%s", "port": 65536, "mtu": 1500}\n' % (b"00" * 16),
        b'{"token": "%s", "port": true, "mtu": 1500}\n' % (b"00" * 16),
        b'{"token": "%s", "port": 5, "mtu": 1e9}\n' % (b"00" * 16),
    ],
)
def test_Listener_HostileProber_IsRefusedAndTheNextOneServed(sent):
    said, lines = threading.Event(), []

    def say(line):
        lines.append(line)
        said.set()

    port = rank_processes.free_port()
    thread = threading.Thread(target=path_probe.listen, args=(("127.0.0.1", port), 60, say, "x"), daemon=True)
    thread.start()
    assert said.wait(30)
    with socket.create_connection(("127.0.0.1", port)) as hostile:
        try:
            hostile.sendall(sent)
            hostile.shutdown(socket.SHUT_WR)
            assert hostile.recv(100) == b""
        except OSError:
            pass
    ways = path_probe.probe(("127.0.0.1", port), "x")
    until = time.monotonic() + 30  # it speaks of a probe once it has answered it
    while len(lines) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert lines[1].startswith("a connection that ended without a probe: ") and "from 127.0.0.1:" in lines[2]
    assert [way.problem for way in ways] == ["", ""]


def test_Listener_ProberGoesWithoutReading_TheNextOneIsServed():
    """Runs as a command, so that a signal can end it: pytest ignores SIGPIPE, and so do its threads."""
    port = rank_processes.free_port()
    with subprocess.Popen(
        [*DOCTOR, "--listen", f"127.0.0.1:{port}", "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    ) as listener:
        try:
            assert "listens at" in listener.stdout.readline()
            with socket.create_connection(("127.0.0.1", port)) as gone:
                gone.sendall(b'{"token": "%s", "port": 5, "mtu": 1500}\n' % (b"00" * 16))
            assert "a connection that ended without a probe" in listener.stdout.readline()
            assert all(way.problem == "" for way in path_probe.probe(("127.0.0.1", port), "x"))
        finally:
            listener.kill()


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"sizes": 5, "source": ""},
        {"sizes": [0], "source": ""},
        {"sizes": [True], "source": ""},
        {"sizes": [1500] * 100, "source": ""},
        {"sizes": [], "source": "\x1b[2J"},
        {"sizes": [], "source": "x" * 100},
    ],
)
def test_Report_Impossible_IsRefused(report):
    with pytest.raises(path_probe.ProbeError):
        path_probe.Arrived.of_message(report)
