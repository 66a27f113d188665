"""`fabric` and scripts/fabric-run as commands: bad input, endings, and what is left behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fabric_programs import (
    FABRIC,
    FABRIC_RUN,
    PERF,
    counters,
    enclosure_words,
    fabric,
    fabric_run,
    needs_namespaces,
    one_line,
    run,
)

BOUND_S = 60


def wait_for(condition, what):
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {BOUND_S} s"
        time.sleep(0.02)


def processes_naming(text):
    """The command lines that have `text` in them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line.replace("\0", " "))
    return found


# fabric: input -------------------------------------------------------------------------------


def test_Check_Description_PrintsHostsAndEdges():
    answer = fabric("--check", "--ranks", "3", "--edge", "from=r0,to=r1,delay=300ms")
    assert answer.returncode == 0
    assert "r0->r1" in answer.stdout and "delay 300 ms" in answer.stdout and "r0->r2" not in answer.stdout
    as_json = json.loads(fabric("--check", "--ranks", "3", "--json").stdout)
    assert [host["ipv4"] for host in as_json["hosts"]] == ["10.77.0.2", "10.77.0.3", "10.77.0.4"]
    assert len(as_json["edges"]) == 6
    assert (
        as_json["longest_round_trip_s"] == 0
        and as_json["lowest_rate_bit_s"] == 0
        and as_json["smallest_queue_bytes"] == 0
    )


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "what is to be emulated"),
        (["--config", "/none/such.toml"], "/none/such.toml"),
        (["--ranks", "2", "--mtu", "20"], "--mtu"),
        (["--ranks", "2", "--edge", "from=r0,to=r9,delay=1ms"], "r9"),
        (["--ranks", "2", "--defaults", "rate=-5Mbit/s"], "-5Mbit/s"),
        (["--ranks", "2", "--colour", "red"], "--colour"),
        (["--check", "--json", "--config", "x"], "--config"),
        (
            ["--ranks", "2", "--netem", "r9=eth0"],
            "--netem r9=eth0: give a host (its name, or a rank from 0 to 1) and its interface",
        ),
        (["--ranks", "2", "--netem", "r0"], "--netem r0: give a host"),
        (["--ranks", "2", "--netem", "r0=a b"], "is no interface's name"),
        (["--ranks", "2", "--defaults", "duplication=1%", "--netem", "r0=eth0"], "cannot do duplication"),
        (["--ranks", "2", "--netem", "r0=eth0", "--stats", "x.json"], "--stats"),
        (["--ranks", "2", "--netem", "r0=eth0", "--capture", "x.pcapng"], "--capture"),
    ],
)
def test_Command_BadInput_IsOneLineAndStatusTwo(words, said):
    answer = fabric(*words)
    assert answer.returncode == 2 and answer.stdout == ""
    assert said in one_line(answer)


def test_Netem_Host_PrintsAScriptForItsInterface():
    answer = fabric(
        "--ranks",
        "2",
        "--edge",
        "from=1,to=0,delay=300ms",
        "--event",
        "at=1s,from=1,to=0,down=200ms",
        "--netem",
        "1=eth7",
    )
    assert answer.returncode == 0 and answer.stderr == ""
    assert "dev eth7 parent 1:2 handle 102: netem limit 10000000 delay 300000us rate 100000000000bit\n" in answer.stdout
    assert (
        answer.stdout.index("sleep 1.000000") < answer.stdout.index("loss 100%") < answer.stdout.index("sleep 0.200000")
    )


@pytest.mark.parametrize(
    "host, said",
    [
        ("name=r0", "nothing says how it is attached"),
        ("name=r0,interface=gbnone0", "interface 'gbnone0': there is none of this name"),
        ("name=r0,memif=/none/such/place.sock", "/none/such/place.sock"),
    ],
)
def test_Command_PortCannotBeMade_SaysWhyAndWhose(tmp_path, host, said):
    answer = fabric("--ranks", "2", "--host", host, "--host", f"name=r1,memif={tmp_path}/r1.sock")
    assert answer.returncode == 1 and answer.stdout == ""
    assert "host r0" in one_line(answer) and said in one_line(answer)
    assert list(tmp_path.iterdir()) == []


@needs_namespaces
def test_Command_BadEalArguments_IsOneLine(tmp_path):
    answer = run(
        [
            *enclosure_words(),
            "sh",
            "-c",
            f"ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; exec {FABRIC} "
            f"--host name=a,interface=v0 --host name=b,memif={tmp_path}/b.sock --eal-arguments=--nonsense",
        ]
    )
    assert answer.returncode == 1
    assert "unknown option --nonsense" in one_line(answer)


