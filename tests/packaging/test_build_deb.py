"""scripts/build-deb and the folders that it gets: stand-ins replace the tools that build, check and unpack."""

import os
import shutil
import subprocess

import pytest

from conftest import SOURCE

BUILD_PACKAGE = """#!/bin/bash
touch ../one_2_amd64.deb ../two-dev_2_amd64.deb ../gloo-bypass_2_amd64.{changes,buildinfo}
"""
UNPACK = """#!/bin/bash
mkdir -p "$3"
touch "$3/of-$(basename "$2")"
"""
TRIAL = """#!/bin/bash
ls "$ROOT"
[[ -e $ROOT/of-one_2_amd64.deb && -e $ROOT/of-two-dev_2_amd64.deb && ! -e $ROOT/of-other_1_amd64.deb ]]
"""
PACKAGES = {"one_2_amd64.deb", "two-dev_2_amd64.deb", "gloo-bypass_2_amd64.changes", "gloo-bypass_2_amd64.buildinfo"}


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def project(tmp_path):
    """A source tree with two packages; `tools` comes first in the script's PATH."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    project = tmp_path / "project"
    tools = tmp_path / "tools"
    text = (SOURCE / "scripts" / "build-deb").read_text()
    assert text.count("export PATH=/usr/sbin") == 1
    executable(
        project / "scripts" / "build-deb",
        text.replace("export PATH=/usr/sbin", f"export PATH={tools}:/usr/sbin")
        .replace("/usr/bin/python3 ", f"{tools}/python3 ")
        .replace("/usr/lib/ccache:", ""),
    )
    (project / "packaging" / "debian" / "tests").mkdir(parents=True)
    (project / "packaging" / "debian" / "control").write_text(
        "Source: gloo-bypass\n\nPackage: one\n\nPackage: two-dev\n"
    )
    for name in ("cpp-example", "programs", "plug-in"):
        executable(project / "packaging" / "debian" / "tests" / name, TRIAL)
    for name, script in {"dpkg-buildpackage": BUILD_PACKAGE, "dpkg-deb": UNPACK}.items():
        executable(tools / name, script)
    for name in ("dh", "lintian", "python3", "make", "g++", "pkg-config"):
        executable(tools / name, "#!/bin/bash\n")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=project, check=True, timeout=20)
    return project


def build(project, *arguments, status=0):
    done = subprocess.run(
        [project / "scripts" / "build-deb", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=50,
        cwd=project,
        env={**os.environ, "TMPDIR": str(project.parent)},
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_Output_TheSourceTreeItself_LosesNothing(project):
    before = names(project)
    (project / "one_1_amd64.deb").write_text("of an earlier version")
    (project / "other_1_amd64.deb").write_text("of others")
    said = build(project, "--output", ".")
    assert names(project) == before | PACKAGES | {"other_1_amd64.deb", "build.log", "lintian.log"}
    assert said.endswith("has\none_2_amd64.deb\ntwo-dev_2_amd64.deb\n")


def test_Trial_Fails_PackagesAreThereAndItIsSaid(project):
    executable(project / "packaging" / "debian" / "tests" / "plug-in", "#!/bin/bash\necho no torch here\nexit 3\n")
    said = build(project, status=1)
    assert "no torch here" in said
    assert f"packaging/debian/tests/plug-in failed; the packages are in {project / 'build-deb'}" in said
    assert PACKAGES < names(project / "build-deb")


def test_Lintian_FindsAnError_PackagesAreThereAndItIsSaid(project):
    executable(project.parent / "tools" / "lintian", "#!/bin/bash\necho E: bad\nexit 2\n")
    said = build(project, status=1)
    assert "E: bad" in said and "lintian found errors" in said and PACKAGES < names(project / "build-deb")


def test_Build_Fails_EarlierPackagesStay(project):
    build(project)
    executable(project.parent / "tools" / "dpkg-buildpackage", "#!/bin/bash\necho broken\nexit 2\n")
    assert "broken" in build(project, status=1)
    assert PACKAGES < names(project / "build-deb") and (project / "build-deb" / "build.log").read_text() == "broken\n"


def test_Torch_Missing_SaidBeforeBuilding(project):
    executable(project.parent / "tools" / "python3", "#!/bin/bash\nexit 1\n")
    said = build(project, status=1)
    assert "needs python3-torch" in said and "building in" not in said
    build(project, "--no-try")


@pytest.mark.parametrize("inside", ["root", "gloo-bypass", "notes"])
def test_Keep_FolderOfOthers_IsRefusedUntouched(project, tmp_path, inside):
    file = tmp_path / "kept" / inside / "mine"
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    said = build(project, "--keep", tmp_path / "kept", status=1)
    assert f"--keep {tmp_path / 'kept'} is not a folder of an earlier run and not empty" in said
    assert names(tmp_path / "kept") == {inside} and names(file.parent) == {"mine"}


def test_Keep_TwiceInOneFolder_BuildsAgainThere(project, tmp_path):
    for _ in range(2):
        build(project, "--keep", tmp_path / "kept")
        (tmp_path / "kept" / "other_1_amd64.deb").write_text("of others")
    assert (tmp_path / "kept" / "other_1_amd64.deb").exists() and (
        tmp_path / "kept" / "gloo-bypass" / "debian" / "control"
    ).exists()


def test_Keep_FilesRemovedFromTheTree_AreGoneFromTheCopy(project, tmp_path):
    copy = tmp_path / "kept" / "gloo-bypass"
    removed = ["docs/old page.md", "plain.md", "only/here/a.md", "packaging/debian/one.docs"]
    for name in [*removed, "docs/new.md"]:
        executable(project / name, "")
    subprocess.run(["git", "add", "."], cwd=project, check=True, timeout=20)
    build(project, "--keep", tmp_path / "kept")
    (copy / "obj").mkdir()
    (copy / "obj" / "of-the-build").touch()
    assert all((copy / name).exists() for name in [*removed, "debian/one.docs"])
    subprocess.run(["git", "rm", "-qf", *removed[:-1]], cwd=project, check=True, timeout=20)
    (project / removed[-1]).unlink()  # which git still tracks
    build(project, "--keep", tmp_path / "kept")
    assert [name for name in [*removed, "only", "debian/one.docs"] if (copy / name).exists()] == []
    assert all((copy / name).exists() for name in ["docs/new.md", "debian/control", "obj/of-the-build"])


def test_Output_InsideTheKeptFolder_IsRefused(project, tmp_path):
    assert "lies in the folder of --keep" in build(
        project, "--keep", tmp_path / "kept", "--output", tmp_path / "kept" / "root", status=1
    )
