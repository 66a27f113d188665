"""Comparisons with RDMA as a user runs them: on a machine that has a device, in the guest, and where neither can be
had. Programs, ib_write_bw and the guest are doubles.
"""

import json
import os
import signal

import pytest
from gloo_bypass_tools.report import command, guest, rdma_ports
from program_doubles import make_build, make_program

QUICK = ["--steps", "3", "--repeats", "1", "--sizes", "4:4M:32", "--idle", "1"]
PORT = rdma_ports.Port("rxe0", 1, 1, "eth0", True)


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Runs a command in this process; its children are real. Returns its output and exit status."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def of(function, *arguments, ports=(), faults=None):
        monkeypatch.setattr(rdma_ports, "active", lambda: list(ports))
        build = make_build(tmp_path / "build", faults)
        make_program(tmp_path / "bin" / "ib_write_bw", faults)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        program = make_program(tmp_path / "rdma-guest", faults)
        status = function(
            [
                *QUICK,
                "--build",
                str(build),
                "--guest-program",
                str(program),
                "--output",
                str(tmp_path / "out"),
                *arguments,
            ]
        )
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    yield of
    for number, handler in handlers.items():
        signal.signal(number, handler)


def record_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_compare_with_a_device_puts_rdma_beside_ib_write_bw_and_gloos_own(tmp_path, run):
    status, out, err = run(command.compare, ports=[PORT])
    assert status == 0, out + err
    record = record_of(tmp_path / "out")
    assert record["plan"]["transports"] == ["TCP", "DPDK", "RDMA"] and record["place"]["kind"] == "host"
    assert [one["repeat"] for one in record["beside_write"]] == [1, 2] and len(record["bound"]) == 3
    names = [stage["name"] for stage in record["stages"]]
    at = names.index("ib_write_bw, 0")
    assert names[at : at + 3] == ["ib_write_bw, 0", "all-reduce beside ib_write_bw, 1", "ib_write_bw, 1"]
    # The doubles: 4 MiB in 4,244 us over anything, 0.1 GB/s of ib_write_bw.
    assert "9.88 x (0.988 of 0.1 GB/s)" in out and "ibverbs" in out
    page = (tmp_path / "out" / "index.html").read_text()
    assert "SoftRoCE" in page and "ib_write_bw" in page and "rxe0 port 1 on eth0, in software" in page


def test_compare_ib_write_bw_failing_names_it_and_reports_the_rest(tmp_path, run):
    status, out, _ = run(command.compare, ports=[PORT], faults={"ib_write_bw": "fail"})
    assert status == command.FAILED
    assert "ib_write_bw, 0 exited with status 1" in out and "Unable to find the Infiniband/RoCE device" in out
    record = record_of(tmp_path / "out")
    assert record["beside_write"] == [] and len(record["bound"]) == 3


def test_compare_program_without_gloos_ibverbs_leaves_it_out_and_says_so(tmp_path, run):
    status, out, _ = run(command.compare, "--no-training", ports=[PORT], faults={"GLOO_IBVERBS": "absent"})
    assert status == 0
    assert "Gloo's own ibverbs transport is left out" in out
    assert record_of(tmp_path / "out")["bound"] == []


def test_compare_without_a_device_measures_everything_in_the_guest(tmp_path, run):
    status, out, err = run(command.compare, "--transports", "TCP,DPDK,RDMA")
    assert status == 0, out + err
    assert "in a guest under software emulation" in out and "identical results" in out
    record = record_of(tmp_path / "out")
    assert record["state"] == "complete" and record["place"]["kind"] == "guest" and record["plan"]["emulated"]
    assert [one["transport"] for one in record["training"]] == ["TCP", "DPDK", "RDMA"]
    assert record["stages"][0]["name"] == "measure in the guest" and record["host"]["cores"]
    assert [one["what"] for one in record["left_out"]] == ["ib_write_bw"]
    assert "compare these figures with each other" in (tmp_path / "out" / "index.html").read_text()


def test_compare_failure_within_the_guest_is_said_and_the_rest_reported(tmp_path, run):
    status, out, _ = run(command.compare, "--transports", "TCP,RDMA", faults={"RDMA": "fail"})
    assert status == command.FAILED
    assert "in the guest: train over RDMA, repeat 1 exited with status 1" in out
    record = record_of(tmp_path / "out")
    assert [one["stage"] for one in record["failures"]] == ["train over RDMA, repeat 1"] and record["all_reduce"]


