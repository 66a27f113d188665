"""What is said of a pip wheel's PyTorch before the plug-in is built for it. No wheel is at hand: stand_in_wheel.py
makes one's likeness."""
import os
import pathlib
import subprocess
import sys

import pytest
import stand_in_wheel
from ranks import LIBRARY, PYTHON

WHEEL_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "compatibility/torch/wheel"
sys.path.insert(0, str(WHEEL_FOLDER))
import examine  # noqa: E402

pytestmark = pytest.mark.without_dpdk
COMPILER = ["c++"]
GET_PAIR = "_ZN4gloo9transport7Context7getPairEi"


def examined(torch, checkout, tmp_path):
    return subprocess.run([
        PYTHON,
        str(WHEEL_FOLDER / "examine.py"), "--torch", torch, "--gloo-headers", checkout, "--folder", tmp_path / "config",
        "--", *COMPILER], capture_output=True, text=True, timeout=120)


def refused(result, *parts):
    assert result.returncode == 1, result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("wheel: "), result.stderr
    for part in parts:
        assert part in lines[0], f"'{part}' is not in: {lines[0]}"


def test_Wheel_Fits_FoldersToIncludeFromAndConfigWritten(tmp_path):
    torch, checkout = stand_in_wheel.make(tmp_path / "fits")
    result = examined(torch, checkout, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        str(p) for p in (torch / "include", torch / "include/torch/csrc/api/include", checkout, tmp_path / "config")]
    config = (tmp_path / "config/gloo/config.h").read_text()
    assert "GLOO_VERSION_MINOR 5" in config and "GLOO_HAVE_TRANSPORT_TCP 1" in config and "@" not in config.replace(
        "@@", "")


def test_Wheel_ExportsTooFew_AllAreNamed(tmp_path):
    create_tcp = next(name for name in stand_in_wheel.exports(stand_in_wheel.library("gloo")[0], "4gloo")
                      if "3tcp12CreateDevice" in name)
    torch, checkout = stand_in_wheel.make(tmp_path / "few", without=[GET_PAIR, create_tcp])
    refused(examined(torch, checkout, tmp_path), "exports too few", "gloo::transport::Context::getPair(int)",
            "gloo::transport::tcp::CreateDevice(")


def test_Wheel_WithoutGloo_IsSaid(tmp_path):
    torch, checkout = stand_in_wheel.make(tmp_path / "none", without=[stand_in_wheel.REGISTRY])
    refused(examined(torch, checkout, tmp_path), "exports too few", "GlooDeviceRegistry", "without Gloo")


def test_Wheel_GlooOfAnotherRevision_CountsAndWhereToLook(tmp_path):
    torch, checkout = stand_in_wheel.make(tmp_path / "other", resized={stand_in_wheel.CONTEXT_VTABLE: 8 * 14})
    refused(examined(torch, checkout, tmp_path), "another revision",
            "gloo::transport::Context has 12 virtual functions in the wheel", "third_party/gloo")


def test_Wheel_OldAbi_IsSaid(tmp_path):
    torch, checkout = stand_in_wheel.make(tmp_path / "old",
                                          renamed={stand_in_wheel.REGISTRY: "_ZN4c10d18GlooDeviceRegistryEv"})
    refused(examined(torch, checkout, tmp_path), "old C++ ABI", "2.7")


@pytest.mark.parametrize("spoil, parts", [
    (lambda torch, checkout:
     (torch / "lib/libc10.so").unlink(), ["-Dtorch=", "libc10.so is missing", "torch.__path__[0]"]),
    (lambda torch, checkout: (checkout / "gloo/transport/pair.h").unlink(), ["-Dgloo_headers=", "pair.h is missing"]),
    (lambda torch, checkout: (checkout / "gloo/config.h.in").unlink(), ["-Dgloo_headers=", "config.h.in"]),
    (lambda torch, checkout: (checkout / "gloo/transport/buffer.h").write_text("nonsense\n"), ["fails", "error:"]),])
def test_Wheel_Spoiled_OneLineSaysWhat(tmp_path, spoil, parts):
    torch, checkout = stand_in_wheel.make(tmp_path / "spoiled")
    spoil(torch, checkout)
    refused(examined(torch, checkout, tmp_path), *parts)


@pytest.mark.skipif(all(os.environ.get(name)
                        for name in ("PLUGIN_NO_DPDK", "PLUGIN_NO_RDMA")), reason="no transport is in this build")
def test_Probe_AgainstThePlugIn_NamesAllThatItTakesFromGlooAndC10d(tmp_path):
    """The probe is what is examined before a build; the plug-in itself must need nothing more."""
    torch, checkout = stand_in_wheel.make(tmp_path / "probe")
    include_folders = [torch / "include", *examine.write_config(checkout, tmp_path)]
    in_folder = (torch / "include" / examine.DEVICE_FACTORY.format("gloo/")).exists()
    needs = examine.compiled(WHEEL_FOLDER / "needs.cc", COMPILER, include_folders,
                             ["-DGLOO_BYPASS_TORCH_GLOO_FOLDER=1"] if in_folder else [], tmp_path)
    probed = set(examine.missing_symbols(needs, {}))
    plugin = {name for name, _, letter in examine.symbol_lines(LIBRARY, "-D", "--undefined-only") if letter == "U"}
    taken = {
        text for text in examine.readable(sorted(plugin)) if "gloo::" in text or "c10d::" in text or "c10::" in text}
    assert taken and taken <= probed, sorted(taken - probed)