@needs_namespaces
def test_Command_InterfaceUnfit_SaysWhatToDo(tmp_path):
    make = "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up;"
    start = f"exec {FABRIC} --host name=a,interface=v0 --host name=b,memif={tmp_path}/b.sock"
    for change, flags, said in (
        ("ip link set v0 down;", "", "it is down: ip link set v0 up"),
        ("", "--mtu 9000", "its MTU is 1500, the fabric's 9000"),
    ):
        answer = run([*enclosure_words(), "sh", "-c", f"{make} {change} {start} {flags}"])
        assert answer.returncode == 1, answer.stdout
        assert said in one_line(answer)


@needs_namespaces
def test_Command_NoRightToRawSockets_SaysWhatIsNeeded(tmp_path):
    script = (
        "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; exec setpriv "
        f"--bounding-set -net_raw --inh-caps -net_raw -- sh -c 'exec {FABRIC} --host name=a,interface=v0 --host "
        f"name=b,memif={tmp_path}/b.sock'"
    )
    answer = run([*enclosure_words(), "sh", "-c", script])
    assert answer.returncode == 1
    assert "no right to open raw sockets" in one_line(answer)


def test_Command_CounterFileCannotBeWritten_StartsNothing(tmp_path):
    hosts = ["--host", f"name=a,memif={tmp_path}/a.sock", "--host", f"name=b,memif={tmp_path}/b.sock"]
    for flag in ("--stats", "--samples"):
        answer = fabric(*hosts, flag, "/none/such/file")
        assert answer.returncode == 1 and flag in one_line(answer)
    kept = tmp_path / "kept"
    kept.write_text("older")
    assert "File exists" in one_line(fabric(*hosts, "--samples", kept))
    assert kept.read_text() == "older" and list(tmp_path.iterdir()) == [kept]


# fabric: running --------------------------------------------------------------------------------


