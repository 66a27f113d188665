"""Whether programs and libraries are built hardened (meson.build), as `readelf` of binutils shows it.

usage: hardening.py FOLDER      names each file below it that is not; then the exit status is 1
"""

import pathlib
import re
import subprocess
import sys

ENDBR64 = b"\xf3\x0f\x1e\xfa"  # -fcf-protection marks with it where an indirect jump may land
MOST_OF_C_RUNTIME = 6  # such marks in what every program begins with
CHECKED_CALL = re.compile(r" __(?!stack_)\w+_chk@")  # what _FORTIFY_SOURCE makes of a call that it can check
# Calls that it nearly always can. A library without any may have nothing to check.
CHECKABLE_CALL = re.compile(r" (strn?cpy|strcat|v?sprintf|v?f?printf|vsnprintf|fgets|realpath|read|recv|p?poll)@")


def readelf(option, file):
    answer = subprocess.run(["readelf", "-W", option, str(file)], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def weaknesses(file):
    """What `file` lacks, in words."""
    segments, dynamic = readelf("-l", file), readelf("-d", file)
    imports = "\n".join(line for line in readelf("--dyn-syms", file).splitlines() if " UND " in line)
    is_program = " INTERP " in segments
    is_x86 = "X86-64" in readelf("-h", file)
    demands = {
        "relocations can be written after loading (-z relro)": " GNU_RELRO " in segments,
        "functions are bound at their first call (-z now)": "BIND_NOW" in dynamic,
        "the loader changes its code": "TEXTREL" not in dynamic,
        "its stack can be executed": re.search(r" GNU_STACK .* RW  ", segments),
        "it is loaded at a fixed address (-pie)": not is_program or re.search(r"FLAGS_1.* PIE", dynamic),
        "no function has a stack protector": "__stack_chk_fail" in imports,
        "no call is checked (_FORTIFY_SOURCE)": CHECKED_CALL.search(imports) or not CHECKABLE_CALL.search(imports),
        "indirect jumps land anywhere (-fcf-protection)": not is_x86
        or file.read_bytes().count(ENDBR64) > MOST_OF_C_RUNTIME,
    }
    return [lack for lack, is_met in demands.items() if not is_met]


def binaries_in(folder):
    """Programs and shared libraries, each once."""
    for file in sorted(pathlib.Path(folder).rglob("*")):
        if file.is_file() and not file.is_symlink():
            with open(file, "rb") as opened:
                begin = opened.read(18)
            if begin[:4] == b"\x7fELF" and begin[16] in (2, 3):  # ET_EXEC, ET_DYN
                yield file


def main():
    binaries = list(binaries_in(sys.argv[1]))
    if not binaries:
        sys.exit(f"hardening.py: there is no program and no shared library in the folder {sys.argv[1]}")
    found = [(file, lacks) for file in binaries if (lacks := weaknesses(file))]
    for file, lacks in found:
        print(f"{file}: {'; '.join(lacks)}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
