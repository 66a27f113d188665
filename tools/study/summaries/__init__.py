"""Summaries of studies that are kept in docs/studies/runs, and the tables that pages make of them.

lines.py    a study's summary as lines of one form, whatever its layout
stored.py   a kept run: its folder with run.json and summary.csv
tables.py   Markdown of all kept runs of a study
keeping.py  scripts/study keep: from a results folder to docs/studies/runs, and the pages' tables again
"""
