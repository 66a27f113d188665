"""The command line of scripts/build-wheel."""

import argparse
import re
import sys
from pathlib import Path

from gloo_bypass_tools.common import exclusive, processes, program_places
from gloo_bypass_tools.common.failures import exit_status
from gloo_bypass_tools.common.options import command_parser
from gloo_bypass_tools.wheel import building
from gloo_bypass_tools.wheel.failures import WheelError
from gloo_bypass_tools.wheel.generations import GENERATIONS

RELEASES = ", ".join(release for generation in GENERATIONS for release in generation.releases)
DESCRIPTION = f"""Builds the wheel of gloo-bypass for PyTorch as pip installs it: one file for Python 3.9 and later and
for PyTorch {RELEASES} from PyPI.
DPDK and the rest are in it; using it needs no Debian package, no compiler and no root."""
NOTES = """Building needs what scripts/install-packages installs, PyPI, and apt with a Debian mirror that has the
newer releases, for the headers of their Gloo. The same commit and the same packages of headers give the same bytes. A
second build compiles what has changed."""


def torch_version(text):
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no release of PyTorch, as 2.13.0")
    return text


def parser():
    top = command_parser("build-wheel", DESCRIPTION, NOTES, allow_abbrev=False)
    top.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=program_places.ROOT / "build-wheel",
        help="where the wheel goes (default: build-wheel/); an earlier one there is replaced",
    )
    top.add_argument("--sdist", action="store_true", help="also the source distribution, of the last commit")
    top.add_argument(
        "--torch",
        type=torch_version,
        metavar="VERSION",
        help="also make a virtual environment with this PyTorch from PyPI and the wheel; the last line "
        "printed is its Python",
    )
    return top


def say(text):
    print(f"build-wheel: {text}", file=sys.stderr, flush=True)


def build(options):
    place, output = program_places.ROOT / "build-wheel", options.output.resolve()
    place.mkdir(parents=True, exist_ok=True)
    with exclusive.alone(place, WheelError(f"another build-wheel works in {place}: wait for it, or end it")):
        return build_alone(options, place, output)


def build_alone(options, place, output):
    wheel = building.build_wheel(place, output, say)
    print(wheel)
    if options.sdist:
        print(building.build_sdist(place, output, say))
    if options.torch:
        print(building.environment_with_torch(place, options.torch, wheel, say))
    return 0


def main(arguments=None):
    options = parser().parse_args(arguments)
    processes.interrupt_once()
    return exit_status("build-wheel", lambda: build(options), (processes.StageError, OSError))
