"""The check of hardening itself, on a program that has none and on one that has all of it."""

import shutil
import subprocess
import sys

import hardening
import pytest
from conftest import run
from hardening import binaries_in, weaknesses

HARDENING = hardening.__file__

FUNCTIONS = "".join(f"int function{number}(int x) {{ return x + {number}; }}\n" for number in range(8))
PROGRAM = f"""
#include <stdio.h>
#include <string.h>
{FUNCTIONS}
int main(int count, char** words) {{
  char text[16];
  strcpy(text, words[count - 1]);
  return printf("%s\\n", text);
}}
"""
NONE = "-O2 -no-pie -fno-stack-protector -U_FORTIFY_SOURCE -fcf-protection=none -Wl,-z,norelro,-z,lazy,-z,execstack"
ALL = "-O2 -fPIE -pie -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fcf-protection -Wl,-z,relro,-z,now"


def test_Command_FolderWithoutPrograms_Fails(tmp_path):
    (tmp_path / "text").write_text("text")
    for folder in (tmp_path, tmp_path / "missing", tmp_path / "text"):
        said = subprocess.run([sys.executable, HARDENING, folder], capture_output=True, text=True, timeout=60)
        assert said.returncode == 1 and "there is no program" in said.stderr


def weaknesses_with(folder, options):
    (folder / "program.c").write_text(PROGRAM)
    run("gcc", "-w", *options.split(), folder / "program.c", "-o", folder / "program")
    assert list(binaries_in(folder)) == [folder / "program"]
    return weaknesses(folder / "program")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc not found")
def test_Weaknesses_OfAPlainProgram_AreAllNamed(tmp_path):
    found = weaknesses_with(tmp_path, NONE)
    for word in ("relro", "now", "executed", "pie", "stack protector", "FORTIFY", "cf-protection"):
        assert [lack for lack in found if word in lack], f"{word}: {found}"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc not found")
@pytest.mark.parametrize(
    "option, opposite",
    [
        ("-z,now", "-z,lazy"),
        ("-fPIE -pie", "-no-pie"),
        ("-fstack-protector-strong", "-fno-stack-protector"),
        ("-D_FORTIFY_SOURCE=2", "-U_FORTIFY_SOURCE"),
        ("-fcf-protection", "-fcf-protection=none"),
    ],
)
def test_Weaknesses_OfAHardenedProgram_AreWhatItLacks(tmp_path, option, opposite):
    assert weaknesses_with(tmp_path, ALL) == []
    assert len(weaknesses_with(tmp_path, ALL.replace(option, opposite))) == 1
