"""The installation for C++ users: headers that compile by themselves, sufficient pkg-config and CMake files, a library
that works."""

import re
import shutil
import subprocess

import pytest

from conftest import SOURCE, VERSION, compilers, run

pytestmark = pytest.mark.usefixtures("needs_device")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]

EVERY_SETTING = r"""
#include <gloo_bypass/device.h>
#include <gloo/common/error.h>
#include <iostream>

template <typename Call>
std::string refusalOf(Call call) {
  try {
    call();
  } catch (const gloo::InvalidOperationException& error) {
    return error.what();
  }
  return "not refused";
}

int main() {
  using namespace std::chrono_literals;
  namespace setting = gloo_bypass::setting;
  std::cout << "version " << gloo_bypass::version() << " " << GLOO_BYPASS_VERSION << "\n";
  gloo_bypass::DeviceOptions wrong;
  wrong.settings["GLOO_BYPASS_MEMORY"] = "64";
  std::cout << refusalOf([&] { gloo_bypass::createDevice("DPDK", wrong); }) << "\n";
  wrong.settings = {{"LINK", "memif"}};
  std::cout << refusalOf([&] { gloo_bypass::createDevice("DPDK", wrong); }) << "\n";
  wrong.settings.clear();
  wrong.set(setting::kMemoryMib, 1);
  std::cout << refusalOf([&] { gloo_bypass::createDevice("DPDK", wrong); }) << "\n";
  wrong.settings = {{"GLOO_BYPASS_LINK", "netdev"}, {"GLOO_BYPASS_INTERFACE", "one"}};
  wrong.interface = "two";
  std::cout << refusalOf([&] { gloo_bypass::createDevice("DPDK", wrong); }) << "\n";
  gloo_bypass::DeviceOptions rdma;
  rdma.set(setting::kRdmaDevices, "none_of_this_name");
  std::cout << refusalOf([&] { gloo_bypass::createDevice("RDMA", rdma); }) << "\n";
  std::cout << refusalOf([&] { gloo_bypass::createDevice("dpdk"); }) << "\n";
  std::cout << "counters before: " << gloo_bypass::countersJson() << "\n";

  gloo_bypass::DeviceOptions options;
  options.connectOnDemand = true;
@SETTINGS@
  for (const auto& [name, text] : options.settings) std::cout << name << "=" << text << "\n";
  auto device = gloo_bypass::createDevice("DPDK", options);
  std::cout << "device " << device->str() << "\n";
  std::cout << "again: " << refusalOf([&] {
    options.set(setting::kSpinUs, 3ms);
    gloo_bypass::createDevice("DPDK", options);
  }) << "\n";
  std::cout << "counters: " << gloo_bypass::countersJson().substr(0, 1) << "\n";
}
"""


def flags(tree):
    return run("pkg-config", "--cflags", "--libs", "gloo_bypass", env=tree.environment()).split()


def compile_program(tree, source, output, compiler="g++", standard="c++17"):
    run(compiler, f"-std={standard}", *STRICT, source, "-o", output, *flags(tree), "-lpthread", env=tree.environment())
    return output


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("header", ["device.h", "settings.h", "version.h"])
def test_Header_Alone_Compiles(tree, tmp_path, compiler, header):
    (tmp_path / "alone.cc").write_text(f"#include <gloo_bypass/{header}>\n#include <gloo_bypass/{header}>\n")
    for standard in ("c++17", "c++20"):
        run(
            compiler,
            f"-std={standard}",
            *STRICT,
            "-fsyntax-only",
            tmp_path / "alone.cc",
            "-I",
            tree.folder("includedir"),
        )


def test_Library_Exports_OnlyThePublicFunctions(tree):
    library = tree.folder("libdir") / "libgloo_bypass_device.so.1"
    names = {
        line.split(" ", 2)[2].split("@")[0]
        for line in run("nm", "-DC", "--defined-only", library).splitlines()
        if " A " not in line
    }
    text = "std::basic_string_view<char, std::char_traits<char> >"
    assert names == {
        "gloo_bypass::DeviceOptions::fromEnvironment()",
        f"gloo_bypass::createDevice({text}, gloo_bypass::DeviceOptions const&)",
        "gloo_bypass::countersJson[abi:cxx11]()",
        "gloo_bypass::version()",
    }


def test_Library_UsersOfIt_NeedNoHeadersOfDpdk(tree):
    assert [flag for flag in flags(tree) if "dpdk" in flag or "rte_" in flag] == []


