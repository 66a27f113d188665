"""A PyTorch that the wheel does not fit: one line says so, `import torch` works, nothing crashes."""

import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import ROOT, run
from ranks import LIBRARY

IMPORT = "import gloo_bypass"
WITH_RELEASE = "import torch; torch.__version__ = '{}'; import gloo_bypass"
LOAD = (
    "import ctypes, sys, torch; library = ctypes.CDLL(sys.argv[1]); text = ctypes.create_string_buffer(2000); "
    "library.answer(text, 2000); print(text.value.decode())"
)
GENERATIONS = ROOT / "build-wheel" / "generations"
ENTRY = (
    '#include "transport/base/c_text.h"\n#include "plugin/wheel/verification.h"\n'
    "GLOO_BYPASS_VISIBLE int answer(char* buffer, size_t capacity) {\n"
    "  return gloo_bypass::answerInC(buffer, capacity, gloo_bypass::whatDoesNotFit);\n}\n"
)


def last_line(result):
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("release", ["2.8.0", "3.1.0a0", "1.13.1+cpu"])
def test_Release_Unknown_OneLineNamesItAndTheKnown(release):
    line = last_line(run(WITH_RELEASE.format(release), status=1))
    assert line.startswith("ImportError: gloo_bypass ") and f"this is PyTorch {release} from " in line
    assert "2.7, 2.9, " in line and "install one of those" in line


def test_Release_OfAnotherGloo_OneLineAndPyTorchWorks():
    """As if a release carried another Gloo than the table says: the dynamic linker misses a function."""
    other = "2.7.0" if "gloo_2025" in LIBRARY else "2.13.0"
    program = (
        f"import torch; torch.__version__ = '{other}'\ntry:\n    import gloo_bypass\n"
        "except ImportError as error:\n    print(error, torch.ones(2).sum().item())"
    )
    lines = run(program).stdout.splitlines()
    assert len(lines) == 1 and "cannot be loaded into PyTorch" in lines[0] and "undefined symbol" in lines[0]
    assert lines[0].endswith(" 2.0")


def test_Distributed_Missing_IsSaid():
    program = "import torch; torch.distributed.is_available = lambda: False; import gloo_bypass"
    assert "needs torch.distributed" in last_line(run(program, status=1))


def test_SecondCopy_OneLine(tmp_path):
    """Another file with the same transports, as a wheel beside a build folder."""
    folder = tmp_path / "other"
    shutil.copytree(pathlib.Path(LIBRARY).parent, folder)
    libraries = pathlib.Path(LIBRARY).parents[1] / "gloo_bypass.libs"
    shutil.copytree(libraries, tmp_path / "gloo_bypass.libs")
    program = (
        "import torch, ctypes; text = ctypes.create_string_buffer(2000); "
        f"print(ctypes.CDLL('{folder / pathlib.Path(LIBRARY).name}').gloo_bypass_register(text, 2000)); "
        "import gloo_bypass"
    )
    result = run(program, status=1)
    assert result.stdout == "1\n"
    assert "another copy of the plug-in has registered" in last_line(result)


def changed_headers(folder, file, before, after):
    """The headers of the generation in use, one of them changed."""
    generation = GENERATIONS / re.search(r"gloo_20\d\d", LIBRARY).group()
    shutil.copytree(generation / "include" / "gloo", folder / "gloo")
    header = folder / "gloo" / file
    text = header.read_text()
    assert text.count(before) == 1, f"{file} has no '{before}': change the test"
    header.write_text(text.replace(before, after))
    return folder


@pytest.mark.parametrize(
    "file, before, after, said",
    [
        (None, "", "", ""),
        (
            "transport/pair.h",
            "virtual void close() = 0;",
            "virtual void close() = 0; virtual void more() {}",
            "the virtual table of gloo::transport::tcp::Pair has ",
        ),
        (
            "transport/device.h",
            "virtual std::string str() const = 0;",
            "virtual std::string str() const = 0; virtual void more() {}",
            "the virtual table of gloo::transport::tcp::Device has ",
        ),
        (
            "transport/context.h",
            "  std::chrono::milliseconds timeout_;",
            "  std::chrono::milliseconds timeout_, more_;",
            "this PyTorch writes ",
        ),
        (
            "transport/pair.h",
            "  virtual void close() = 0;\n\n  virtual void setSync(bool enable, bool busyPoll) = 0;",
            "  virtual void setSync(bool enable, bool busyPoll) = 0;\n\n  virtual void close() = 0;",
            "entry 6 of the virtual table of gloo::transport::tcp::Pair is another function",
        ),
        (
            "rendezvous/prefix_store.h",
            "  virtual std::vector<char> get(",
            "  virtual void more() {}\n  virtual std::vector<char> get(",
            "the virtual table of gloo::rendezvous::PrefixStore has ",
        ),
    ],
)
def test_Verification_HeadersOfAnotherLayout_FirstClassIsNamed(tmp_path, file, before, after, said):
    """The library's own verification, compiled with headers that differ from PyTorch's Gloo by one line."""
    generation = GENERATIONS / re.search(r"gloo_20\d\d", LIBRARY).group()
    headers = changed_headers(tmp_path / "headers", file, before, after) if file else generation / "include"
    (tmp_path / "entry.cc").write_text(ENTRY)
    (tmp_path / "empty.cc").write_text("")
    torch_name, library = tmp_path / "libtorch_cpu.so", tmp_path / "verification.so"
    compiler = ["g++", "-std=c++20", "-O2", "-fPIC", "-shared", "-DFMT_HEADER_ONLY"]
    for command in (
        [*compiler, f"-Wl,-soname,{torch_name.name}", "-o", torch_name, tmp_path / "empty.cc"],
        [
            *compiler,
            "-I",
            ROOT,
            "-isystem",
            headers,
            "-idirafter",
            ROOT / "transport/compatibility/gloo/stand_in",
            "-o",
            library,
            tmp_path / "entry.cc",
            ROOT / "plugin/wheel/verification.cc",
            "-Wl,--no-as-needed",
            torch_name,
        ],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    answer = run(LOAD, library).stdout.strip()
    assert answer.startswith(said) if said else answer == "", answer


def test_Autoload_DoesNotFit_ImportTorchWarnsOnce():
    program = "import sys, warnings\nsys.modules['gloo_bypass'] = None\nimport torch; print(torch.ones(2).sum().item())"
    result = run(program, GLOO_DEVICE_TRANSPORT="DPDK")
    assert result.stdout == "2.0\n" and result.stderr.count("GLOO_DEVICE_TRANSPORT=DPDK will not work") == 1
