"""The table of transports agrees with the process's own table of back-ends."""

import re

from conftest import ROOT
from gloo_bypass_tools.common.transports import DEVICES

NAME = re.compile(r'\{\s*\.name = "(\w+)"')


def test_Devices_OfThePythonTable_AreTcpAndTheBackEndsInTheirOrder():
    body = re.search(
        r"std::vector<BackEnd>\{(.*?)\}", (ROOT / "transport/process/back_ends.cc").read_text(), re.DOTALL
    ).group(1)
    folders = re.findall(r"(\w+)::backEnd\(\)", body)
    names = [NAME.search((ROOT / "transport" / folder / "back_end.cc").read_text()).group(1) for folder in folders]
    assert ("TCP", *names) == DEVICES
