"""`fabric --capture` with real ranks and on real disks."""

import json
import os
import signal
import subprocess

import pytest

from fabric_programs import FABRIC, LIMIT_S, PERF, counters, fabric, fabric_run, needs_namespaces, one_line, run

ANALYSER = os.environ.get("FABRIC_ANALYSER", "")
needs_analyser = pytest.mark.skipif(not ANALYSER, reason="capture_analyser was not built: libpcap-dev not found")


def analysed(capture, folder, *words):
    answer = run([ANALYSER, capture, "--json", folder / "analysed.json", *words])
    assert answer.returncode == 0, answer.stderr
    return json.loads((folder / "analysed.json").read_text())["captures"][0]


@needs_namespaces
@needs_analyser
@pytest.mark.parametrize("transport", ("TCP", "DPDK"))
def test_Capture_AllReduce_HasEveryFrameOfEveryHost(tmp_path, transport):
    output = tmp_path / "run"
    answer = fabric_run(
        output,
        "--transport",
        transport,
        "--ranks",
        3,
        "--defaults",
        "delay=1ms",
        "--capture",
        "--",
        PERF,
        "--transports",
        "{transport}",
        *([] if transport == "DPDK" else ["--interface", "fab0"]),
        "-b",
        "256K",
        "-e",
        "256K",
        "-n",
        2,
        "-w",
        0,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    counted = counters(output)
    assert counted["capture"]["lost"] == 0 and counted["capture"]["failure"] == ""
    assert counted["capture"]["frames"] == sum(host["frames_in"] for host in counted["hosts"]) > 0
    report = analysed(output / "capture.pcapng", tmp_path)
    assert report["faults"] == [] and report["snap_length"] == 128
    assert report["frames"] == counted["capture"]["frames"]
    assert report["bytes"] == sum(host["bytes_in"] for host in counted["hosts"])
    # The ring's volume must be there: 2 (N-1) S for each all-reduce, with or without warm-up and check.
    payload = report["bytes_by_kind"]["tcp_payload" if transport == "TCP" else "bypass_payload"]
    assert payload >= 2 * 2 * 2 * 256 * 1024
    assert report["bytes_by_kind"]["not_dissected"] == 0


def start(tmp_path, *words, file_limit_kib=None):
    limit = [] if file_limit_kib is None else ["bash", "-c", f'ulimit -f {file_limit_kib}; exec "$@"', "bash"]
    process = subprocess.Popen(
        [
            *limit,
            FABRIC,
            "--ranks",
            "2",
            *[word for i in (0, 1) for word in ("--host", f"name=r{i},memif={tmp_path}/{i}.sock")],
            *[str(word) for word in words],
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    assert line.startswith("fabric: ready"), line + process.stderr.read()
    return process


@needs_analyser
@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_Capture_Signal_FileIsWhole(tmp_path, number):
    process = start(tmp_path, "--capture", tmp_path / "a.pcapng")
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, err) == (0, ""), out
    assert analysed(tmp_path / "a.pcapng", tmp_path)["faults"] == []


def test_Capture_DiskIsFullAtTheStart_IsOneLineAndNoFile(tmp_path):
    answer = run(
        [
            "bash",
            "-c",
            'ulimit -f 0; exec "$@"',
            "bash",
            FABRIC,
            "--ranks",
            2,
            "--host",
            f"name=r0,memif={tmp_path}/0.sock",
            "--host",
            f"name=r1,memif={tmp_path}/1.sock",
            "--capture",
            tmp_path / "a.pcapng",
        ]
    )
    assert answer.returncode == 1 and "a.pcapng" in one_line(answer)
    assert not list(tmp_path.iterdir())


@needs_analyser
def test_Capture_DiskThatFills_EndsTheCaptureAndNotTheFabric(tmp_path):
    """The limit leaves room for the head and some markers, which arrive like frames."""
    # An address for this process alone: another program may have the port at 127.0.0.1.
    address = f"127.9.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
    process = start(
        tmp_path,
        "--capture",
        tmp_path / "a.pcapng",
        "--markers",
        f"{address}:40999",
        "--interval",
        "0.1",
        file_limit_kib=8,
    )
    sender = (
        "import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"for i in range(5000): s.sendto(b'gloo-bypass step 1 first', ('{address}', 40999)); i % 50 or "
        "__import__('time').sleep(0.001)"
    )
    assert run(["/usr/bin/python3", "-c", sender]).returncode == 0
    said = process.stderr.readline()
    assert "has ended early" in said and "File too large" in said, said
    assert process.poll() is None  # it goes on
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1 and "can be read" in err, err
    assert "are not in it" in out
    assert analysed(tmp_path / "a.pcapng", tmp_path, "--marker-port", "40999")["faults"] == []


@pytest.mark.parametrize(
    "words, status, said",
    [
        (["--snap", "100"], 2, "--capture"),
        (["--markers", "127.0.0.1"], 2, "--capture"),
        (["--capture", "/none/such/folder/a", "--snap", "-1"], 2, "--snap"),
        (["--capture", "/none/such/folder/a"], 1, "/none/such/folder/a"),
        (["--capture", "{folder}/a", "--markers", "there"], 1, "--markers there"),
        (["--capture", "{folder}/kept"], 1, "there is a file of this name"),
        (["--capture", "{folder}/a", "--stats", "/none/such/s"], 1, "--stats"),
    ],
)
def test_Capture_BadInput_IsOneLine(tmp_path, words, status, said):
    (tmp_path / "kept").write_text("kept")
    hosts = [word for i in (0, 1) for word in ("--host", f"name=r{i},memif={tmp_path}/{i}.sock")]
    answer = fabric("--ranks", 2, *hosts, *[word.replace("{folder}", str(tmp_path)) for word in words])
    assert answer.returncode == status and said in one_line(answer), answer.stdout + answer.stderr
    assert (tmp_path / "kept").read_text() == "kept" and len(list(tmp_path.iterdir())) == 1
