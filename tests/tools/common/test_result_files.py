"""Files of results: whole or not at all, and nothing but files replaced."""

import argparse
import os

import pytest
from gloo_bypass_tools.common.argument_types import result_file
from gloo_bypass_tools.common.whole_file import write_all_whole, write_whole


def test_WriteWhole_Pipe_IsWrittenToAndStays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"text")
        assert os.read(reading, 100) == b"text"
    finally:
        os.close(reading)
    assert os.listdir(tmp_path) == ["pipe"] and pipe.is_fifo()


def test_WriteWhole_Device_Stays(tmp_path):
    link = tmp_path / "nothing"
    link.symlink_to(os.devnull)
    write_whole(link, b"text")
    assert link.is_char_device() and os.listdir(tmp_path) == ["nothing"]


def test_ResultFile_LinkToAFile_IsRefused(tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(argparse.ArgumentTypeError, match="symbolic link to a file: name the file itself"):
        result_file(str(tmp_path / "link"))
    assert result_file(str(tmp_path / "file")) == tmp_path / "file"


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_WriteAllWhole_EndsEarly_LeavesWhatWasThere(tmp_path, monkeypatch, error):
    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(error))
    with pytest.raises(type(error)):
        write_all_whole({tmp_path / "a": b"new", tmp_path / "b": b"new"})
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"


def test_ResultFile_FolderCannotBeWritten_IsRefusedThoughTheFileCan(tmp_path, monkeypatch):
    """It is replaced by another one of that folder."""
    (tmp_path / "file").write_text("kept")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # as for users; root may write anywhere
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written"):
        result_file(str(tmp_path / "file"))
