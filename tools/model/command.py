"""The command line of scripts/model. Exit status: 0, 2 for bad input (one line says what), 1 where a result could not
be written."""

import os
import sys

from gloo_bypass_tools.common.failures import FAILED, exit_status
from gloo_bypass_tools.common.options import AS_WRITTEN, command_parser
from gloo_bypass_tools.model import (
    fit_command,
    output,
    plan_command,
    predict_command,
    published_command,
    simulated_command,
    volume_command,
)

DESCRIPTION = """What an all-reduce carries and how long it takes, by model: to stand beside measured and published \
figures.

Each subcommand's --help states its formulas and units."""


SUBCOMMANDS = {
    "volume": volume_command,
    "fit": fit_command,
    "predict": predict_command,
    "plan": plan_command,
    "published": published_command,
    "simulated": simulated_command,
}


def parser():
    made = command_parser("model", DESCRIPTION)
    parsers = made.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for name, module in SUBCOMMANDS.items():
        added = parsers.add_parser(name, help=module.HELP, description=module.DESCRIPTION, **AS_WRITTEN)
        module.add_options(added)
        output.add_option(added)
        added.set_defaults(run=module.run, refuse=added.error)
    return made


def run(options):
    try:
        return options.run(options)
    except BrokenPipeError:
        # Whoever read the output has seen enough; what Python flushes at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def main(arguments=None):
    options = parser().parse_args(arguments)
    return exit_status(f"model {options.subcommand}", lambda: run(options))
