#!/usr/bin/python3
"""Makes a folder laid out as a pip wheel's `torch`, from the distribution's PyTorch and Gloo; and a Gloo checkout
beside it.

    stand_in_wheel.py DIR        makes DIR/torch and DIR/gloo-checkout

A wheel has headers without Gloo's, and a libtorch_cpu.so that holds Gloo and exports it. Here libtorch_cpu.so is an ELF
filter: it exports the symbols of the distribution's libgloo and libtorch_cpu, with their sizes, and the loader takes
their values from those. So a plug-in that is linked with it alone works in the distribution's Python.
"""
import pathlib
import re
import shutil
import subprocess
import sys

HEADERS = ("ATen", "c10", "caffe2", "torch")
CONTEXT_VTABLE = "_ZTVN4gloo9transport7ContextE"
REGISTRY = "_ZN4c10d18GlooDeviceRegistryB5cxx11Ev"


def output(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout


def library(name):
    """(path, SONAME) of a library that the linker finds."""
    path = pathlib.Path(output("gcc", f"-print-file-name=lib{name}.so").strip())
    if not path.is_absolute():
        path = next(folder / f"lib{name}.so" for folder in map(pathlib.Path, ("/usr/lib", "/lib"))
                    if (folder / f"lib{name}.so").exists())
    return path.resolve(), re.search(r"\(SONAME\).*\[(.*)\]", output("readelf", "-d", str(path))).group(1)


def exports(path, pattern):
    """name -> (type, size) of the dynamic symbols that match."""
    found = {}
    for line in output("readelf", "--dyn-syms", "-W", str(path)).splitlines():
        words = line.split()
        if len(words) == 8 and words[6] != "UND" and words[3] in ("FUNC", "OBJECT") and words[4] in ("GLOBAL", "WEAK",
                                                                                                     "UNIQUE"):
            name = words[7].split("@")[0]
            if re.search(pattern, name):
                found[name] = (words[3], int(words[2], 0))
    return found


def write_filter(target, symbols, filtees):
    """A shared library that exports `symbols` and takes them from the libraries `filtees` when it is loaded."""
    text = [".text"]
    for name, (kind, size) in sorted(symbols.items()):
        text += [
            f".globl {name}", f".type {name}, @{'function' if kind == 'FUNC' else 'object'}", f".size {name}, {size}",
            f"{name}:"]
    text += [".zero 16", '.section .note.GNU-stack,"",@progbits', ""]
    filters = [f"-Wl,--auxiliary,{soname}" for soname in filtees]  # of --filter the linker keeps the last only
    subprocess.run([
        "gcc", "-shared", "-nostdlib", "-x", "assembler", "-", "-o",
        str(target), f"-Wl,-soname,{target.name}", *filters], input="\n".join(text), text=True, check=True, timeout=60)


def make(folder, without=(), resized=None, renamed=None):
    """Makes the wheel's folder; `without` leaves symbols out, `resized` and `renamed` change their size and name.
    Returns (torch, checkout)."""
    folder = pathlib.Path(folder)
    torch, checkout = folder / "torch", folder / "gloo-checkout"
    (torch / "include").mkdir(parents=True)
    (torch / "lib").mkdir()
    for name in HEADERS:
        if (pathlib.Path("/usr/include") / name).is_dir():
            (torch / "include" / name).symlink_to(f"/usr/include/{name}")
    gloo, torch_cpu, c10 = library("gloo"), library("torch_cpu"), library("c10")
    symbols = {**exports(gloo[0], "4gloo"), **exports(torch_cpu[0], "^_ZN4c10d18GlooDeviceRegistry")}
    for name in without:
        del symbols[name]
    for name, size in (resized or {}).items():
        symbols[name] = (symbols[name][0], size)
    for name, other in (renamed or {}).items():
        symbols[other] = symbols.pop(name)
    write_filter(torch / "lib/libtorch_cpu.so", symbols, [gloo[1], torch_cpu[1]])
    write_filter(torch / "lib/libc10.so", exports(c10[0], "^_ZNK?3c105Error"), [c10[1]])
    shutil.copytree("/usr/include/gloo", checkout / "gloo")
    config = checkout / "gloo/config.h"  # a checkout has its template, from which CMake writes it
    text = re.sub(r"#define (GLOO_VERSION_(?:MAJOR|MINOR|PATCH)) \d+", r"#define \1 @\1@", config.read_text())
    (checkout / "gloo/config.h.in").write_text(
        re.sub(r"#define (GLOO_(?:USE|HAVE)_\w+) [01]", r"#cmakedefine01 \1", text))
    config.unlink()
    (checkout /
     "CMakeLists.txt").write_text("set(GLOO_VERSION_MAJOR 0)\nset(GLOO_VERSION_MINOR 5)\nset(GLOO_VERSION_PATCH 0)\n")
    return torch, checkout


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(*make(sys.argv[1]))
