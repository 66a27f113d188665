"""A row for each published figure: what the model says, what was measured, or why it was not. Pure."""

from dataclasses import dataclass

from gloo_bypass_tools.model import prediction
from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study.published import articles, formulas, measured

# Where an article's figure is not measured. The first words of its study, or "study; metric or variant" -> why.
REASONS = {
    "one-rank cost": "a model of 8 B parameters on an accelerator",
    "ranks and data path": "4 to 16 accelerators",
    formulas.BENCHMARK: "PyTorch reduces in place, and so does all_reduce_perf",
    "shared bus": "a formula",
    "memory, 120M": "a count of bytes",
    "memory, 70B": "70 B parameters; ddp_train --zero says what DistilGPT2 takes",
    "activations": "a count of bytes",
    "70B fp32; volume_per_rank": "no study has so many ranks",
    "70B fp32": "70 B parameters",
    "bucket size, 7B, 8 ranks; buckets": "a count",
    "bucket size, 7B, 8 ranks; overhead": "its definition is not given",
    "bucket size, 7B, 8 ranks; 25 MB": "1 by definition",
    "bucket size, 7B, 8 ranks; 500 MB": "DistilGPT2's gradient is one bucket",
    "volume a step, 70B, 8 ranks; PowerSGD rank 4": "depends on the matrices' shapes, which are not given",
    "staleness": "a formula; ddp_train has it as --staleness-penalty exponential",
    "overlap": "a worked example",
    "top 1 %, 50 ms all-reduce, 5 ms": "a worked example",
    "accumulation": "a worked example",
    "PowerSGD": "a worked example",
    "order of additions": "its vectors are not given; scripts/study summation has ours",
}
THESIS, ARTICLES = "thesis", "articles"
NO_RUN = "no stored run has it"


@dataclass(frozen=True)
class Row:
    """`source`: thesis or articles; `section`: the table that it stands in. `model`: None where the model says nothing;
    `measured`: {transport: values, one a run}; `why`: why nothing was measured, or ''."""

    source: str
    section: str
    label: tuple
    unit: str
    published: float
    model: prediction.Prediction | None
    measured: dict
    why: str

    @property
    def modelled(self):
        return self.model is not None and self.model.modelled


def reason(figure, sources):
    study, _ = measured.owner_of(figure.study)
    if not sources.kept.get(study):
        return f"no run of {study} is kept"
    return NO_RUN


def reason_of_article(figure):
    """Of the longest key that fits."""
    said = (f"{figure.study}; {figure.metric}", f"{figure.study}; {figure.variant}")
    fitting = [begin for begin in REASONS if any(one.startswith(begin) for one in said)]
    return REASONS[max(fitting, key=len)] if fitting else NO_RUN


def thesis(sources):
    found = []
    for figure in measurements.read():
        values = measured.of_thesis(figure, sources)
        section = f"Table {figure.table}" if figure.table != "text" else "In the text"
        label = figure.variant, figure.metric, figure.statistic
        told = figure.unit, figure.value, prediction.predict(figure), values
        found.append(Row(THESIS, section, label, *told, "" if values else reason(figure, sources)))
    return found


def of_articles(sources):
    found = []
    for figure in articles.read():
        values = measured.of_article(figure, sources)
        why = "" if values else reason_of_article(figure)
        label = figure.variant or "-", figure.metric, ""
        told = figure.unit, figure.value, formulas.predict(figure), values, why
        found.append(Row(ARTICLES, f"{figure.article}: {figure.study}", label, *told))
    return found


def all_of(sources):
    return [*thesis(sources), *of_articles(sources)]
