"""The command line of scripts/build-wheel."""

import argparse
import re
import sys
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.wheel import building
from gloo_bypass_tools.wheel.failures import WheelError
from gloo_bypass_tools.wheel.generations import GENERATIONS

DESCRIPTION = (
    """Builds the wheel of gloo-bypass for PyTorch as pip installs it: one file for Python 3.9 and later and
for PyTorch """
    + ", ".join(release for generation in GENERATIONS for release in generation.releases)
    + """ from PyPI.
DPDK and the rest are in it; using it needs no Debian package, no compiler and no root."""
)
NOTES = """Building needs what scripts/install-packages installs, PyPI, and apt with a Debian mirror that has the
newer releases, for the headers of their Gloo. The same commit and the same packages of headers give the same bytes. A
second build compiles what has changed."""


def torch_version(text):
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no release of PyTorch, as 2.13.0")
    return text


def parser():
    top = argparse.ArgumentParser(
        prog="build-wheel",
        description=DESCRIPTION,
        epilog=NOTES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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


def main(arguments=None):
    options = parser().parse_args(arguments)
    processes.interrupt_once()
    place = program_places.ROOT / "build-wheel"
    output = options.output.resolve()
    try:
        wheel = building.build_wheel(place, output, say)
        print(wheel)
        if options.sdist:
            print(building.build_sdist(place, output, say))
        if options.torch:
            print(building.environment_with_torch(place, options.torch, wheel, say))
    except (WheelError, processes.StageError, OSError) as error:
        print(f"build-wheel: {error}", file=sys.stderr)
        return 1
    except processes.Interrupted as signalled:
        print(f"build-wheel: ended by {signalled}", file=sys.stderr)
        return signalled.status
    return 0
