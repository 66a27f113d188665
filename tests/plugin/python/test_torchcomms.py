"""A program that enables torchcomms together with one of our transports is refused: it would silently use TCP."""

import pytest
from conftest import PROGRAMS, environment_for, run

LINE = (
    "gloo_bypass: TORCH_DISTRIBUTED_USE_TORCHCOMMS (torch.distributed.config.use_torchcomms) sends every process "
    "group through torchcomms' own TCP, and GLOO_DEVICE_TRANSPORT=UDP would do nothing: unset one of them"
)
FIRST_WITH_TORCHCOMMS = (2, 11)


@pytest.fixture(autouse=True)
def _(installed_torch):
    if installed_torch < FIRST_WITH_TORCHCOMMS:
        pytest.skip(f"PyTorch {installed_torch[0]}.{installed_torch[1]} knows no torchcomms; 2.11 is the first to")


def environment(folder, **more):
    return environment_for(
        folder, GLOO_DEVICE_TRANSPORT="UDP", TORCH_DEVICE_BACKEND_AUTOLOAD="0", GLOO_BYPASS_MEMIF_DIRECTORY="", **more
    )


@pytest.mark.parametrize("value", ["1", "true", "yes", "false"])  # PyTorch takes any text but 0 for yes
def test_Import_TorchcommsIsAskedFor_OneLineRefuses(tmp_path, value):
    result = run(["-c", "import gloo_bypass"], environment(tmp_path, TORCH_DISTRIBUTED_USE_TORCHCOMMS=value), status=1)
    assert result.stderr.splitlines()[-1] == f"ImportError: {LINE}"


@pytest.mark.parametrize(
    "more",
    [
        {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "0"},
        {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": ""},
        {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1", "GLOO_DEVICE_TRANSPORT": "TCP"},
    ],
)
def test_Import_NothingContradicts_Works(tmp_path, more):
    result = run([PROGRAMS / "torchcomms_later.py", "never"], {**environment(tmp_path), **more})
    assert result.stdout == "group\n" and "torchcomms" not in result.stderr


@pytest.mark.parametrize("how, more", [("config", {}), ("never", {"TORCH_DISTRIBUTED_USE_TORCHCOMMS": "1"})])
def test_Init_TorchcommsIsAskedFor_OneLineRefuses(tmp_path, how, more):
    """Also where the import's error was caught."""
    result = run([PROGRAMS / "torchcomms_later.py", how], {**environment(tmp_path), **more}, status=1)
    assert result.stderr.splitlines()[-1] == f"RuntimeError: {LINE}"
    assert result.stdout == (f"import: {LINE}\n" if more else "")


def test_Init_VariableIsSetAfterTheImport_PyTorchDoesNotReadItAndOursIsUsed(tmp_path):
    result = run([PROGRAMS / "torchcomms_later.py", "variable"], environment(tmp_path, GLOO_BYPASS_STATS="stderr"))
    assert result.stdout == "group\n" and "UDP socket" in result.stderr


def test_ImportTorch_TorchcommsIsAskedFor_WarnsAndInitRefuses(tmp_path):
    """PyTorch imports the package itself, and turns an error into a warning."""
    variables = {**environment(tmp_path, TORCH_DISTRIBUTED_USE_TORCHCOMMS="1"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    result = run(
        [
            "-c",
            "import torch.distributed as d; d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)",
        ],
        variables,
        status=1,
    )
    assert f"RuntimeWarning: GLOO_DEVICE_TRANSPORT=UDP will not work: {LINE}" in result.stderr
    assert result.stderr.splitlines()[-1] == f"RuntimeError: {LINE}"
