"""The documents hold: a short README, links that lead somewhere, commands that exist, the settings as they are.

Documents are README.md, CONTRIBUTING.md, SECURITY.md, docs/ and the READMEs of the areas.
"""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG_PROGRAM = pathlib.Path(os.environ.get("GLOO_BYPASS_CONFIG_PROGRAM", ROOT / "build/tools/gloo_bypass_config"))
MOST_LINES = {"README.md": 150, "CONTRIBUTING.md": 90}
# Links to documents that are still to be written. Remove a file from this list when it exists.
COMING = []

MADE_BY_TEST = {"test-reports", "coverage/index.html", "coverage/rooms.txt"}
NOT_OURS = re.compile(r"^(\.|build|results$|subprojects$|dist$)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COMMIT = re.compile(r"(?<![\w.#/-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}(?![\w-]|\.\w)")
SCRIPT = re.compile(r"(?<![\w/-])scripts/([\w.-]*\w)")
BUILT = re.compile(r"(?<![\w/-])build(?!-wheel)(?:-\w+)?/((?:[\w-]+/)*)([\w.-]*\w)")


def documents(root):
    found = [root / "README.md", root / "CONTRIBUTING.md", root / "SECURITY.md", *(root / "docs").rglob("*.md")]
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and not NOT_OURS.match(folder.name) and folder.name != "docs":
            found += folder.rglob("README.md")
    return sorted(path for path in found if path.exists())


def anchors(text):
    """The anchors that GitHub gives the headings."""
    seen = {}
    for title in re.findall(r"^#{1,6} +(.+?) *$", FENCE.sub("", text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{seen[slug]}" if seen[slug] else slug


def links(path):
    """(target as written, file or folder, anchor) of each relative link."""
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            yield target, (path.parent / name).resolve() if name else path, anchor


def relative(path, root):
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def length_faults(root):
    lengths = {name: len((root / name).read_text().splitlines()) for name in MOST_LINES if (root / name).exists()}
    return [
        f"{name} has {lines} lines, {MOST_LINES[name]} are allowed"
        for name, lines in lengths.items()
        if lines > MOST_LINES[name]
    ]


def commit_faults(root):
    return [f"README.md names commit {commit}" for commit in COMMIT.findall((root / "README.md").read_text())]


def link_faults(root):
    faults = []
    for path in documents(root):
        for target, file, anchor in links(path):
            if not file.exists():
                if relative(file, root) not in COMING:
                    faults.append(f"{relative(path, root)}: {target} is not there")
            elif anchor and anchor not in anchors(file.read_text()):
                faults.append(f"{relative(path, root)}: {target}: no such heading")
    return faults


def unreachable(root):
    reached, following = set(), [root / "README.md"]
    while following:
        path = following.pop()
        if path not in reached:
            reached.add(path)
            following += [file for _, file, _ in links(path) if file.suffix == ".md" and file.exists()]
            following += [file / "README.md" for _, file, _ in links(path) if (file / "README.md").exists()]
    lost = [path for path in documents(root) if path not in reached]
    return [f"no link leads from README.md to {relative(path, root)}" for path in lost]


def unmapped(root):
    listed = {file for _, file, _ in links(root / "README.md")}
    return [f"README.md does not list docs/{path.name}" for path in (root / "docs").glob("*.md") if path not in listed]


def is_built(root, folder, name):
    """Whether the build makes build/FOLDER/NAME: a folder of the sources, or a target of FOLDER's meson.build."""
    build_file = root / folder / "meson.build"
    target = re.sub(r"^lib|\.so$", "", name) if name.endswith(".so") else name
    return (
        (root / folder / name).is_dir()
        or f"{folder}{name}" in MADE_BY_TEST
        or (build_file.exists() and re.search(rf"'{re.escape(target)}'", build_file.read_text()) is not None)
    )


def command_faults(root):
    faults = []
    for path in documents(root):
        text = path.read_text()
        faults += [
            f"{relative(path, root)}: scripts/{name} is not there"
            for name in SCRIPT.findall(text)
            if not (root / "scripts" / name).exists()
        ]
        faults += [
            f"{relative(path, root)}: nothing makes build/{folder}{name}"
            for folder, name in BUILT.findall(text)
            if not is_built(root, folder, name)
        ]
    return faults


def table_of(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_FrontPages_Length_FitsAStranger():
    assert all((ROOT / name).exists() for name in MOST_LINES)
    assert length_faults(ROOT) == []


def test_Readme_Text_NamesNoCommit():
    assert commit_faults(ROOT) == []


def test_Documents_Links_LeadSomewhere():
    assert len(documents(ROOT)) > 15, "nothing to check: were the documents moved?"
    assert link_faults(ROOT) == []


def test_Documents_All_AreReachedFromTheReadme():
    assert unreachable(ROOT) == []


def test_Readme_Map_ListsEveryPageOfDocs():
    assert unmapped(ROOT) == []


def test_Documents_ScriptsAndPrograms_Exist():
    assert command_faults(ROOT) == []


def test_Studies_ThatPrintTables_AreOnTheirPage():
    printed = re.search(
        r"^PRINTED = \{\n(.*?)^\}", (ROOT / "tools/study/command.py").read_text(), re.MULTILINE | re.DOTALL
    )
    names = re.findall(r'^ +"([\w-]+)":', printed.group(1), re.MULTILINE)
    page = (ROOT / "docs/emulated-links-and-studies.md").read_text()
    assert names and [name for name in names if f"[`{name}`](studies/{name}/README.md)" not in page] == []


def test_Packaging_Features_AreThoseOfMeson():
    features = re.findall(r"^option\('(\w+)', type: 'feature'", (ROOT / "meson_options.txt").read_text(), re.MULTILINE)
    listed = re.search(
        r"^Meson's features \((.*?)\)", (ROOT / "docs/packaging.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert re.findall(r"`(\w+)`", listed.group(1)) == features != []


def test_Coming_Files_AreNotThereYet():
    assert [name for name in COMING if (ROOT / name).exists()] == [], "they have come: take them off COMING"


def test_Configuration_Table_IsTheSettings():
    if not CONFIG_PROGRAM.exists():
        pytest.skip(f"{CONFIG_PROGRAM} is not built")
    printed = subprocess.run([CONFIG_PROGRAM, "--markdown"], capture_output=True, text=True, check=True).stdout
    assert table_of((ROOT / "docs/configuration.md").read_text()) == table_of(printed), (
        "renew it: sed -i '/^|/,$d' docs/configuration.md; "
        "build/tools/gloo_bypass_config --markdown >> docs/configuration.md"
    )


@pytest.mark.parametrize(
    "file, text, check",
    [
        ("README.md", "line\n" * 151, length_faults),
        ("CONTRIBUTING.md", "line\n" * 91, length_faults),
        ("CONTRIBUTING.md", "nobody links here", unreachable),
        ("CONTRIBUTING.md", "[page](docs/none.md)", link_faults),
        ("README.md", "measured at 8e8e5f7.", commit_faults),
        ("README.md", "commit 70d7a2d0c51a39aa5c4af5ac22fa2fbf7e0a41ec", commit_faults),
        ("README.md", "[page](docs/none.md)", link_faults),
        ("docs/page.md", "[section](#none)\n# Some", link_faults),
        ("docs/page.md", "[section](../README.md#none)", link_faults),
        ("area/README.md", "![picture](none.svg)", link_faults),
        ("docs/page.md", "nobody links here", unreachable),
        ("docs/below/page.md", "nobody links here", unreachable),
        ("docs/below/page.md", "[page](none.md)", link_faults),
        ("area/README.md", "nobody links here", unreachable),
        ("docs/page.md", "not in the map", unmapped),
        ("README.md", "```\nscripts/none --help\n```", command_faults),
        ("README.md", "run `scripts/none`.", command_faults),
        ("README.md", "```\nbuild/tools/none -b 4\n```", command_faults),
    ],
)
def test_Checker_FaultPlanted_IsFound(tmp_path, file, text, check):
    (tmp_path / "README.md").write_text("# Title\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert check(tmp_path)


def test_Checker_SoundDocuments_AreAccepted(tmp_path):
    for folder in ("docs", "scripts", "tools", "build"):
        (tmp_path / folder).mkdir()
    (tmp_path / "scripts/build").touch()
    (tmp_path / "tools/meson.build").write_text("executable('perf', 'perf.cc')")
    (tmp_path / "build/README.md").write_text("[not ours](none)")
    (tmp_path / "README.md").write_text(
        "[one](docs/one.md#put-and-get-its-key) [site](https://example.org/x)\n"
        "```\nscripts/build\nbuild/tools/perf    # [not a link](none)\n```\n1234567 facade deadbeef.so\n"
    )
    (tmp_path / "docs/one.md").write_text("# Put and get: its `key`\n## Same\n## Same\n[second](#same-1)")
    for check in (length_faults, commit_faults, link_faults, unreachable, unmapped, command_faults):
        assert check(tmp_path) == []
