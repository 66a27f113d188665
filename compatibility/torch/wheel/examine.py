#!/usr/bin/python3
"""Examines an installed `torch` Python package (a pip wheel) and a Gloo checkout before the plug-in is built for them.

A wheel carries Gloo inside libtorch_cpu.so and ships no Gloo headers. So the headers come from a checkout, and the
symbols from what libtorch_cpu.so exports. This says in one line what does not fit, instead of an undefined symbol when
the plug-in is loaded: a wheel that exports too few symbols, headers of another revision, the old C++ ABI. Meson runs it
when it configures.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[2]
DEVICE_FACTORY = "torch/csrc/distributed/c10d/{}GlooDeviceFactory.hpp"
REVISION_HINT = ("take the revision of PyTorch's submodule third_party/gloo at the wheel's version: "
                 "git -C pytorch ls-tree v{version} third_party/gloo")


class Unfit(Exception):
    """One line that says what does not fit, and what to do."""


def run(*command):
    result = subprocess.run([str(word)
                             for word in command], capture_output=True, text=True, errors="replace", check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error:" in line] or result.stderr.splitlines() or [
            "no message"]
        raise Unfit(f"{pathlib.Path(str(command[0])).name} fails: {lines[0].strip()}")
    return result.stdout


def readable(symbols):
    """The symbols as C++ writes them, in order."""
    if not symbols:
        return []
    return subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True,
                          check=True).stdout.splitlines()


def symbol_lines(file, *options):
    """(name, size or None, letter) of each symbol."""
    for line in run("nm", "-S", *options, file).splitlines():
        words = line.split()
        if len(words) >= 2:
            yield words[-1].split("@")[0], int(words[1], 16) if len(words) == 4 else None, words[-2]


def exported(library):
    return {name: size for name, size, letter in symbol_lines(library, "-D", "--defined-only") if letter != "U"}


def parts_of(torch):
    """Folder of headers and the libraries; Unfit names the first that is missing."""
    include, libraries = torch / "include", [torch / "lib" / name for name in ("libtorch_cpu.so", "libc10.so")]
    for path in [include / "torch/csrc/api/include/torch/version.h", *libraries]:
        if not path.exists():
            raise Unfit(f"-Dtorch={torch}: {path} is missing; give the folder that "
                        "python3 -c 'import torch; print(torch.__path__[0])' prints")
    return include, libraries


def version_of(include):
    for header in ("torch/csrc/api/include/torch/version.h", "torch/headeronly/version.h"):
        path = include / header
        match = re.search(r'define TORCH_VERSION\s+(?:\\\n)?\s*"([^"]+)"', path.read_text()) if path.exists() else None
        if match:
            return match.group(1)
    return "?"


def write_config(headers, folder):
    """Gloo's build writes gloo/config.h; a checkout has its template only. Returns the folders to include from."""
    if not (headers / "gloo/transport/pair.h").exists():
        raise Unfit(f"-Dgloo_headers={headers}: gloo/transport/pair.h is missing; give a checkout of Gloo, or a "
                    "folder with gloo/ in it")
    if (headers / "gloo/config.h").exists():
        return [headers]
    template = headers / "gloo/config.h.in"
    if not template.exists():
        raise Unfit(f"-Dgloo_headers={headers}: neither gloo/config.h nor gloo/config.h.in is there")
    lists = headers / "CMakeLists.txt"
    numbers = dict(re.findall(r"set\((GLOO_VERSION_\w+) (\d+)\)", lists.read_text())) if lists.exists() else {}
    text = re.sub(r"@(GLOO_VERSION_\w+)@", lambda match: numbers.get(match.group(1), "0"), template.read_text())
    # PyTorch's wheels have Gloo's TCP transport for certain; the headers that the plug-in reads ask for nothing else.
    text = re.sub(r"#cmakedefine01 (\w+)",
                  lambda match: f"#define {match.group(1)} {int(match.group(1) == 'GLOO_HAVE_TRANSPORT_TCP')}", text)
    (folder / "gloo").mkdir(parents=True, exist_ok=True)
    (folder / "gloo/config.h").write_text(text)
    return [headers, folder]


