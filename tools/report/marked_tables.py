"""Tables of a page in Markdown that are made of stored runs, each between two comments:

<!-- table: links -->
...
<!-- end of table -->
"""

import re
from functools import partial
from pathlib import Path

from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.report.records import RecordError

# Table NAME of a study's page is of NAME-run.json beside it.
PAGE, RUN = "README.md", "-run.json"
MARKED = re.compile(
    r"(?P<begin><!-- table: (?P<name>[\w-]+) -->\n)(?P<table>.*?)(?P<end><!-- end of table -->)", re.DOTALL
)


def renewed(text, makers, place):
    """The text with its tables made again by `makers`, {name: function}. One that comes out empty is left as it is;
    RecordError for one that nobody makes."""

    def table(match):
        if match["name"] not in makers:
            raise RecordError(f"{place}: nobody makes the table '{match['name']}'; there are {', '.join(makers)}")
        made = makers[match["name"]]()
        return f"{match['begin']}{made}\n{match['end']}" if made else match.group()

    return MARKED.sub(table, text)


def names_of(text):
    """Of the tables that a page has."""
    return [match["name"] for match in MARKED.finditer(text)]


def check(path, renewed_text):
    """(the page's text, the text with its tables made again); writes nothing."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    return text, renewed_text(text)


def renew(path, renewed_text):
    """Writes the page where `renewed_text(text)` differs from its text. Whether it did."""
    text, new = check(path, renewed_text)
    if new == text:
        return False
    write_whole(path, new.encode())
    return True


def of_runs(text, folder, section):
    """The text of a study's page with its tables made again; `section(path)` makes that of a stored run."""
    paths = sorted(Path(folder).glob(f"*{RUN}"))
    return renewed(text, {path.name.removesuffix(RUN): partial(section, path) for path in paths}, folder)
