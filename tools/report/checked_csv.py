"""CSV files of which every line is checked when it is read: one that cannot be understood is refused with its number,
never skipped."""

import csv
import math

from gloo_bypass_tools.report.records import RecordError


def number_at(place, row, column, nullable=False, least=-math.inf):
    """A finite number; None where the column is empty and may be."""
    if nullable and not row[column]:
        return None
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < least:
        what = "a finite number" if least == -math.inf else f"a number of {least:g} or more"
        raise RecordError(f"{place}: {column} is {row[column]!r}, not {what}")
    return value


def text_at(place, row, column):
    if not row[column] or row[column] != row[column].strip():
        raise RecordError(f"{place}: column '{column}' is {row[column]!r}")
    return row[column]


def read(path, columns, line_of, key_of=None):
    """What `line_of(place, row)` makes of each line, in order. `key_of`: of a line, what no other may have."""
    made, seen = [], {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != list(columns):
                raise RecordError(f"{path}:1: the first line is not {','.join(columns)}")
            for row in reader:
                place = f"{path}:{reader.line_num}"
                if None in row or None in row.values():
                    raise RecordError(f"{place}: {len(columns)} columns are needed: {','.join(columns)}")
                line = line_of(place, row)
                if key_of is not None:
                    if (key := key_of(line)) in seen:
                        raise RecordError(f"{place}: the same figure as in line {seen[key]}: {' '.join(key)}")
                    seen[key] = reader.line_num
                made.append(line)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path}: not a CSV file: {error}") from error
    if not made:
        raise RecordError(f"{path}: no figures")
    return made
