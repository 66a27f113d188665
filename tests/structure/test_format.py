"""Every tracked source has the format that scripts/lint checks."""

import json
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
    words = [root / "scripts/lint", *words]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, cwd=root)


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


@pytest.mark.skipif(not shutil.which("run-clang-tidy"), reason="no clang-tidy: run scripts/install-packages lint")
def test_Tidy_FaultPlanted_IsFound(tmp_path):
    for folder in ("scripts", "build", "transport", "tests"):
        (tmp_path / folder).mkdir()
    for file in ("scripts/lint", ".clang-tidy"):
        shutil.copy(ROOT / file, tmp_path / file)
    sources = ["transport/sound.cc", "transport/planted.cc", "tests/planted.cc"]
    for name in sources:
        (tmp_path / name).write_text(f"int* {'f' if 'planted' in name else 'g'}() {{ return nullptr; }}\n")
    commands = [
        {"directory": str(tmp_path / "build"), "file": f"../{name}", "command": f"c++ -Wno-no-such -c ../{name}"}
        for name in sources
    ]
    (tmp_path / "build/compile_commands.json").write_text(json.dumps(commands))
    assert lint(tmp_path, "tidy").returncode == 0
    for name in sources[1:]:
        (tmp_path / name).write_text("int* f() { return 0; }\n")
    done = lint(tmp_path, "tidy")
    assert done.returncode == 1
    assert "transport/planted.cc" in done.stdout and "modernize-use-nullptr" in done.stdout
    assert "tests/planted.cc" not in done.stdout
    assert lint(tmp_path, "tidy", "transport/sound.cc").returncode == 0
    assert lint(tmp_path, "tidy", "tests").returncode == 1
    done = lint(tmp_path, "tidy", "transport/sound.cc", "scripts")
    assert done.returncode == 2 and f"no source that build compiles lies in {tmp_path}/scripts" in done.stderr


@pytest.mark.parametrize(
    "words, text",
    [
        (["--dir"], "--dir needs a folder"),
        (["--dir", "none"], "none is not configured: run scripts/build --configure-only"),
        (["none.cc"], "none.cc is not there"),
        (["--fix"], "unknown argument '--fix'"),
    ],
)
def test_Tidy_ArgumentsWrong_AreRefused(words, text):
    done = lint(ROOT, "tidy", *words)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert text in line


def test_Lint_UnknownCheck_IsRefused():
    done = lint(ROOT, "spelling")
    assert done.returncode == 2 and "unknown argument 'spelling'" in done.stderr


def test_Lint_NoCheckout_IsRefused(tmp_path):
    """It cannot know what to check, and must not report that all is well."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/lint", tmp_path / "scripts/lint")
    (tmp_path / ".cache").symlink_to(ROOT / ".cache")
    done = lint(tmp_path)
    assert done.returncode == 2 and "git does not list the files of this checkout" in done.stderr
