"""Stored runs of programs as an HTML page."""

import html
import re

from gloo_bypass_tools.report import program_tables, programs_page, stored_programs


def text_of(page):
    body = page[page.index("<body") :]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_Page_Run_HasItsTableItsGainAndItsBound(write_run):
    run = stored_programs.read(write_run())
    page = programs_page.render([run])
    said = text_of(page)
    assert "4.00 × tensor-parallel decoding: DPDK as fast as TCP" in said.replace("\u202f", " ")
    share = programs_page.share_of_bound(run, "DPDK", *programs_page.BOUNDED[1][1:])
    assert f"{share:.2f} of its rate without all-reduces: a step under DDP over DPDK" in said
    assert "all-reduces: tensor-parallel decoding" not in said, "it was not measured without them"
    for line in program_tables.table_of(run)[1]:
        for cell in filter(None, line):
            assert cell.replace("`", "") in said.replace(" : ", ": "), cell
    assert "Left out: something: a reason." in said
    assert "http" not in page and "<script" not in page


def test_Page_SeveralRuns_StandBelowEachOther(write_run):
    runs = [stored_programs.read(write_run()), stored_programs.read(write_run(name="b.json", cores=16))]
    page = programs_page.render(runs)
    assert page.count("<table>") == 2 and "16 cores" in page


def test_Page_WhatLoses_IsMarked(write_run):
    page = programs_page.render([stored_programs.read(write_run(dpdk_us=2000.0))])
    assert '<b class="bad">0.5 x</b>' in page


def test_Page_TextOfARun_IsEscaped(write_run):
    def hostile(record):
        record["left_out"] = [{"what": "<script>", "why": "`<b>`"}]

    page = programs_page.render([stored_programs.read(write_run(hostile))])
    assert "<script>" not in page and "&lt;script&gt;" in page and "<code>&lt;b&gt;</code>" in page


def test_Page_MachineThatWasNotSteady_PutsTilesInDoubt(write_run):
    page = programs_page.render([stored_programs.read(write_run(alone_us=(500.0, 900.0)))])
    assert 'class="tile doubt"' in page and "The machine was not steady" in page