class RunningFabric:
    """Two memif ports without clients."""

    def __init__(self, folder, *words):
        self.sockets = [folder / "a.sock", folder / "b.sock"]
        self.process = subprocess.Popen(
            [
                FABRIC,
                "--host",
                f"name=a,memif={self.sockets[0]}",
                "--host",
                f"name=b,memif={self.sockets[1]}",
                *map(str, words),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline().startswith("fabric: ready, 2 hosts")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self, number):
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, output, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_Fabric_Signal_RemovesSocketsAndWritesCounters(tmp_path, number):
    stats, samples = tmp_path / "stats.json", tmp_path / "samples.jsonl"
    with RunningFabric(tmp_path, "--stats", stats, "--samples", samples) as running:
        assert all(path.is_socket() for path in running.sockets)
        status, output, errors = running.end(number)
    assert (status, errors) == (0, "") and "edge" in output
    assert not any(path.exists() for path in running.sockets)
    assert json.loads(stats.read_text())["schema"] == "gloo-bypass/fabric/1"
    assert all("seconds" in json.loads(line) for line in samples.read_text().splitlines())


def test_Fabric_SocketInUse_SecondOneIsRefusedAndFirstGoesOn(tmp_path):
    with RunningFabric(tmp_path) as running:
        answer = fabric("--host", f"name=a,memif={running.sockets[0]}", "--host", f"name=b,memif={tmp_path}/c.sock")
        assert answer.returncode == 1 and "another process listens there" in one_line(answer)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(BOUND_S)
            client.connect(str(running.sockets[0]))
            assert len(client.recv(128)) == 128  # memif's hello
        assert running.end(signal.SIGINT)[0] == 0


def test_Fabric_Live_PrintsEachInterval(tmp_path):
    with RunningFabric(tmp_path, "--live", "--interval", 0.1, "--duration", BOUND_S) as running:
        intervals = 0
        while intervals < 2 and (line := running.process.stdout.readline()):
            intervals += re.match(r"[\d.]+ s; 0 frames under way", line) is not None
        assert intervals == 2 and running.end(signal.SIGINT)[0] == 0


VETH_SCRIPT = """
set -eu
ip link add fab-a type veth peer name a0; ip link set fab-a up
ip link add fab-b type veth peer name b0; ip link set fab-b up
touch "$OUT/a.net" "$OUT/b.net"
for n in a b; do unshare --net="$OUT/$n.net" true; ip link set ${n}0 netns "$OUT/$n.net"; done
nsenter --net="$OUT/a.net" sh -c 'ip addr add 10.77.0.2/24 dev a0; ip link set a0 up'
nsenter --net="$OUT/b.net" sh -c 'ip addr add 10.77.0.3/24 dev b0; ip link set b0 up'
"$FABRIC" --host name=a,interface=fab-a --host name=b,interface=fab-b > "$OUT/log" 2>&1 &
fabric=$!
until grep -q ready "$OUT/log"; do kill -0 $fabric; sleep 0.05; done
nsenter --net="$OUT/a.net" "$PYTHON" -c '
import select, socket
client = socket.socket()
client.setblocking(False)
client.connect_ex(("10.77.0.3", 9000))
# Behind it on the same way, with a checksum of its own making: when this one is answered, the connection would have \
been.
echo = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
echo.settimeout(30)
echo.sendto(bytes([8, 0, 0xf7, 0xff, 0, 0, 0, 0]), ("10.77.0.3", 0))
while echo.recv(100)[20] != 0: pass
print("answered" if select.select([], [client], [], 0)[1] else "no answer")'
kill -INT $fabric
wait $fabric
"""


@needs_namespaces
def test_Fabric_VethThatLeavesChecksums_IsSaidAtTheEnd(tmp_path):
    environment = {**os.environ, "FABRIC": FABRIC, "OUT": str(tmp_path), "PYTHON": sys.executable}
    answer = run([*enclosure_words(), "bash", "-c", VETH_SCRIPT], env=environment)
    log = (tmp_path / "log").read_text()
    assert answer.returncode == 0, answer.stderr + log
    assert "no answer" in answer.stdout
    assert re.search(
        r"a \(interface fab-a\): \d+ frames from it, .* had no right checksum.*ethtool -K DEV tx off", log
    ), log


TAP_SCRIPT = """
set -eu
mkdir -p /run/netns
mount -t tmpfs test /run/netns
ip netns add a
ip netns add b
"$FABRIC" --mtu 4000 --host name=a,tap=fab-a,namespace=a --host name=b,tap=fab-b,namespace=b,mac=02:00:00:00:00:0b \\
  --edge from=a,to=b,delay=30ms > "$OUT/log" 2> "$OUT/err" &
fabric=$!
until grep -q ready "$OUT/log"; do kill -0 $fabric; sleep 0.05; done
ip -n a -br addr show fab-a; ip -n b link show fab-b
nsenter --net=/run/netns/b "$PYTHON" -c '
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 9000))
server.settimeout(30)
print("listening", flush=True)
data, sender = server.recvfrom(10000)
server.sendto(data, sender)' > "$OUT/echo" &
until grep -q listening "$OUT/echo"; do sleep 0.05; done
nsenter --net=/run/netns/a "$PYTHON" -c '
import socket, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(30)
client.sendto(bytes(3900), ("10.77.0.3", 9000))
client.settimeout(30)
begin = time.monotonic()
assert len(client.recv(10000)) == 3900
print("arrived")'
kill -INT $fabric
wait $fabric
ip -n a -br link | grep -c fab-a || true
"""


@needs_namespaces
def test_Fabric_TapsInNamespaces_CarryFramesAndGoWithIt(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root: namespaces have names in /run/netns")
    environment = {**os.environ, "FABRIC": FABRIC, "OUT": str(tmp_path), "PYTHON": sys.executable}
    answer = run([*enclosure_words(), "bash", "-c", TAP_SCRIPT], env=environment)
    assert answer.returncode == 0, answer.stdout + answer.stderr + (tmp_path / "err").read_text()
    assert "10.77.0.2/24" in answer.stdout and "mtu 4000" in answer.stdout and "02:00:00:00:00:0b" in answer.stdout
    assert answer.stdout.strip().splitlines()[-2:] == ["arrived", "0"]
    # ARP and the datagram, a frame each; the ARP answer takes the same path.
    line = next(line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("a->b"))
    assert int(line.split()[2]) >= 2 and "delay 30 ms" in line


# fabric-run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, said",
    [
        (["--ranks", 2, "--", "true"], "--transport"),
        (["--transport", "TCP", "--", "true"], "--config FILE, or --ranks"),
        (["--transport", "TCP", "--ranks", 2, "--", "/none/such"], "there is no program '/none/such'"),
        (["--transport", "TCP", "--ranks", 2, "--sysctl", "kernel.x=1", "--", "true"], "net.NAME=VALUE"),
        (["--transport", "TCP", "--ranks", 1, "--", "true"], "2 to 256"),
        (["--transport", "TCP", "--ranks", 2, "--defaults", "delay=5", "--", "true"], "delay"),
    ],
)
def test_FabricRun_BadInput_IsStatusTwo(tmp_path, words, said):
    answer = fabric_run(tmp_path / "run", *words)
    assert answer.returncode == 2
    assert said in answer.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_FabricRun_OutputExists_IsRefusedAndKept(tmp_path):
    (tmp_path / "kept").write_text("older")
    answer = fabric_run(tmp_path, "--transport", "DPDK", "--ranks", 2, "--", "true")
    assert answer.returncode in (1, 2) and answer.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@needs_namespaces
def test_FabricRun_NoRightToMakeNamespaces_SaysSo(tmp_path):
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"',
        "sh",
    ]
    answer = run(
        [
            *words,
            FABRIC_RUN,
            "--fabric",
            FABRIC,
            "--output",
            tmp_path / "run",
            "--transport",
            "TCP",
            "--ranks",
            2,
            "--",
            "true",
        ]
    )
    if "max_net_namespaces" in answer.stderr:
        pytest.skip("this limit cannot be set here")
    assert answer.returncode == 1
    assert "no right to make network namespaces" in one_line(answer)
    assert not (tmp_path / "run").exists()


