"""After scripts/uninstall everything is as before the first installation, however often and in how many places it was
installed."""

import os

import pytest

from conftest import SOURCE, install, run

PROJECT = """project('small')
install_data('a.txt', install_dir: 'share/man/man8', install_tag: 'man')
install_data('module.py', install_dir: 'libexec/gloo-bypass', install_tag: 'runtime')
{more}
foreach tag : ['runtime', 'man']
  meson.add_install_script('record-installation', install_tag: tag)
endforeach
"""


def uninstall(build, check=True):
    return run(SOURCE / "scripts" / "uninstall", "--dir", build, check=check)


def everything(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.fixture
def small(tmp_path):
    """`small(more)` is the build folder of a project that installs two files, and `more`."""
    source, folder = tmp_path / "small", tmp_path / "small-build"
    source.mkdir()
    for name in ("a.txt", "module.py"):
        (source / name).write_text("")
    (source / "record-installation").symlink_to(SOURCE / "packaging" / "install" / "record-installation")

    def configure(more=""):
        (source / "meson.build").write_text(PROJECT.format(more=more))
        run("meson", "setup", *["--reconfigure"] * folder.exists(), folder, source, "--prefix", "/usr/local")
        return folder

    return configure


@pytest.fixture
def root(tmp_path):
    """A system in which some folders are there, and empty."""
    for name in ("usr/local/bin", "usr/local/share/man", "usr/lib"):
        (tmp_path / "root" / name).mkdir(parents=True)
    return tmp_path / "root"


@pytest.mark.parametrize("times", [1, 3])
def test_Uninstall_WholeProject_TreeIsAsBefore(build, root, times):
    before = everything(root)
    for _ in range(times):
        install(build, root)
    assert len(everything(root)) > len(before) + 10
    for module in root.rglob("*.py"):
        (module.parent / "__pycache__").mkdir(exist_ok=True)
        (module.parent / "__pycache__" / f"{module.stem}.cpython-311.pyc").write_text("")
    uninstall(build)
    assert everything(root) == before
    assert "nothing has been installed" in uninstall(build, check=False)


def test_Uninstall_FileThatOnlyTheFirstHad_GoesWithItsFolders(small, root):
    before = everything(root)
    install(small("install_data('a.txt', install_dir: 'etc/old/deep', install_tag: 'runtime')"), root)
    assert (root / "usr/local/etc/old/deep/a.txt").exists()
    for _ in range(2):
        install(small(), root)
    uninstall(small())
    assert everything(root) == before


def test_Uninstall_TwoPlaces_BothAreCleared(small, root, tmp_path):
    before = everything(root)
    install(small(), tmp_path / "new" / "place")
    install(small(), root)
    uninstall(small())
    assert everything(root) == before and not (tmp_path / "new").exists()


def test_Uninstall_PlaceInsideAFolderOfOurName_ItAndItsParentsStay(small, tmp_path):
    place = tmp_path / "gloo-bypass" / "empty" / "root"
    place.mkdir(parents=True)
    for _ in range(2):
        install(small(), place)
    uninstall(small())
    assert everything(tmp_path / "gloo-bypass") == ["empty", "empty/root"]


def test_Uninstall_InstalledByPart_TreeIsAsBefore(small, root):
    before = everything(root)
    for tag in ("man", "runtime", "man"):
        install(small(), root, "--tags", tag)
    assert {"a.txt", "module.py"} <= {os.path.basename(name) for name in everything(root)}
    uninstall(small())
    assert everything(root) == before


def test_Uninstall_OthersFiles_AreKeptAndInOurFolderNamed(small, root):
    install(small(), root)
    ours, general = root / "usr/local/libexec/gloo-bypass", root / "usr/local/share/man/man8"
    for folder in (ours, general):
        (folder / "mine").write_text("not yours")
    said = uninstall(small())
    assert sorted(path.name for path in root.rglob("*") if not path.is_dir()) == ["mine", "mine"]
    assert f"left, because others' files are in it: {ours}" in said and str(general) not in said


def test_NinjaUninstall_LeavesNoFileAndNoFolderOfOurs_TheRestGoesAfterwards(build, root):
    before = everything(root)
    install(build, root)
    run("ninja", "-C", build, "uninstall")
    assert [path for path in root.rglob("*") if not path.is_dir() or "bypass" in path.name] == []
    uninstall(build)
    assert everything(root) == before


def test_Uninstall_NothingInstalled_SaysSo(tmp_path):
    assert "nothing has been installed" in uninstall(tmp_path, check=False)
