"""The types of gloo_bypass.stats() have the keys that the library writes: the rows of the table of counters."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r'\{\s*&C::\w+,\s*"(\w+)"')


def rows(text):
    """The keys of the counters' table, in its order."""
    return ROW.findall(text)


def typed_keys(text, name):
    (found,) = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.target.id: ast.unparse(node.annotation) for node in found.body if isinstance(node, ast.AnnAssign)}


def test_Counters_OfThePackage_AreTheTablesRows():
    written = rows((ROOT / "transport/channel/channel_counters.cc").read_text())
    typed = typed_keys((ROOT / "plugin/python/gloo_bypass/_stats.py").read_text(), "Counters")
    assert len(written) > 20 and len(set(written)) == len(written)
    assert sorted(typed) == sorted(written)
    assert set(typed.values()) == {"int"}


def test_Checker_RowOrKeyPlanted_IsSeen():
    assert rows('{&C::a, "b_c", "d"}, {\n &C::e,\n "f", "g"},') == ["b_c", "f"]
    assert typed_keys("class Counters:\n    '''Text.'''\n    x: int\n    y: str  # z: int\n", "Counters") == {
        "x": "int",
        "y": "str",
    }
