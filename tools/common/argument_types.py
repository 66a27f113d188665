"""Types of command-line arguments that several commands take, for argparse. Errors: one line that says what is
allowed."""

import argparse
import os
import re
from pathlib import Path


def number_in(kind, low, high):
    """A number of `kind` (int or float) from low to high."""
    noun = "whole number" if kind is int else "number"

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}': it must be a {noun} from {low} to {high}")
        return value

    return parse


def numbers_in(kind, low, high):
    """Numbers of `kind` from low to high with commas between, as a tuple."""
    one = number_in(kind, low, high)

    def parse(text):
        return tuple(one(part.strip()) for part in text.split(","))

    return parse


def distinct(parse):
    """A list's parser that refuses what is named twice."""

    def parse_once(text):
        values = parse(text)
        if len(set(values)) != len(values):
            raise argparse.ArgumentTypeError(f"'{text}' names one twice")
        return values

    return parse_once


SIZE_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def size_of(text):
    """Bytes of '4', '64K', '64M': powers of 1024, as all_reduce_perf reads them."""
    found = re.fullmatch(r"(\d{1,16})([KMG]?)", text.strip().upper())
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is no size: write 4, 64K, 64M or 1G")
    return int(found.group(1)) * SIZE_SUFFIXES[found.group(2)]


def names_of(known):
    """Some of these names, each once, with commas between: a tuple in the order given."""

    def parse(text):
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
        return names

    return distinct(parse)


def result_file(text):
    """Where a result is written at the end, which must not fail after an hour: its folder is made now."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"'{path.parent}' cannot be made a folder: {error.strerror}") from error
    if path.is_symlink() and path.is_file():
        raise argparse.ArgumentTypeError(f"'{text}' is a symbolic link to a file: name the file itself")
    # A file is replaced by another one beside it; a pipe or a device is written to.
    kept = path.exists() and not path.is_file()
    if path.is_dir() or not os.access(path if kept else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"'{text}' cannot be written")
    return path


def split_at_dashes(arguments):
    """A command's own arguments, and the program's: the first "--" and what follows."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end:]


def assignment(text):
    """NAME=VALUE, the name one that environment variables may have."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value
