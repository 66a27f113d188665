"""Tensors of a GPU over our collectives: with a device that is none (programs/on_device.py), and on a GPU where there
is one (programs/cuda_collectives.py)."""

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import PACKAGE_PATH
from ranks import HANG_SECONDS, PYTHON, clean_environment
from test_door import new_enough, ranks_of  # noqa: F401  the fixture


@pytest.mark.parametrize(
    "cases, size",
    [
        ("every_kind messages uneven_and_strided order_is_kept kernels_come_first futures", 3),
        ("destroyed_with_work_under_way ranks_disagree", 2),
        ("ranks_disagree_alike_at_first", 2),
        ("ctrl_c", 2),
        ("ends_with_work_under_way", 2),
    ],
)
def test_Device_OfTheseCases_BehavesAsTheySay(new_enough, cases, size):  # noqa: F811
    with ranks_of("on_device.py", size, *cases.split()) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "end") for rank in range(size)] == ["ok"] * size


def test_ShortWay_OfAGpusTensors_CopiesByTheDriver(new_enough, installed_torch, tmp_path):  # noqa: F811
    if installed_torch < (2, 11):
        pytest.skip("PyTorch before 2.11 has no table of DLPack's functions")
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    library, source = tmp_path / "libcuda.so.1", Path(__file__).with_name("fake_libcuda.cc")
    words = ["c++", "-std=c++20", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source]
    subprocess.run(words, check=True, timeout=HANG_SECONDS)
    with ranks_of("on_device.py", 2, "short_way", FAKE_LIBCUDA=str(library)) as ranks:
        ranks.succeed()
        assert [ranks.value(rank, "end") for rank in range(2)] == ["ok"] * 2


def test_Device_RankIsKilled_OthersFailAndNameIt(new_enough):  # noqa: F811
    with ranks_of("on_device.py", 2, "a_rank_dies") as ranks:
        for rank in range(2):
            ranks.wait_for_line(rank, "ready")
        ranks.signal(1, 9)
        assert ranks.wait([0]) == [0], ranks.output(0)
        assert "rank 1" in ranks.value(0, "error")


@pytest.fixture(scope="module")
def gpu(new_enough):  # noqa: F811
    """Skips without one."""
    program = "import torch; print(torch.cuda.is_available())"
    environment = {**clean_environment(), "PYTHONPATH": PACKAGE_PATH, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    result = subprocess.run(
        [PYTHON, "-c", program], env=environment, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    if result.stdout.strip() != "True":
        pytest.skip("torch.cuda.is_available() is False: no GPU, or no PyTorch for it")


@pytest.mark.parametrize("backend", ["bypass", "cpu:bypass,cuda:nccl"])
@pytest.mark.parametrize("case", ["every_kind", "short_way", "streams", "order", "futures", "ddp", "memory"])
def test_Gpu_OfThisCase_BehavesAsItSays(gpu, case, backend):
    with ranks_of("cuda_collectives.py", 2, backend, case) as ranks:
        ranks.succeed()
        ends = {ranks.value(rank, "end") for rank in range(2)}
        assert len(ends) == 1 and ends <= {"ok", "skipped"}, ends
        if ends == {"skipped"}:
            pytest.skip(ranks.value(0, "why"))