def abi_of(exports):
    """Whether the wheel has the C++11 ABI. GlooDeviceRegistry returns a type with strings in it, so its name tells."""
    if "_ZN4c10d18GlooDeviceRegistryB5cxx11Ev" in exports:
        return True
    if "_ZN4c10d18GlooDeviceRegistryEv" in exports:
        return False
    raise Unfit("libtorch_cpu.so exports too few: c10d::GlooDeviceRegistry; was this PyTorch built without Gloo?")


def compiled(source, compiler, include_folders, options, folder):
    target = folder / (source.stem + ".o")
    includes = [word for path in include_folders for word in ("-isystem", path)]
    run(*compiler, "-std=c++20", "-O2", "-fPIC", "-DUSE_C10D_GLOO", *options, "-I", PROJECT, *includes, "-c", source,
        "-o", target)
    return target


def missing_symbols(needs, exports):
    names = [name for name, _, letter in symbol_lines(needs, "--undefined-only") if letter == "U"]
    return [text for name, text in zip(names, readable(names))
            if re.search(r"\b(gloo|c10d|c10)::", text) and name not in exports]


def layout_faults(layout, exports):
    sizes = [(name, size) for name, size, _ in symbol_lines(layout, "--defined-only")
             if name.startswith("_ZTV8LayoutOf")]
    exported_sizes = {text: exports[name] for name, text in
                      zip(exports, readable(list(exports))) if text.startswith("vtable for gloo::")}
    for text, (_, size) in zip(readable([name for name, _ in sizes]), sizes):
        base = re.fullmatch(r"vtable for LayoutOf<(.*)>", text).group(1)
        theirs = exported_sizes.get(f"vtable for {base}")
        if theirs not in (None, size):
            yield f"{base} has {theirs // 8 - 2} virtual functions in the wheel and {size // 8 - 2} in the headers"


def examine(torch, headers, compiler, folder):
    """What Meson needs to know: (include folders, version). Unfit otherwise."""
    include, libraries = parts_of(torch)
    version = version_of(include)
    hint = REVISION_HINT.format(version=version)
    include_folders = [include, include / "torch/csrc/api/include", *write_config(headers, folder)]
    exports = {}
    for library in libraries:
        exports.update(exported(library))
    if not abi_of(exports):
        raise Unfit(f"PyTorch {version} there has the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0, as wheels before 2.7 "
                    "mostly do), for which "
                    "this distribution's fmt and spdlog are not built: take a wheel with the new ABI")
    in_folder = (include / DEVICE_FACTORY.format("gloo/")).exists()
    options = ["-DGLOO_BYPASS_TORCH_GLOO_FOLDER=1"] if in_folder else []
    with tempfile.TemporaryDirectory() as scratch:
        objects = [
            compiled(HERE / f"{name}.cc", compiler, include_folders, options, pathlib.Path(scratch))
            for name in ("needs", "layout")]
        missing = missing_symbols(objects[0], exports)
        faults = list(layout_faults(objects[1], exports))
    if faults:
        raise Unfit(f"Gloo's headers are of another revision than the wheel's Gloo: {'; '.join(faults)}; {hint}")
    if missing:
        raise Unfit(f"{libraries[0]} exports too few: {', '.join(missing)}; if only few are named, the headers may "
                    "be of another "
                    f"revision: {hint}")
    return include_folders, version


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True, type=pathlib.Path, metavar="DIR",
                        help="folder of the installed torch package")
    parser.add_argument("--gloo-headers", required=True, type=pathlib.Path, metavar="DIR",
                        help="checkout of Gloo, of the wheel's revision")
    parser.add_argument("--folder", required=True, type=pathlib.Path, metavar="DIR",
                        help="where gloo/config.h is written if the checkout has none")
    parser.add_argument("compiler", nargs="+", help="the C++ compiler's command")
    given = parser.parse_args(arguments)
    try:
        include_folders, _ = examine(given.torch, given.gloo_headers, given.compiler, given.folder)
    except (Unfit, OSError) as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in include_folders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
