"""What a subcommand found: tables on the terminal, JSON to a file or, for '-', to standard output."""

import json
import sys

from gloo_bypass_tools.common.failures import Failure
from gloo_bypass_tools.report.display import console_for_output
from gloo_bypass_tools.common.whole_file import write_whole
from rich.table import Table
from rich.text import Text


class OutputError(Failure):
    """A file cannot be written, or a picture drawn."""


def add_option(parser):
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write inputs and results to FILE too, whole or not at all; '-': to standard output, and no table",
    )


def table(title, *columns):
    """Columns with a '<' before their name align left, others right."""
    made = Table(title=title, header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        left = column.startswith("<")
        made.add_column(Text(column.removeprefix("<")), justify="left" if left else "right", no_wrap=not left)
    return made


def add_row(made, *cells, style=None):
    made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells), style=style)


def drawing():
    """The module that draws. It alone wants more of Python than a model's figures do."""
    try:
        from gloo_bypass_tools.model import plot
    except ModuleNotFoundError as error:
        raise OutputError(
            f"--plot: there is no Python module {error.name}: install python3-matplotlib and python3-pandas"
        ) from None
    return plot


def write_file(path, content):
    try:
        write_whole(path, content)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def finish(options, record, tables, lines=()):
    """Shows tables, then lines; writes the record first, so that what is on the terminal is also in the file."""
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
        return
    if options.json:
        write_file(options.json, text.encode("utf-8"))
    console = console_for_output()
    for number, one in enumerate(tables):
        if number:
            console.print()
        # As a line of its own: rich would break a title at its table's width.
        title, one.title = one.title, None
        console.print(Text(title, style="bold"), soft_wrap=True)
        console.print(one)
    if lines:
        console.print()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
