"""Ranks that capture their own ports: the analyser's figures against the ranks' own counters."""

import json
import os
import pathlib
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BUILD = os.environ["CAPTURE_BUILD"]
PERF = os.environ["CAPTURE_PERF"]
ANALYSER = os.environ["CAPTURE_ANALYSER"]


def all_reduce(folder, **settings):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GLOO_BYPASS_")}
    environment.update(GLOO_BYPASS_CAPTURE=str(folder / "rank%r.pcapng"), **settings)
    return subprocess.run(
        [PERF, "--ranks", "2", "--transports", "DPDK", "-b", "4", "-e", "1M", "-f", "512", "-n", "5", "-w", "1"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )


def test_TwoRanks_BothCaptures_HaveExactlyTheBytesOfTheCounters(tmp_path):
    run = all_reduce(tmp_path, GLOO_BYPASS_STATS=str(tmp_path / "rank%r.json"))
    assert run.returncode == 0, run.stdout
    assert "capture" not in run.stdout, "nothing was lost, so nothing is said"
    matrices = []
    for rank in ("0", "1"):
        subprocess.run(
            [ANALYSER, str(tmp_path / f"rank{rank}.pcapng"), "--json", str(tmp_path / "figures.json")],
            check=True,
            timeout=60,
            stdout=subprocess.DEVNULL,
        )
        (figures,) = json.loads((tmp_path / "figures.json").read_text())["captures"]
        counters = json.loads((tmp_path / f"rank{rank}.json").read_text())
        port = counters["port"]
        assert port["capture_lost"] == 0 and figures["faults"] == [] and figures["cut_frames"] == 0
        # The counters are from before the connections close in good order; the capture also has the frames of the
        # close.
        assert port["capture_bytes"] == counters["bytes_sent"] + counters["bytes_received"]
        assert port["capture_frames"] == port["packets_sent"] + port["packets_received"]
        assert 0 <= figures["frames"] - port["capture_frames"] <= 10
        assert 0 <= figures["bytes"] - port["capture_bytes"] <= 10 * 200
        assert figures["snap_length"] == 256
        matrices.append(
            {(one["from"], one["to"]): one["payload_bytes"] for one in figures["matrix"]["before"]["directions"]}
        )
    assert matrices[0] == matrices[1], "what one rank has sent the other one has received"
    assert len(matrices[0]) == 2


def test_FileThatExists_FailsTheFirstDeviceInOneLine(tmp_path):
    (tmp_path / "rank1.pcapng").write_text("kept")
    run = all_reduce(tmp_path)
    assert run.returncode != 0
    assert f"GLOO_BYPASS_CAPTURE='{tmp_path}/rank1.pcapng'" in run.stdout, run.stdout
    assert "there is a file of this name" in run.stdout, run.stdout
    assert (tmp_path / "rank1.pcapng").read_text() == "kept"


def test_GreatestLength_EndsTheCaptureAndNotTheRun(tmp_path):
    run = all_reduce(tmp_path, GLOO_BYPASS_CAPTURE_MAX_MIB="1", GLOO_BYPASS_CAPTURE_SNAPLEN="65535")
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("has ended early") <= 2 and "its frames" not in run.stdout
    for rank in ("0", "1"):
        path = pathlib.Path(tmp_path / f"rank{rank}.pcapng")
        assert 900_000 < path.stat().st_size <= 1 << 20
        assert f"{path} ended early, it has the greatest length allowed, 1048576 bytes" in run.stdout, run.stdout
        subprocess.run([ANALYSER, str(path)], check=True, timeout=60, stdout=subprocess.DEVNULL)


def capture_cost(*arguments):
    return subprocess.run(
        [
            SOURCE / "scripts" / "capture-cost",
            "--place",
            "own",
            "--rounds",
            "2",
            "--bytes",
            "65536",
            "--iterations",
            "4",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )


def test_CaptureCost_OwnPort_CountsFramesAndLeavesNothing(tmp_path):
    report = tmp_path / "cost.json"
    folder = tmp_path / "captures"
    folder.mkdir()
    run = capture_cost("--build", BUILD, "--folder", str(folder), "--json", str(report))
    assert run.returncode == 0, run.stdout
    (place,) = json.loads(report.read_text())["places"]
    assert place["place"] == "own" and place["rounds"] == 2 and place["lost"] == 0
    # Two ranks, two runs, 6 all-reduces of 64 KiB: each rank sends and receives at least its size, in frames of at most
    # 60 KiB.
    assert place["frames"] >= 2 * 2 * 6 * 4
    assert place["file_bytes"] > place["frames"] * 80
    assert place["with_gb_s"] > 0 and place["without_gb_s"] > 0
    assert list(folder.iterdir()) == []


def test_CaptureCost_NothingBuilt_SaysSo(tmp_path):
    run = capture_cost("--build", str(tmp_path))
    assert run.returncode == 1
    said = f"capture-cost: cannot start {tmp_path}/tools/all_reduce_perf: No such file or directory: build it first"
    assert said in run.stdout
