"""The dissector names the algorithms of collectives as the catalogue does: their values go over the wire."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def names_in_catalogue(text):
    """In the order of their values."""
    return re.findall(r'"([\w-]+)"', re.search(r"kNames\[\] = \{(.*?)\};", text, re.DOTALL).group(1))


def names_in_dissector(text):
    found = re.findall(
        r'\[(\d+)\] = "([\w-]+)"', re.search(r"local algorithms = \{(.*?)\n\}", text, re.DOTALL).group(1)
    )
    return [name for _, name in sorted((int(value), name) for value, name in found)], [int(value) for value, _ in found]


def test_Algorithms_OfTheDissector_AreTheCatalogues():
    catalogue = names_in_catalogue((ROOT / "collectives/schedule/catalogue.cc").read_text())
    names, values = names_in_dissector((ROOT / "tools/wireshark/gloo_bypass.lua").read_text())
    assert names == catalogue and sorted(values) == list(range(len(catalogue)))


def test_Checker_NamesPlanted_AreSeen():
    assert names_in_catalogue('kNames[] = {"a",\n "b-c"};') == ["a", "b-c"]
    assert names_in_dissector('local algorithms = {\n  [1] = "b-c", [0] = "a",\n}\n') == (["a", "b-c"], [1, 0])
