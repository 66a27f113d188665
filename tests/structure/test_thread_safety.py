"""Clang's thread-safety analysis finds nothing in the sources, and finds a planted fault."""

import os
import pathlib
import shutil
import subprocess
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTEX = '#include "transport/base/mutex.h"'
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Wno-deprecated-volatile", "-I", str(ROOT)]

pytestmark = pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")


def annotated_sources():
    """Those that use the annotated mutex, in themselves or in the header of their name."""
    text = {
        path: path.read_text() for room in ("collectives", "transport", "tools") for path in (ROOT / room).rglob("*.cc")
    }
    headers = {path: path.with_suffix(".h") for path in text}
    return [p for p in text if MUTEX in text[p] or headers[p].exists() and MUTEX in headers[p].read_text()]


def analyse(*arguments):
    dpdk = subprocess.run(["pkg-config", "--cflags", "libdpdk"], capture_output=True, text=True, check=False)
    command = ["clang++", *FLAGS, *dpdk.stdout.split(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_the_sources_touch_nothing_without_its_mutex():
    sources = annotated_sources()
    assert len(sources) > 8
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(analyse, map(str, sources)))
    # A machine without a library's headers leaves out what needs them.
    faults = [text for text in said if "file not found" not in text and ("thread-safety" in text or "error:" in text)]
    assert not faults, "\n".join(faults)


def test_a_member_that_is_read_without_its_mutex_is_found(tmp_path):
    (tmp_path / "fault.cc").write_text(
        textwrap.dedent("""
            #include "transport/base/mutex.h"
            struct Counter {
              int read() { return count; }
              gloo_bypass::Mutex mutex;
              int count GLOO_BYPASS_GUARDED_BY(mutex) = 0;
            };
            int main() { return Counter().read(); }
        """)
    )
    assert "reading variable 'count' requires holding mutex 'mutex'" in analyse(str(tmp_path / "fault.cc"))