# The header gives the table's constants, and the program that prints the table gives the values.
def test_Settings_EveryConstantSetToItsDefault_IsAcceptedAndErrorsAreGloos(tree, tmp_path, runtime_folder):
    program = tree.folder("bindir") / "gloo-bypass-config"
    if not program.exists():
        pytest.skip("gloo-bypass-config is not in this build: libcli11-dev was not found")
    clean = {"PATH": "/usr/bin:/bin"}
    defaults = dict(
        line.split("=", 1)
        for line in run(program, "--effective", env=clean).splitlines()
        if not line.startswith("GLOO_BYPASS_MEMIF_DIR")
    )
    header = (tree.folder("includedir") / "gloo_bypass" / "settings.h").read_text()
    constants = re.findall(r'SettingName<([\w:]+)> (k\w+)\{"(GLOO_BYPASS_\w+)"\};', header)
    table = [line for line in run(program, env=clean).splitlines() if line.startswith("GLOO_BYPASS_")]
    assert [name for _, _, name in constants] == table, "the header's settings are not those of the table, in its order"
    lines = []
    for kind, constant, name in constants:
        if name in defaults:
            value = (
                f'"{defaults[name]}"'
                if kind == "std::string_view"
                else defaults[name]
                if kind == "std::int64_t"
                else f"{kind}({defaults[name]})"
            )
            lines.append(f"  options.set(setting::{constant}, {value});")
    (tmp_path / "every.cc").write_text(EVERY_SETTING.replace("@SETTINGS@", "\n".join(lines)))
    said = run(
        compile_program(tree, tmp_path / "every.cc", tmp_path / "every"),
        env={**tree.environment(), "XDG_RUNTIME_DIR": runtime_folder},
    )
    assert f"version {VERSION} {VERSION}\n" in said
    assert "DPDK transport: GLOO_BYPASS_MEMORY is not a known setting: did you mean GLOO_BYPASS_MEMORY_MIB?" in said
    assert "DPDK transport: 'LINK' is not the name of a setting: they begin with GLOO_BYPASS_" in said
    assert "DPDK transport: GLOO_BYPASS_MEMORY_MIB='1' is not allowed: it must be 16 to 65536 MiB" in said
    assert "dpdk transport: no such transport; known are " in said and "(capitals matter)" in said
    assert "the option interface is 'two' and GLOO_BYPASS_INTERFACE is 'one'" in said
    assert re.search(r"RDMA transport: .*\n", said) and "not refused" not in said
    assert "counters before: {}\n" in said and "counters: {\n" in said
    assert "GLOO_BYPASS_SPIN_US: '200' and '3000'" in said.replace(f"'{defaults['GLOO_BYPASS_SPIN_US']}'", "'200'")
    for name, value in defaults.items():
        assert f"{name}={value}\n" in said


def test_Example_BuiltWithItsMakefile_ReducesOverDpdkOnTwoRanks(tree, tmp_path, runtime_folder):
    for name in ("all_reduce.cc", "Makefile"):
        shutil.copy(SOURCE / "examples" / "cpp" / name, tmp_path)
    run("make", "-C", tmp_path, "CXXFLAGS=-O1 " + " ".join(STRICT), env=tree.environment())
    (tmp_path / "store").mkdir()
    ranks = [
        subprocess.Popen(
            [tmp_path / "all_reduce", str(rank), "2", tmp_path / "store"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**tree.environment(), "XDG_RUNTIME_DIR": runtime_folder},
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=40)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    for rank, text in enumerate(said):
        assert f"rank {rank} of 2 over memif" in text and "the sum is right" in text


def test_CMake_FindPackage_LinksTheLibrary(tree, tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(user CXX)\nfind_package(gloo_bypass 0.1 REQUIRED)\n"
        "add_executable(user user.cc)\ntarget_link_libraries(user gloo_bypass::device)\n"
    )
    (tmp_path / "user.cc").write_text(
        "#include <gloo_bypass/device.h>\nint main() { return gloo_bypass::version()[0] == '0' ? 0 : 1; }\n"
    )
    run(
        "cmake",
        "-S",
        tmp_path,
        "-B",
        tmp_path / "build",
        f"-Dgloo_bypass_DIR={tree.folder('libdir') / 'cmake' / 'gloo_bypass'}",
    )
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build" / "user", env=tree.environment())
