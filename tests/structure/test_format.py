"""Every tracked source has the format that scripts/lint checks."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINTERS = ROOT / ".cache/linters"
# In a hook, git names the checkout that it commits to: a test must not plant faults there.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

pytestmark = [
    pytest.mark.skipif(not LINTERS.exists(), reason="no linters: run scripts/install-packages lint"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout: which files are tracked is unknown"),
]


def lint(root, *words):
    return subprocess.run([root / "scripts/lint", *words], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)


def test_Sources_All_AreFormatted():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name, text, check",
    [
        ("planted.cc", "int  x;\n", "format"),
        ("planted.h", f"// {'word ' * 30}\n", "format"),
        ("planted.py", "x = [1,2]\n", "format"),
        ("launcher", "#!/usr/bin/python3\nx = 'single'\n", "format"),
        ("planted.py", "import os\n", "python"),
    ],
)
def test_Lint_FaultPlanted_IsFoundAndMended(tmp_path, name, text, check):
    (tmp_path / "scripts").mkdir()
    for file in ("scripts/lint", ".clang-format", "ruff.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / ".cache").symlink_to(ROOT / ".cache")
    (tmp_path / name).write_text(text)
    for words in (["init", "--quiet"], ["add", name]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, env=ENVIRONMENT)
    assert lint(tmp_path, check).returncode == 1
    assert lint(tmp_path, "--fix", check).returncode == 0
    assert lint(tmp_path).returncode == 0


def test_Lint_UnknownCheck_IsRefused():
    done = lint(ROOT, "spelling")
    assert done.returncode == 2 and "unknown argument 'spelling'" in done.stderr
