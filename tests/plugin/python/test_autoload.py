"""The function that PyTorch calls at the end of `import torch` never breaks it."""

import os
import pathlib
import sys
import textwrap

import pytest
from conftest import ENTRY_POINT, PACKAGE_PATH, environment_for, metadata_in, run
from ranks import Ranks


def pretend_package(folder, body):
    """A package gloo_bypass with this body, beside the real module that PyTorch calls."""
    (folder / "gloo_bypass").mkdir()
    (folder / "gloo_bypass" / "__init__.py").write_text(textwrap.dedent(body))
    (folder / "gloo_bypass_autoload.py").write_text(
        (pathlib.Path(PACKAGE_PATH) / "gloo_bypass_autoload.py").read_text()
    )
    return folder


def call_autoload(folder, transport, *options):
    """Without PyTorch, which takes seconds."""
    environment = environment_for(folder, PYTHONPATH=folder)
    if transport is not None:
        environment["GLOO_DEVICE_TRANSPORT"] = transport
    return run(
        [
            *options,
            "-c",
            "import gloo_bypass_autoload as a; a.autoload(); import sys; print('gloo_bypass' in sys.modules)",
        ],
        environment,
        python=sys.executable,
    )


@pytest.mark.parametrize("transport", [None, "", "TCP", "UV"])
def test_Autoload_TransportIsNotOurs_LoadsAndSaysNothing(tmp_path, transport):
    result = call_autoload(pretend_package(tmp_path, "raise RuntimeError('loaded')"), transport)
    assert (result.stdout, result.stderr) == ("False\n", "")


@pytest.mark.parametrize("transport", ["DPDK", "UDP", "RDMA", "dpdk"])
def test_Autoload_TransportIsOurs_LoadsThePackage(tmp_path, transport):
    result = call_autoload(pretend_package(tmp_path, ""), transport)
    assert (result.stdout, result.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    "body, said",
    [
        ("raise ImportError('built for PyTorch 0.4, this is 9.9')", "built for PyTorch 0.4, this is 9.9"),
        ("raise OSError('libfmt.so.9: cannot open shared object file')", "libfmt.so.9"),
        ("import no_such_module", "no_such_module"),
        ("this is no Python", "invalid syntax"),
    ],
)
def test_Autoload_PackageIsBroken_OneWarningSaysWhy(tmp_path, body, said):
    pretend_package(tmp_path, body)
    for options in ([], ["-W", "error"]):
        result = call_autoload(tmp_path, "DPDK", *options)
        assert "False" in result.stdout
        assert "GLOO_DEVICE_TRANSPORT=DPDK will not work" in result.stderr and said in result.stderr
        assert "Traceback" not in result.stderr


def test_Autoload_NoPackageAtAll_OnlyWarns(tmp_path):
    (tmp_path / "gloo_bypass_autoload.py").write_text(
        (pathlib.Path(PACKAGE_PATH) / "gloo_bypass_autoload.py").read_text()
    )
    assert "gloo_bypass" in call_autoload(tmp_path, "RDMA").stderr


def test_EntryPoint_OfTheWheelAndOfMesonInstall_AreTheSame():
    root = pathlib.Path(__file__).resolve().parents[3]
    assert (root / "plugin/python/gloo_bypass.dist-info/entry_points.txt.in").read_text() == ENTRY_POINT
    project = (root / "pyproject.toml").read_text()
    assert '[project.entry-points."torch.backends"]\ngloo_bypass = "gloo_bypass_autoload:autoload"\n' in project


def test_EntryPoint_OfThePackage_IsFoundWithoutInstallingIt(tmp_path):
    program = "import importlib.metadata as m; print(*m.distribution('gloo-bypass').entry_points)"
    assert (
        "value='gloo_bypass_autoload:autoload', group='torch.backends'"
        in run(["-c", program], environment_for(tmp_path)).stdout
    )


def needs_autoload(installed_torch):
    if installed_torch < (2, 5):
        pytest.skip(
            f"PyTorch {installed_torch[0]}.{installed_torch[1]} loads no backends by itself; 2.5 is the first that does"
        )


def test_ImportTorch_PackageIsBroken_WorksWithOneWarning(tmp_path, installed_torch):
    needs_autoload(installed_torch)
    metadata_in(pretend_package(tmp_path, "raise RuntimeError('broken on purpose')"))
    program = "import torch; print(torch.ones(2).sum().item())"
    quiet = run(["-c", program], environment_for(tmp_path, PYTHONPATH=tmp_path))
    assert quiet.stdout == "2.0\n" and "broken on purpose" not in quiet.stderr
    warned = run(["-c", program], environment_for(tmp_path, PYTHONPATH=tmp_path, GLOO_DEVICE_TRANSPORT="DPDK"))
    assert warned.stdout == "2.0\n" and warned.stderr.count("broken on purpose") == 1


@pytest.mark.parametrize("options", [[], ["-W", "error"]])
def test_ImportTorch_NothingIsSet_SaysNothing(tmp_path, installed_torch, options):
    needs_autoload(installed_torch)
    program = "import torch; print(torch.distributed.is_backend_available('bypass'))"
    result = run([*options, "-c", program], environment_for(tmp_path))
    assert (result.stdout, result.stderr) == ("True\n", "")


def test_ImportTorch_NothingIsSet_GroupOfGloosForOneDeviceHasTheSameName(tmp_path, installed_torch):
    needs_autoload(installed_torch)
    program = (
        "import torch.distributed as d\n"
        "d.init_process_group('cpu:gloo', store=d.HashStore(), rank=0, world_size=1)\n"
        "print(d.group.WORLD.name())\n"
        "d.destroy_process_group()"
    )
    environment = environment_for(tmp_path)
    result, without = (
        run(["-c", program], environment | {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}) for autoload in "10"
    )
    assert (result.stdout, result.stderr) == (without.stdout, without.stderr)


@pytest.mark.parametrize("backend", ["'gloo'", "'cpu:gloo'", ""])
def test_ImportTorch_EncryptionIsWantedAndTheTransportIsGloos_NoGroupIsMade(tmp_path, installed_torch, backend):
    needs_autoload(installed_torch)
    program = (
        "import os, torch.distributed as d\n"
        "for wanted in 'off', 'encrypt':\n"
        "    os.environ['GLOO_BYPASS_SECURITY'] = wanted\n"
        f"    d.init_process_group({backend}{', ' if backend else ''}store=d.HashStore(), rank=0, world_size=1)\n"
        "    d.destroy_process_group()\n"
        "    print(wanted)"
    )
    result = run(["-c", program], environment_for(tmp_path), status=1)
    assert result.stdout == "off\n"
    last = result.stderr.splitlines()[-1]
    assert "RuntimeError: gloo_bypass: GLOO_BYPASS_SECURITY='encrypt' encrypts nothing" in last, last


@pytest.mark.skipif(bool(os.environ.get("PLUGIN_NO_DPDK")), reason="the DPDK transport is not in this build")
def test_ImportTorch_TransportIsDpdk_ScriptNeedsNoImport(installed_torch):
    needs_autoload(installed_torch)
    with Ranks("add.py", 2, load="", environment={"PYTHONPATH": PACKAGE_PATH}) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "sum") for rank in range(2)] == ["3", "3"]
