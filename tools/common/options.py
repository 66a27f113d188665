"""Parsers and options of command lines, as several commands have them."""

import argparse
from pathlib import Path

from gloo_bypass_tools.common.argument_types import assignment, number_in
from gloo_bypass_tools.common.program_places import ROOT

# --help shows description and epilog as they are written.
AS_WRITTEN = {"formatter_class": argparse.RawDescriptionHelpFormatter}
# An option that may be given several times.
REPEATED = {"action": "append", "default": []}


def command_parser(program, description, epilog=None, **more):
    return argparse.ArgumentParser(prog=program, description=description, epilog=epilog, **AS_WRITTEN, **more)


def add_number(parser, flag, kind, low, high, meaning, default=None, metavar="N", **more):
    """A number of `kind` from low to high. --help tells the default, unless `meaning` does."""
    if default is not None and "default" not in meaning:
        meaning += f" (default {default:g})" if kind is float else f" (default {default})"
    parser.add_argument(flag, type=number_in(kind, low, high), default=default, metavar=metavar, help=meaning, **more)


def add_build(parser, meaning="build folder"):
    parser.add_argument("--build", type=Path, default=ROOT / "build", metavar="DIR", help=f"{meaning} (default build)")


def add_environment(parser, meaning):
    parser.add_argument("--env", type=assignment, metavar="NAME=VALUE", help=f"{meaning}; may be repeated", **REPEATED)


def add_output(parser, what, name):
    """`name`: of the folder below results/ that is made unless the user names one."""
    meaning = f"a new folder for {what} (default results/{name})"
    parser.add_argument("--output", type=Path, metavar="DIR", help=meaning)


def add_run_options(parser, what, name):
    """The output folder and the time limit of a run of ranks."""
    add_output(parser, what, name)
    add_number(parser, "--timeout", float, 1, 7 * 86400, "for the run", default=3600.0, metavar="S")
