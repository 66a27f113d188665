"""gloo_bypass_tools.common.debian_mirror: which of apt's sources is Debian's, and which of apt's settings are kept."""

import os

import pytest

from gloo_bypass_tools.common import debian_mirror
from conftest import executable


@pytest.fixture(name="apt")
def fixture_apt(tmp_path, monkeypatch):
    """Sets apt's output; without a call, apt does not exist."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def answer(program, *lines):
        executable(tmp_path / "bin" / program, "#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))

    return answer


@pytest.mark.parametrize(
    "sources, mirror",
    [
        (["deb|bookworm|main|http://mirror.test/debian/|Debian"], "http://mirror.test/debian"),
        (
            [
                "deb|bookworm-security|main|http://security.test/debian-security/|Debian",
                "deb-src|trixie|main|http://src.test/debian/|Debian",
                "deb|trixie|main|https://deb.test/debian/|Debian",
            ],
            "https://deb.test/debian",
        ),
        (
            [
                "deb|stable|main|https://dl.browser.test/deb/|Browser",
                "deb|bookworm|stable|https://engine.test/debian/|",
                "deb|bookworm|main|http://never.updated.test/debian/|",
            ],
            "http://never.updated.test/debian",
        ),
        (["deb|noble|main|http://archive.test/ubuntu/|Ubuntu"], debian_mirror.PUBLIC_MIRROR),
        ([], debian_mirror.PUBLIC_MIRROR),
    ],
)
def test_Mirror_SourcesOfApt_DebiansOwnIsChosen(apt, sources, mirror):
    apt("apt-get", *sources)
    assert debian_mirror.debian_mirror() == mirror


def test_Mirror_ListOfMirrors_FirstIsTaken(apt, tmp_path):
    (tmp_path / "mirrors").write_text("# a comment\nhttps://near.test/debian priority:1\nhttps://far.test/debian\n")
    apt("apt-get", f"deb|bookworm|main|mirror+file:{tmp_path}/mirrors/|Debian")
    assert debian_mirror.debian_mirror() == "https://near.test/debian"


def test_Mirror_NoApt_IsDebiansPublicOne(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert debian_mirror.debian_mirror() == debian_mirror.PUBLIC_MIRROR
    assert debian_mirror.apt_options() == []


def test_AptOptions_SettingsOfApt_OnlyThoseOfTheWayAreGiven(apt):
    apt(
        "apt-config",
        'Acquire::http::Proxy "http://proxy.test:3142";',
        'Acquire::https::deb.test::Proxy "DIRECT";',
        'Acquire::Check-Valid-Until "false";',
        'Acquire::Languages "none";',
        'APT::Install-Recommends "true";',
    )
    assert debian_mirror.apt_options() == [
        '--aptopt=Acquire::http::Proxy "http://proxy.test:3142";',
        '--aptopt=Acquire::https::deb.test::Proxy "DIRECT";',
        '--aptopt=Acquire::Check-Valid-Until "false";',
    ]
