"""The command line of scripts/model. Exit status: 0, 2 for bad input (one line says what), 1 where a result could not
be written."""

import argparse
import os
import sys

from gloo_bypass_tools.model import (
    fit_command,
    plan_command,
    predict_command,
    published_command,
    simulated_command,
    volume_command,
)

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
DESCRIPTION = """What an all-reduce carries and how long it takes, by model: to stand beside measured and published \
figures.

Each subcommand's --help states its formulas and units."""


def parser():
    made = argparse.ArgumentParser(
        prog="model", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parsers = made.add_subparsers(dest="subcommand", required=True, metavar="SUBCOMMAND")
    for module in (volume_command, fit_command, predict_command, plan_command, published_command, simulated_command):
        module.add_parser(parsers)
    return made


def main(arguments=None):
    options = parser().parse_args(arguments)
    from gloo_bypass_tools.report.records import RecordError

    from gloo_bypass_tools.model.fitting import FitError
    from gloo_bypass_tools.model.output import OutputError

    name = f"model {options.subcommand}"
    try:
        return options.run(options)
    except (RecordError, FitError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return BAD_INPUT
    except OutputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # Whoever read the output has seen enough; what Python flushes at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
