"""The installed files, and that they work from their places."""

import fnmatch
import os
import pathlib
import re
import shutil

import pytest

from conftest import FEATURES, SOURCE, VERSION, run
from hardening import binaries_in, weaknesses

EXPECTED = pathlib.Path(__file__).with_name("expected_files.txt")
LINK = re.compile(r"\]\(([^)#\s]+\.(?:md|svg))[)#]")


def expected_patterns(folders):
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            features, pattern = line.split()
            if all(feature == "always" or feature in FEATURES for feature in features.split("+")):
                yield pattern.format(version=VERSION, **folders)


def files_in(root):
    found = ("/" + str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(path for path in found if "/__pycache__/" not in path)


def test_Tree_Installed_HoldsWhatIsExpectedAndNothingElse(tree):
    patterns = list(expected_patterns(tree.folders))
    files = files_in(tree.root)
    assert [file for file in files if not any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns)] == [], (
        "not in expected_files.txt"
    )
    assert [pattern for pattern in patterns if not fnmatch.filter(files, pattern)] == [], "not installed"


def test_Documents_Installed_LinkToPagesAndDrawingsThatAreThere(tree):
    pages = list((tree.folder("datadir") / "doc" / "gloo-bypass").rglob("*.md"))
    links = {(page, link) for page in pages for link in LINK.findall(page.read_text()) if "://" not in link}
    assert len(links) > 30
    assert [f"{page}: {link}" for page, link in sorted(links) if not (page.parent / link).exists()] == []


def packages_of(program):
    """Those that have it in a folder of programs."""
    found = re.findall(rf"^(\S+): (?:/usr)?/s?bin/{program}$", run("dpkg-query", "-S", f"*bin/{program}"), re.MULTILINE)
    assert found, program
    return found


def test_DebianPackage_ProgramsThatFabricRunNeeds_AreDependencies():
    if not shutil.which("dpkg-query"):
        pytest.skip("dpkg-query is not installed")
    asked = "from gloo_bypass_tools.fabric_run import enclosure; print(*enclosure.TOOLS)"
    programs = run("/usr/bin/python3", "-B", "-c", asked, env={**os.environ, "PYTHONPATH": str(SOURCE / "scripts")})
    needed = {package for program in programs.split() for package in packages_of(program)}
    needed -= {package for package in needed if run("dpkg-query", "-W", "-f=${Essential}", package) == "yes"}
    control = (SOURCE / "packaging" / "debian" / "control").read_text()
    depends = re.search(r"^Package: gloo-bypass-tools\n(?:\S.*\n)*?Depends: (.*)", control, re.MULTILINE).group(1)
    assert needed and needed - set(depends.split(", ")) == set()


def test_Binaries_Installed_AreHardened(tree):
    sanitizer, level = tree.options["b_sanitize"], tree.options["optimization"]
    if sanitizer != "none" or level in ("plain", "0", "g"):
        pytest.skip(f"-Db_sanitize={sanitizer}, -Doptimization={level}: calls are not checked in such a build")
    binaries = list(binaries_in(tree.root))
    assert binaries
    assert {str(file): lacks for file in binaries if (lacks := weaknesses(file))} == {}


def test_Links_OnPath_LeadIntoTheTree(tree):
    links = [path for path in tree.folder("bindir").iterdir() if path.is_symlink()]
    assert links
    assert [link.name for link in links if not link.name.startswith("gloo-bypass-")] == []
    plugin = tree.folder("libexecdir") / "gloo-bypass" / "libgloo_bypass.so"
    assert plugin.is_symlink() == ("plugin" in FEATURES)
    for link in links + [plugin] * plugin.is_symlink():
        assert link.resolve(strict=True).is_relative_to(tree.root), link


def test_Programs_CalledByTheirLinks_Help(tree):
    for link in tree.folder("bindir").iterdir():
        text = run(link, "--help", env={**os.environ, "PATH": f"{link.parent}:{os.environ['PATH']}"})
        assert len(text.splitlines()) > 5, text


