"""The wheel's contents, and the symbols and dependencies of its libraries."""

import pathlib
import re
import subprocess
import zipfile

import pytest
from hardening import binaries_in, weaknesses
from ranks import PACKAGE_MODULES

ROOT = pathlib.Path(__file__).resolve().parents[3]
MOST_BYTES = 30_000_000
ADAPTERS = {"libgloo_bypass_gloo_2023.so", "libgloo_bypass_gloo_2025.so"}
TRANSPORTS = "libgloo_bypass_transports.so"
# Present on every Linux: glibc's and GCC's libraries.
SYSTEM = re.compile(r"(lib(c|m|dl|pthread|rt|stdc\+\+|gcc_s)\.so\.\d+|ld-linux-x86-64\.so\.2)")
# Shared libraries in the wheel: libnuma must be replaceable (LGPL), and Debian has no static ISA-L.
BESIDE = re.compile(r"lib(numa|isal)-\w+\.so[.\d]*")


def output_of(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=True).stdout


def needed(library):
    return re.findall(r"NEEDED\s+(\S+)", output_of("objdump", "-p", library))


def symbols(library, *options):
    """As C++ writes them: what follows the letter of each line."""
    return [
        re.split(r"(?:^|\s)[A-Za-z] ", line, maxsplit=1)[1]
        for line in output_of("nm", "-D", "-C", *options, library).splitlines()
    ]


def test_Name_AnyPythonAndLinuxFromBookworm(wheel):
    assert re.fullmatch(r"gloo_bypass-[\d.]+-py3-none-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert int(re.search(r"manylinux_2_(\d+)", wheel.name).group(1)) <= 34  # as the documents say


def test_Size_IsBounded(wheel):
    assert wheel.stat().st_size < MOST_BYTES


def test_Files_AreThePackageItsLibrariesAndTheirLicences(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name and not name.endswith("/")}
    assert PACKAGE_MODULES | {f"gloo_bypass/{name}" for name in [*ADAPTERS, TRANSPORTS]} <= names
    beside = {name for name in names if name.startswith("gloo_bypass.libs/")}
    assert len(beside) == 2 and all(BESIDE.fullmatch(name.split("/")[1]) for name in beside), beside
    licences = {name for name in names if name.startswith("gloo_bypass/licences/")}
    assert {name.split("/")[-1] for name in licences} == {
        "dpdk",
        "fmt",
        "intel-ipsec-mb",
        "isa-l",
        "libbsd",
        "libmd",
        "libnuma",
        "nlohmann-json",
        "openssl",
        "rdma-core",
        "LGPL-2.1",
    }
    assert names == PACKAGE_MODULES | {f"gloo_bypass/{name}" for name in [*ADAPTERS, TRANSPORTS]} | beside | licences


def test_Metadata_NamesTheEntryPointAndNoPyTorch(wheel):
    archive = zipfile.ZipFile(wheel)
    text = {name.split("/")[-1]: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    assert text["entry_points.txt"].split() == ["[torch.backends]", "gloo_bypass", "=", "gloo_bypass_autoload:autoload"]
    assert "Requires-Dist" not in text["METADATA"]  # pip would bring another PyTorch than the user's
    assert "Requires-Python: >=3.9" in text["METADATA"]


def test_Sources_UseNoFunctionThatTwoLibrariesHave(package):
    """OpenSSL, linked in, and ISA-L, beside it, both have a gf_mul: the linker takes the one that is linked in."""
    library = package / "gloo_bypass" / TRANSPORTS
    linked_in = set(re.findall(r"(?m)^\w+ [TtDdBbRrWw] (\w+)$", output_of("nm", "--defined-only", library)))
    beside = set()
    for other in (package / "gloo_bypass.libs").iterdir():
        beside |= set(re.findall(r" [TDBRW] (\w+)", output_of("nm", "-D", "--defined-only", other)))
    twice = linked_in & beside
    assert "gf_mul" in twice  # else this test sees nothing
    sources = [one for room in ("transport", "collectives") for one in (ROOT / room).rglob("*.cc")]
    calls = re.compile(rf"\b({'|'.join(sorted(twice))})\(")
    found = {f"{one.relative_to(ROOT)}: {name}" for one in sources for name in calls.findall(one.read_text())}
    assert found == set()


@pytest.mark.parametrize("name", sorted([*ADAPTERS, TRANSPORTS]))
def test_Library_NeedsOnlyTheSystemAndThePackage(package, name):
    library = package / "gloo_bypass" / name
    others = [entry for entry in needed(library) if not SYSTEM.fullmatch(entry) and not BESIDE.fullmatch(entry)]
    assert others == ([] if name == TRANSPORTS else [TRANSPORTS, "libtorch_cpu.so"])
    paths = re.findall(r"R(?:UN)?PATH\s+(\S+)", output_of("objdump", "-p", library))
    assert paths and all(part.startswith("$ORIGIN") for path in paths for part in path.split(":")), paths


def test_Libraries_OfOurs_AreHardened(package):
    binaries = {file.name: file for file in binaries_in(package / "gloo_bypass")}
    assert set(binaries) >= {*ADAPTERS, TRANSPORTS, "_door.abi3.so"}
    assert {name: lacks for name, file in binaries.items() if (lacks := weaknesses(file))} == {}


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_Adapter_TakesOnlyGlooAndItsRegistryFromPyTorch(package, name):
    taken = [
        text
        for text in symbols(package / "gloo_bypass" / name, "--undefined-only")
        if re.search(r"\b(c10|c10d|at|torch|caffe2)::", text)
    ]
    assert taken == ["c10d::GlooDeviceRegistry[abi:cxx11]()"]
    assert not [text for text in symbols(package / "gloo_bypass" / name, "--undefined-only") if "fmt::" in text]


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_Adapter_ShowsItsFunctionsAndWhatVerificationReads(package, name):
    shown = symbols(package / "gloo_bypass" / name, "--defined-only")
    assert {text for text in shown if not text.startswith("vtable for gloo_bypass::LayoutOf<")} == {
        "gloo_bypass_available_json",
        "gloo_bypass_collectives_v1",
        "gloo_bypass_register",
        "gloo_bypass_stats_json",
    }


def test_Transports_KnowNeitherPyTorchNorGloo(package):
    library = package / "gloo_bypass" / TRANSPORTS
    assert not [text for text in symbols(library) if re.search(r"\b(gloo|c10d?|at|torch)::", text)]
    # DPDK's own names stay inside: a program may have another DPDK.
    assert all("gloo_bypass::" in text for text in symbols(library, "--defined-only"))