def test_compare_guest_that_does_not_boot_is_one_failure(tmp_path, run):
    status, out, _ = run(command.compare, "--transports", "TCP,RDMA", faults={"rdma-guest": "does not boot"})
    assert status == command.FAILED
    assert "the guest did not come up within 120 s" in out and "nothing was measured" in out
    assert record_of(tmp_path / "out")["state"] == "failed"


def test_compare_no_device_and_no_guest_says_what_is_missing(tmp_path, run):
    status, _, err = run(command.compare, "--transports", "TCP,RDMA", faults={"rdma-guest": "missing"})
    assert status == command.BAD_INPUT and err.count("\n") == 1
    assert "no RDMA device" in err and "missing: qemu-system-x86_64" in err
    assert not (tmp_path / "out").exists()


def test_quickstart_without_a_device_adds_the_guest_and_mixes_no_figures(tmp_path, run):
    status, out, err = run(command.quickstart, "--no-install", "--no-build")
    assert status == 0, out + err
    assert "compare its figures only with each other" in out
    host, inner = record_of(tmp_path / "out"), record_of(tmp_path / "out" / "guest")
    assert host["plan"]["transports"] == ["TCP", "DPDK"] and inner["plan"]["transports"] == ["TCP", "DPDK", "RDMA"]
    assert inner["plan"]["model"] == "tiny" and inner["place"]["kind"] == "guest"
    summary = (tmp_path / "out" / "summary.csv").read_text()
    assert "RDMA" not in summary and "RDMA" in (tmp_path / "out" / "guest" / "summary.csv").read_text()
    page = (tmp_path / "out" / "index.html").read_text()
    assert "RDMA: TCP, DPDK and RDMA in a guest" in page and "much slower machine" in page
    assert (tmp_path / "out" / "plots" / "guest_latency.png").exists()


def test_quickstart_without_a_guest_says_why_and_succeeds(tmp_path, run):
    status, out, _ = run(
        command.quickstart, "--no-install", "--no-build", "--no-training", faults={"rdma-guest": "missing"}
    )
    assert status == 0
    assert "RDMA: not measured" in out and "missing: qemu-system-x86_64" in out
    assert "missing: qemu-system-x86_64" in (tmp_path / "out" / "index.html").read_text()


def test_quickstart_with_a_device_that_is_not_asked_for_needs_no_guest(tmp_path, run):
    words = ("--no-install", "--no-build", "--no-training", "--transports", "TCP,DPDK")
    status, out, _ = run(command.quickstart, *words, ports=[PORT])
    assert status == 0 and "no RDMA device" not in out and not (tmp_path / "out" / "guest").exists()


def test_compare_rdma_first_leaves_out_programs_whose_ratios_would_be_to_another(run):
    _, out, _ = run(command.compare, "--no-training", "--transports", "RDMA,DPDK,TCP", ports=[PORT])
    assert "ratios are to RDMA, over which these programs are not run" in out


def test_quickstart_with_a_device_needs_no_guest(tmp_path, run):
    status, _, _ = run(command.quickstart, "--no-install", "--no-build", "--no-training", ports=[PORT])
    assert status == 0
    assert (
        record_of(tmp_path / "out")["plan"]["transports"] == ["TCP", "DPDK", "RDMA"]
        and not (tmp_path / "out" / "guest").exists()
    )


def test_arguments_of_a_plan_come_back_as_the_same_plan(tmp_path):
    from dataclasses import replace

    from gloo_bypass_tools.report.comparison import Plan
    from gloo_bypass_tools.report.results import ResultsFolder

    plan = Plan(
        transports=("TCP", "RDMA"),
        ranks=3,
        model="tiny",
        batch_size=2,
        seq_len=16,
        steps=4,
        warm_up=2,
        repeats=2,
        seed=7,
        sizes=(4, 4096, 4),
        idle_s=1.5,
        minutes=2.0,
        benchmark=True,
        training=False,
        trainer_arguments=("--bucket-cap-mb", "1"),
        emulated=True,
    )
    words = guest.arguments_of(plan, tmp_path, ResultsFolder(tmp_path))
    parsed = command.compare_parser().parse_args(words)
    assert command.plan_of(parsed, parsed.emulated) == plan
    assert (
        command.plan_of(
            command.compare_parser().parse_args(
                guest.arguments_of(replace(plan, training=True, benchmark=False), tmp_path, ResultsFolder(tmp_path))
            )
        ).benchmark
        is False
    )
