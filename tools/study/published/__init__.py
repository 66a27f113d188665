"""Every published figure beside the model and what was measured here: of a thesis and of four articles.

articles.py     the articles' figures, read and checked
formulas.py     the model's figure for an article's figure
measured.py     what kept runs of studies and of this one have for it
rows.py         a row for each published figure: model, measured, or why not
benchmarks.py   what no study measures: all-reduces in a host's memory, the published loop; and its stored run
tables.py       Markdown
"""
