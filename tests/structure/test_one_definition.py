"""No qualified name has two definitions: a program that links both would use either (the one-definition rule).

Classes, structs, enumerations and constants at namespace scope of the project's headers and sources. What an anonymous
namespace holds is its file's own.
"""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["collectives", "plugin", "tools", "trainer", "transport"]
# A build has only one of these files: they define the same functions, each for a different case.
ALTERNATIVES = re.compile(r"(_missing\.cc|_missing\.h)$")

NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'"""
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
NAMESPACE = re.compile(r"^(?:inline\s+)?namespace\b\s*([\w:]*)$")
TYPE = re.compile(
    r"^(?:template\s*<.*>\s*)?(?:enum\s+class|enum\s+struct|enum|class|struct|union)\s+"
    r"(?:\[\[.*?\]\]\s*|alignas\s*\([^)]*\)\s*|[A-Z]+_[A-Z_]+(?:\([^)]*\))?\s+)*"
    r"([\w:]+(?:<[^{]*?>)?)\s*(?:final\s*)?(?::(?!:).*)?$",
    re.DOTALL,
)
CONSTANT = re.compile(
    r"^(?:(?:inline|static|constexpr|const)\s+)*constexpr\s[^(=]*?(\w+)(?:\[\w*\])*\s*(?:=|$)", re.DOTALL
)


def definitions(text):
    """The qualified names that a file defines at namespace scope, anonymous namespaces left out."""
    text = NOT_CODE.sub(" ", text)
    scopes, statement = [], ""  # a scope: a namespace's name, or None for everything else

    def defined(pattern):
        match = pattern.match(statement.strip())
        if match and None not in scopes:
            yield re.sub(r"\s+", " ", "::".join([*scopes, match.group(1)]))

    for piece in re.split(r"([{};])", text):
        if piece == "{":
            namespace = NAMESPACE.match(statement.strip())
            yield from () if namespace else defined(TYPE)
            yield from () if namespace else defined(CONSTANT)
            scopes.append((namespace.group(1) or None) if namespace else None)
            if re.match(r"\s*extern\s+$", statement):  # extern "C", its string taken out
                scopes[-1] = ""
        elif piece == "}":
            if scopes:
                scopes.pop()
        elif piece == ";":
            yield from defined(CONSTANT)
        else:
            statement = piece
            continue
        statement = ""


def doubles(root):
    places = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cc") and not ALTERNATIVES.search(path.name):
                # Twice in one file is for the compiler to find, or two sides of an #if.
                for name in dict.fromkeys(definitions(path.read_text())):
                    places.setdefault(name, []).append(path.relative_to(root).as_posix())
    return {name: files for name, files in places.items() if len(files) > 1}


def test_Sources_OfTheProject_DefineEachNameOnce():
    assert doubles(ROOT) == {}


def test_Definitions_OfRealHeaders_AreSeen():
    seen = set(definitions((ROOT / "transport/base/config.h").read_text()))
    assert {"gloo_bypass::TransportConfig", "gloo_bypass::HugePages"} <= seen
    assert sum(len(list(definitions(path.read_text()))) for path in (ROOT / "transport").rglob("*.h")) > 150


@pytest.mark.parametrize(
    "first, second, names",
    [
        ("namespace a { struct X { int b; }; }", "namespace a {\nclass X final : public Y {};\n}", ["a::X"]),
        (
            "namespace a::b { enum class X : int { kOne }; }",
            "namespace a { namespace b { enum X { kOne }; } }",
            ["a::b::X"],
        ),
        (
            "namespace a { inline constexpr int kX = 1; }",
            "namespace a { constexpr std::array<int, 2> kX{1, 2}; }",
            ["a::kX"],
        ),
        ("struct X {};", "template <typename T>\nstruct X {};", ["X"]),
        ("namespace a { void f(X x) {} struct X {}; }", 'namespace a { class [[nodiscard]] A_B("m") X {}; }', ["a::X"]),
        ("namespace a { struct X {}; }", "namespace b { struct X {}; }", []),
        ("namespace a { struct X {}; }", "namespace a { namespace { struct X {}; } }", []),
        ("namespace a { struct X {}; }", "namespace a { struct Y { struct X {}; }; struct X; class X* x; }", []),
        ("namespace a { struct X {}; }", "namespace a { // struct X {};\n#define B struct X {};\n}", []),
        ("template <> struct h<X> {};", "template <> struct h<Y> {};", []),
        ("namespace a { void f() { constexpr int kX = 1; } }", "namespace a { constexpr int f(int kX = 1); }", []),
    ],
)
def test_Checker_DefinitionsPlanted_DoublesAreFound(tmp_path, first, second, names):
    for name, text in (("transport/first.h", first), ("tools/deep/second.cc", second)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert list(doubles(tmp_path)) == names
