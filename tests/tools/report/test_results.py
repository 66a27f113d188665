"""The results folder: never overwritten, each file whole or absent."""

import errno
import os

import pytest
from gloo_bypass_tools.report import results


def test_create_existing_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "precious").write_text("x")
    with pytest.raises(results.ResultsError, match="exists already"):
        results.ResultsFolder.create(tmp_path / "a")
    assert os.listdir(tmp_path / "a") == ["precious"]


def test_create_below_a_file_is_one_line(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(results.ResultsError, match="cannot make .*choose another --output"):
        results.ResultsFolder.create(tmp_path / "a" / "b")


def test_write_replaces_whole_and_leaves_nothing_beside(tmp_path):
    folder = results.ResultsFolder.create(tmp_path / "a")
    folder.write_text("x", "one")
    folder.write_text("x", "two")
    assert folder.place("x").read_text() == "two"
    assert not list(folder.path.glob("*.partial"))


def test_write_on_full_disk_keeps_the_old_file_and_says_why(tmp_path, monkeypatch):
    folder = results.ResultsFolder.create(tmp_path / "a")
    folder.write_text("x", "old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(results.ResultsError, match="cannot write .*x: No space left on device: make room"):
        folder.write_text("x", "new")
    assert folder.place("x").read_text() == "old"
    assert not list(folder.path.glob("*.partial"))


def test_json_refuses_what_other_readers_could_not_read(tmp_path):
    folder = results.ResultsFolder.create(tmp_path / "a")
    with pytest.raises(ValueError):
        folder.write_json("x.json", {"a": float("nan")})
    assert not folder.place("x.json").exists()


def test_default_path_names_the_time():
    assert str(results.default_path("/r", 0)) == "/r/results/1970-01-01T00-00-00Z"