@needs_namespaces
@pytest.mark.parametrize("transport", ["TCP", "DPDK", "DPDK-netdev"])
def test_FabricRun_Ranks_KnowWhoAndWhereTheyAre(tmp_path, transport):
    script = (
        'echo "$RANK $WORLD_SIZE $MASTER_ADDR $GLOO_DEVICE_TRANSPORT ${GLOO_BYPASS_LINK-} '
        '${GLOO_BYPASS_IPV4-}"; echo "threads $OMP_NUM_THREADS"; ip -br addr; '
        "getent hosts r1"
    )
    answer = fabric_run(
        tmp_path / "run", "--transport", transport, "--ranks", 3, "--env", "COLOUR=red", "--", "sh", "-c", script
    )
    # Nothing crossed the fabric: the program ignored the transport.
    assert answer.returncode == 1 and "nothing crossed the fabric" in one_line(answer)
    for rank in range(3):
        said = (tmp_path / "run" / f"rank-{rank}.log").read_text()
        kind, _, link = transport.partition("-")
        link = {"TCP": "", "DPDK": "pci", "DPDK-netdev": "netdev"}[transport]
        address = "127.0.0.1" if transport == "DPDK" else "169.254.0.1"
        assert said.startswith(f"{rank} 3 {address} {kind} {link}")
        assert f"10.77.0.{rank + 2}" in said
        assert "10.77.0.3" in said and "r1" in said
        threads = os.environ.get("OMP_NUM_THREADS", max(1, len(os.sched_getaffinity(0)) // 3))
        assert f"threads {threads}\n" in said


@needs_namespaces
def test_FabricRun_RankFails_ItsStatusAndLastWordsAreTold(tmp_path):
    answer = fabric_run(
        tmp_path / "run",
        "--transport",
        "TCP",
        "--ranks",
        2,
        "--",
        "sh",
        "-c",
        'test "$RANK" = 0 || { echo my last words; exit 7; }',
    )
    assert answer.returncode == 7
    assert "rank 1 failed first, status 7" in answer.stderr and "my last words" in answer.stderr
    assert counters(tmp_path / "run")["schema"] == "gloo-bypass/fabric/1"


@needs_namespaces
@pytest.mark.parametrize("transport", ["TCP", "DPDK"])
def test_FabricRun_RankKilledAmidTraffic_FabricGoesOnAndRunEnds(tmp_path, transport):
    script = 'if [ "$RANK" = 1 ]; then exec timeout -s KILL 1 "$0" "$@"; else exec "$0" "$@"; fi'
    interface = [] if transport == "DPDK" else ["--interface", "fab0"]
    answer = fabric_run(
        tmp_path / "run",
        "--transport",
        transport,
        "--ranks",
        2,
        "--env",
        "GLOO_BYPASS_PEER_TIMEOUT_MS=3000",
        "--",
        "sh",
        "-c",
        script,
        PERF,
        "--transports",
        "{transport}",
        *interface,
        "--timeout",
        5,
        "-b",
        "4M",
        "-e",
        "4M",
        "-n",
        100000,
        "-c",
        0,
    )
    assert answer.returncode not in (0, 2), answer.stderr
    assert "failed first" in answer.stderr
    # In order: the fabric prints its last table, which it could not if it had died with the rank.
    assert "frames under way" in (tmp_path / "run" / "fabric.log").read_text()
    assert (tmp_path / "run" / "fabric.err").read_text() == ""


@needs_namespaces
def test_FabricRun_FabricEndsEarly_IsSaid(tmp_path):
    wrapper = tmp_path / "short-lived"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *--check*) exec {FABRIC} "$@";; *) exec {FABRIC} "$@" --duration 0.2;; esac\n'
    )
    wrapper.chmod(0o755)
    answer = fabric_run(tmp_path / "run", "--fabric", wrapper, "--transport", "DPDK", "--ranks", 2, "--", "sleep", 600)
    assert answer.returncode == 1
    assert "the fabric ended before the ranks" in one_line(answer)


