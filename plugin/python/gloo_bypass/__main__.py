"""`python3 -m gloo_bypass`: which transports work here, and what the others lack; or whether UDP passes between two
hosts."""

import argparse
import contextlib
import dataclasses
import json
import os
import sys
from typing import Optional, Sequence

import torch

from . import BUILT_FOR_TORCH, __version__, _path_probe, available, library
from ._library import gloo

PROGRAM = "python3 -m gloo_bypass"


def parse(parser: argparse.ArgumentParser, arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser.add_argument(
        "transports",
        metavar="TRANSPORT",
        nargs="*",
        help="those that have to work, by their names in GLOO_DEVICE_TRANSPORT",
    )
    _path_probe.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--version", action="version", version=f"gloo_bypass {__version__}, built for PyTorch {BUILT_FOR_TORCH}"
    )
    options = parser.parse_args(arguments)
    if sum([options.probe is not None, options.listen is not None, bool(options.transports)]) > 1:
        parser.error("--probe, --listen and TRANSPORT do not go together")
    _path_probe.read_places(options, parser)
    return options


def listen(options: argparse.Namespace) -> int:
    with contextlib.suppress(KeyboardInterrupt):
        _path_probe.listen(
            options.listen, options.seconds, lambda line: print(f"{PROGRAM}: {line}", flush=True), PROGRAM
        )
    return 0


def probe(options: argparse.Namespace) -> int:
    ways = _path_probe.probe(options.probe, PROGRAM)
    if options.json:
        found = [
            {"name": way.name, "largest_bytes": way.largest, "problem": way.problem, "advice": way.advice}
            for way in ways
        ]
        print(json.dumps({"udp": found}))
    for way in ways if not options.json else ():
        print(f"{way.name}: {way.problem or f'packets of up to {way.largest} bytes arrive'}")
        if way.advice:
            print(f"  {way.advice}")
    return 1 if any(way.problem for way in ways) else 0


def show_available(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    answers = available()
    for name in options.transports:
        if name not in answers:
            parser.error(f"'{name}' is no transport; there are {', '.join(answers)}")
    if options.json:
        print(json.dumps({name: dataclasses.asdict(answer) for name, answer in answers.items()}))
    else:
        print(f"gloo_bypass {__version__} with PyTorch {torch.__version__}: Gloo {gloo}, {os.path.basename(library)}")
        for answer in answers.values():
            print(answer)
    return 0 if all(answers[name] for name in options.transports) else 1


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Says which transports work here, and what the others lack.\n\n" + _path_probe.HELP,
        epilog="Exit status 1 if a transport that was named does not work, or UDP does not go both ways; else 0.",
    )
    options = parse(parser, arguments)
    try:
        if options.listen is not None:
            return listen(options)
        return probe(options) if options.probe is not None else show_available(options, parser)
    except _path_probe.ProbeError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
