"""A stored run's record of its machine: copy and addition rates, and whether it was quiet."""

import subprocess
import sys

import pytest
from gloo_bypass_tools.report import machine, memory_rates


def sample_of(copies, adds):
    return {"copy_GBps": copies, "add_GBps": adds}


def test_Rates_OfThisMachine_AreMeasuredWithOneThreadAndAll():
    try:
        one = memory_rates.measure()
    except memory_rates.RatesError as error:
        pytest.skip(str(error))  # a machine without python3-torch
    assert set(one) == {"copy_GBps", "add_GBps"} and memory_rates.checked("run", [one]) == (one,)
    assert all("1" in rates and min(rates.values()) > 0.01 for rates in one.values())


@pytest.mark.parametrize("python, said", [("/nosuch/python", "No such file"), ("/bin/false", "/bin/false: status 1")])
def test_Rates_PythonThatHasNone_SaysWhy(python, said):
    samples = memory_rates.RateSamples(python)
    samples.take()
    samples.take()
    assert samples == [] and said in samples.why_not


def test_Rates_PythonWithoutPyTorch_SaysWhy(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(memory_rates.RatesError, match="No module named 'torch'"):
        memory_rates.measure(str(python))


def test_Rates_InWords_NameTheirRange():
    said = memory_rates.in_words(
        [
            sample_of({"1": 5.84, "2": 9.0}, {"1": 6.0, "2": 8.0}),
            sample_of({"1": 17.1, "2": 9.04}, {"1": 6.0, "2": 8.0}),
        ]
    )
    assert said == (
        "copies 64 MiB at 5.8 to 17 GB/s with 1 thread, 9 GB/s with 2 threads; adds at 6 GB/s with 1 "
        "thread, 8 GB/s with 2 threads"
    )
    assert memory_rates.in_words([]) == ""


def test_BusySeconds_OfProcStat_AreThoseOfPrograms():
    ticks = machine.TICKS_A_SECOND
    stat = f"cpu  {3 * ticks} {2 * ticks} {ticks} 900 5 7 8 0 0 0\ncpu0 1 1 1 1\nintr 5\n"
    assert machine.busy_seconds(stat) == 6.0
    assert machine.busy_seconds("") is None and machine.busy_seconds("intr 5\n") is None


@pytest.mark.parametrize("others, noisy", [(0.0, False), (0.4, True), (None, False)])
def test_OtherWork_OwnTime_DoesNotCount(monkeypatch, others, noisy):
    moments = iter([(100.0, 50.0, 10.0), (110.0, None if others is None else 50.0 + 10 * others + 8.0, 18.0)])
    monkeypatch.setattr(machine.OtherWork, "now", staticmethod(lambda: next(moments)))
    assert machine.OtherWork().cores() == others
    said = machine.quiet_in_words(0.1, others)
    assert said.startswith("load 0.10 before") and ("not quiet" in said) == noisy


def test_OtherWork_OfAChildThatHasEnded_IsOwn():
    before = machine.OtherWork.now()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"], check=True, timeout=60)
    after = machine.OtherWork.now()
    assert after[2] - before[2] > 0.15 and after[1] - before[1] >= after[2] - before[2] - 0.05


@pytest.mark.parametrize("load, noisy", [(0.5, False), (0.51, True)])
def test_Quiet_LoadBefore_Decides(load, noisy):
    assert ("not quiet" in machine.quiet_in_words(load)) == noisy