@needs_namespaces
def test_FabricRun_Timeout_EndsRanks(tmp_path):
    answer = fabric_run(tmp_path / "run", "--timeout", 1, "--transport", "DPDK", "--ranks", 2, "--", "sleep", 600)
    assert answer.returncode == 1
    assert "stopped after --timeout 1 s: still running: rank 0, 1" in one_line(answer)


def command_lines_of_children(process):
    lines = {}
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        try:
            lines[int(child)] = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        except OSError:
            pass  # it has ended meanwhile
    return lines


@needs_namespaces
@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("moment", ["it asks whether it may", "it is anew in the namespaces"])
def test_FabricRun_SignalWhileItStarts_EndsIt(tmp_path, moment, number, status):
    """In the namespaces it cannot handle a signal yet."""
    path = os.environ["PATH"]
    if moment == "it asks whether it may":
        script = tmp_path / "unshare"
        script.write_text("#!/bin/sh\nexec sleep 600\n")
        script.chmod(0o755)
        path, awaited = f"{tmp_path}:{path}", "600"
    else:
        awaited = "--inside"
    words = [FABRIC_RUN, "--fabric", FABRIC, "--output", tmp_path / "run", "--transport", "TCP", "--ranks", "2"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PATH": path}
    process = subprocess.Popen([*words, "--", "sleep", "600"], stderr=subprocess.PIPE, text=True, env=environment)
    try:
        wait_for(lambda: any(awaited in line for line in command_lines_of_children(process).values()), moment)
        children = list(command_lines_of_children(process))
        process.send_signal(number)
        assert (process.wait(BOUND_S), process.stderr.read()) == (status, f"fabric-run: ended by {number.name}\n")
        wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children), "the end of its children")
    finally:
        process.kill()


@needs_namespaces
@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)]
)
def test_FabricRun_SignalMidRun_LeavesNothing(tmp_path, number, status):
    output = tmp_path / "run"
    before = run(["ip", "-br", "link"]).stdout
    process = subprocess.Popen(
        [
            FABRIC_RUN,
            "--fabric",
            FABRIC,
            "--output",
            output,
            "--transport",
            "TCP",
            "--ranks",
            "2",
            "--",
            "sh",
            "-c",
            "echo started; exec sleep 600",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        wait_for(
            lambda: all(
                (output / f"rank-{rank}.log").exists() and (output / f"rank-{rank}.log").stat().st_size
                for rank in range(2)
            ),
            "ranks",
        )
        process.send_signal(number)
        assert process.wait(BOUND_S) == status
        assert number == signal.SIGKILL or "ended by" in process.stderr.read()
    finally:
        process.kill()
        process.wait(BOUND_S)
        process.stderr.close()
    wait_for(lambda: not processes_naming(str(output)), "the end of all processes")
    assert run(["ip", "-br", "link"]).stdout == before
    # A killed run may leave only an empty folder.
    assert all(not any(path.iterdir()) for path in tmp_path.glob("fabric-run-*"))
    assert number == signal.SIGKILL or not list(tmp_path.glob("fabric-run-*"))
    if number != signal.SIGKILL:
        assert counters(output)["seconds"] > 0


@needs_namespaces
def test_FabricRun_SignalMidRun_RanksAreAskedToEnd(tmp_path):
    output = tmp_path / "run"
    rank = "trap 'echo asked; exit 0' TERM; echo started; while :; do sleep 0.1; done"
    words = [FABRIC_RUN, "--fabric", FABRIC, "--output", output, "--transport", "TCP", "--ranks", "2"]
    process = subprocess.Popen([*words, "--", "sh", "-c", rank], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    logs = [output / f"rank-{rank}.log" for rank in range(2)]
    try:
        wait_for(lambda: all(log.exists() and log.stat().st_size for log in logs), "ranks")
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait(BOUND_S)
    assert all(log.read_text().endswith("asked\n") for log in logs)