def test_ManualPages_EachProgram_HasOneThatMatchesItsHelp(tree):
    if "man" not in FEATURES:
        pytest.skip("no manual pages in this build: help2man was not found, or -Dman=disabled")
    for link in tree.folder("bindir").iterdir():
        pages = list(tree.folder("mandir").glob(f"man*/{link.name}.*"))
        assert len(pages) == 1, link.name
        text = pages[0].read_text().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        for option in {
            word
            for word in run(link, "--help").replace(",", " ").split()
            if word.startswith("--") and word[2:].isalpha()
        }:
            assert option in text, f"{option} is not in {pages[0].name}"
        if shutil.which("lexgrog"):
            assert f"{link.name} - " in run("lexgrog", pages[0])


def test_ManualPages_OfTheConfiguration_HasEverySetting(tree):
    if not {"man", "config"} <= FEATURES:
        pytest.skip("no manual page of gloo-bypass-config in this build")
    page = (tree.folder("mandir") / "man1" / "gloo-bypass-config.1").read_text()
    names = [
        line
        for line in run(tree.folder("bindir") / "gloo-bypass-config").splitlines()
        if line.startswith("GLOO_BYPASS_")
    ]
    assert len(names) > 20
    assert [name for name in names if f".B {name}\n" not in page] == []


def test_Model_Installed_ReadsThePublishedFiguresBesideIt(tree):
    if "model" not in FEATURES:
        pytest.skip("no gloo-bypass-model in this build: its Python packages were not found")
    text = run(tree.folder("bindir") / "gloo-bypass-model", "published", "--table", "5.7", cwd="/")
    assert "published" in text and "model" in text, text


def test_FabricRun_Installed_HasNoModuleThatNothingInstalledImports(tree):
    if "fabric" not in FEATURES:
        pytest.skip("no fabric in this build")
    programs = tree.folder("libexecdir") / "gloo-bypass"
    sources = list(programs.glob("gloo_bypass_tools/fabric_run/*.py"))
    modules = {path.stem for path in sources} - {"__init__"}
    text = "".join(path.read_text() for path in [programs / "fabric-run", *sources])
    imported = {
        name for line in re.findall(r"^\s*(?:from|import) .*", text, re.MULTILINE) for name in re.findall(r"\w+", line)
    }
    assert modules and modules - imported == set()


def test_FabricRun_Installed_TakesTheFabricBesideIt(tree, tmp_path):
    if "fabric" not in FEATURES:
        pytest.skip("no fabric in this build")
    programs = tree.folder("libexecdir") / "gloo-bypass"
    asked = (
        "from gloo_bypass_tools.common import program_places; from gloo_bypass_tools.fabric_run import command; "
        "print(command.FABRIC, program_places.results())"
    )
    answer = run("/usr/bin/python3", "-B", "-c", asked, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(programs)})
    assert answer.split() == [str((programs / "fabric").resolve()), str(tmp_path / "results")]
    assert os.access(programs / "fabric", os.X_OK)


def test_CaptureOfARank_Installed_IsReadByTheAnalyser(tree, tmp_path):
    if not {"perf", "capture", "fabric"} <= FEATURES:  # the fabric is there where DPDK is
        pytest.skip("no all_reduce_perf over DPDK, or no capture_analyser, in this build")
    run(
        tree.folder("bindir") / "gloo-bypass-all-reduce-perf",
        "--ranks",
        "2",
        "--transports",
        "DPDK",
        "-b",
        "4K",
        "-e",
        "4K",
        "-n",
        "3",
        env={**os.environ, "GLOO_BYPASS_CAPTURE": str(tmp_path / "rank%r.pcapng")},
    )
    assert "bypass_payload" in run(
        tree.folder("bindir") / "gloo-bypass-capture-analyser", tmp_path / "rank0.pcapng", tmp_path / "rank1.pcapng"
    )
