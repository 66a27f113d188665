"""A study is one file: the catalogue finds it, with its own order, texts and model."""

import sys

import pytest
from gloo_bypass_tools.study import catalogue, definition, studies, sweep_tables
from gloo_bypass_tools.study.plan import plan_of

PLANTED = '''
from gloo_bypass_tools.study.definition import TRAIN, TRAINING_SCALES, Point, sweep

STUDIES = (sweep(TRAIN,
    name="planted", order=105, title="A title", about="""
Two
lines.
""", model_about="Half the\\nranks.", axis="ranks", base="2",
    variants=(Point("2"), Point("4", ranks=4)), quantities=("t_step",), scales=TRAINING_SCALES,
    predicted=lambda asked: asked.point.ranks / 2 if asked.key == "t_step" else None),)
'''


@pytest.fixture(name="planted")
def fixture_planted(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.setattr(studies, "__path__", [*studies.__path__, str(tmp_path)])
    monkeypatch.setattr(catalogue, "STUDIES", catalogue.found())
    yield catalogue.STUDIES["planted"]
    del sys.modules[f"{studies.__name__}.planted"]


def test_catalogue_newFile_IsAStudyInItsPlace(planted):
    names = list(catalogue.STUDIES)
    place = names.index("planted")
    assert (names[place - 1], names[place + 1]) == ("loss", "algorithm")
    assert (planted.about, planted.model_about) == ("Two lines.", "Half the ranks.")


def test_catalogue_newFile_HasItsOwnModel(planted):
    plan = plan_of(planted, "small")
    for key, made in (("t_step", 2.0), ("t_ar", None)):
        assert sweep_tables.model_of(plan, planted, planted.variant("4"), "TCP", key, {}, 2) == made
    assert sweep_tables.model_of(plan, planted, planted.variant("2"), "TCP", "bytes_per_event", {}, 2) > 0


def test_catalogue_names_AreNoneTwice():
    listed = [one for name in ("edge_latency", "scaling", "flap") for one in vars(studies)[name].STUDIES]
    assert len(catalogue.STUDIES) == 15 and all(catalogue.STUDIES[one.name] is one for one in listed)
    assert len({one.order for one in catalogue.STUDIES.values()}) == 15
    assert all(set(one.quantities) <= set(sweep_tables.QUANTITIES) for one in catalogue.STUDIES.values())
    assert all(bool(one.quantities) == (one.layout == definition.SWEEP) for one in catalogue.STUDIES.values())
