"""Adding a back-end touches few files outside its folder. This test counts the files that list all back-ends."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
AT_MOST = 8
SELF = "tests/structure/test_back_end_lists.py"
# The files that list the back-ends, and the reason; docs/adding-a-backend.md goes through them.
LISTS = {
    "transport/meson.build": "builds each back-end's folder and its unit tests, and links it into the table",
    "transport/process/back_ends.cc": "the table that every part in C++ iterates over",
    "tests/structure/test_source_rules.py": "what each folder may include",
    "tests/support/media/meson.build": "the transports that suites over all back-ends run with",
    "tools/common/transports.py": "the table that doctor, reports and studies iterate over",
    "plugin/python/gloo_bypass_autoload.py": "runs in every `import torch`, and so may not load the library to ask",
    "tools/containers/recipes.py": "what containers are granted for each",
    "tools/compare_links/links.py": "the links that scripts/compare-links measures",
}
FOLDERS = (
    "collectives",
    "containers",
    "examples",
    "packaging",
    "plugin",
    "scripts",
    "tools",
    "trainer",
    "transport",
    "tests/conformance",
    "tests/structure",
    "tests/support",
    "tests/transport",
)
# A back-end's own folders, and the tests of the whole table.
OWN = re.compile(r"^((transport|tests/transport)/(dpdk|udp|verbs)|tests/transport/process)/")
NAMES = {"DPDK": "dpdk", "UDP": "udp", "RDMA": "verbs"}
COMMENT = re.compile(r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")""", re.DOTALL)
IN_CXX = re.compile(r'"(DPDK|UDP|RDMA)"|^\s*#\s*include "transport/(dpdk|udp|verbs)/', re.MULTILINE)
IN_MESON = re.compile(r"\b(dpdk|udp|verbs)_(?:back_end|port|transport)_dep\b|'(dpdk|udp|verbs)'")
IN_PYTHON = re.compile(r"^(?:transport/)?(DPDK|UDP|RDMA|dpdk|udp|verbs)$")


def back_ends(found):
    return {NAMES.get(one, one) for groups in found for one in groups if one}


def python_statements(text):
    """For each expression that is not part of another one, its strings; a docstring is a separate one."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.expr):
            for one in (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)):
                yield [
                    part.value
                    for part in ast.walk(one)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]


def listed(path):
    """The largest number of back-ends that one place of a file names: a statement, a source's includes, or all of a
    meson.build."""
    text = path.read_text()
    if path.name == "meson.build":
        places = [IN_MESON.findall(re.sub(r"#[^\n]*", "", text))]
    elif path.suffix in (".cc", ".h"):
        text = COMMENT.sub(lambda match: match.group(1) or "", text)
        places = [IN_CXX.findall(place) for place in text.split(";")]
    elif path.suffix == ".py" or text.startswith("#!") and "python" in text.split("\n", 1)[0]:
        places = [
            [match.groups() for string in strings if (match := IN_PYTHON.match(string))]
            for strings in python_statements(text)
        ]
    else:
        places = []
    return max((back_ends(place) for place in places), key=len, default=set())


def lists(root):
    """Files that list two or more back-ends: each must learn of the next one."""
    found = set()
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            name = path.relative_to(root).as_posix()
            source = path.suffix in (".cc", ".h", ".py", "") or path.name == "meson.build"
            if source and path.is_file() and not OWN.match(name) and len(listed(path)) > 1:
                found.add(name)
    return found - {SELF}


def test_BackEnds_Lists_AreFewAndKnown():
    assert lists(ROOT) == set(LISTS), "each of these has to be told of a new back-end: iterate over a table instead"
    assert len(LISTS) <= AT_MOST
    page = (ROOT / "docs/adding-a-backend.md").read_text()
    assert [name for name in LISTS if f"| `{name}` |" not in page] == [], "the page's table does not have them"


def test_BackEnds_Table_HasEveryFolder():
    folders = {path.parent.name for path in (ROOT / "transport").glob("*/back_end.cc")}
    assert folders == set(NAMES.values()), "a new back-end: give it a name here"
    table = (ROOT / "transport/process/back_ends.cc").read_text()
    assert set(re.findall(r"(\w+)::backEnd\(\)", table)) == folders


@pytest.mark.parametrize(
    "name, text, found",
    [
        ("transport/process/x.cc", 'const char* names[] = {"DPDK",\n "RDMA"};', True),
        ("transport/process/x.cc", 'f("DPDK"); f("RDMA");  // "UDP", "DPDK"', False),
        ("tools/x.h", '#include "transport/udp/udp_port.h"\n#include "transport/verbs/verbs_transport.h"\n', True),
        ("transport/udp/x.cc", 'const char* names[] = {"DPDK", "RDMA"};', False),
        ("plugin/cpp/meson.build", "deps = [dpdk_port_dep, udp_port_dep]", True),
        ("plugin/cpp/meson.build", "deps = [dpdk_port_dep]  # not udp_port_dep", False),
        ("plugin/x.py", 'def f():\n    return {"DPDK": 1,\n        "UDP": 2}\n', True),
        ("scripts/x", '#!/usr/bin/python3\nif name in ("RDMA", "UDP"):\n    pass\n', True),
        ("plugin/x.py", '"""DPDK"""\nONE = "DPDK"\nOTHER = "RDMA over DPDK"\n', False),
        ("tools/x.py", 'if name == "DPDK":\n    pass\nelif name == "RDMA":\n    pass\n', False),
    ],
)
def test_Checker_ListPlanted_IsFound(tmp_path, name, text, found):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    assert lists(tmp_path) == ({name} if found else set())
