#!/usr/bin/python3
"""Runs steps one after the other in one guest of scripts/rdma-guest (a boot costs seconds), and reports each as a test.

    guest_test.py --guest scripts/rdma-guest [--option WORD]... STEP...     STEP is NAME|SECONDS|SHELL COMMAND

A step that is a GoogleTest or pytest program has its cases reported one by one; of any other, exit status 0 is passed
and 77 skipped. The last case is the guest's kernel log, in which no warning may be. With $GTEST_OUTPUT=xml:PATH a JUnit
report goes there. Exit status: 0, 1 when a case failed, 77 when this machine cannot run a guest.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

SKIPPED = 77
BESIDE_STEPS = 60  # seconds a run may take beside its steps: loading programs the first time
KERNEL_FAULTS = re.compile(r"WARNING: |BUG: |Oops|general protection|Call Trace|blocked for more than|refcount_t")


@dataclass
class Step:
    name: str
    seconds: int
    command: str
    folder: Path = None

    @property
    def output(self):
        path = self.folder / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def status(self):
        path = self.folder / "status"
        return int(path.read_text()) if path.exists() else None


def parse_step(text):
    name, seconds, command = text.split("|", 2)
    return Step(name, int(seconds), command)


def script(steps):
    """What the guest's shell runs. Each step leaves output, status and perhaps report.xml in its folder."""
    lines = []
    for step in steps:
        folder = shlex.quote(str(step.folder))
        lines += [
            f"cd {folder}; SECONDS=0",
            f"GTEST_OUTPUT=xml:{folder}/report.xml PYTEST_ADDOPTS=--junitxml={folder}/report.xml "
            f"timeout --kill-after=5 {step.seconds} bash -c {shlex.quote(step.command)} < /dev/null > output 2>&1",
            f'status=$?; echo $status > status; echo "{step.name}: exit status $status after $SECONDS s"',
        ]
    return "\n".join(lines) + "\n"


def case(name, failure=None, skipped=None):
    element = xml.Element("testcase", classname="guest", name=name)
    if failure:
        xml.SubElement(element, "failure", message=failure)
    elif skipped:
        xml.SubElement(element, "skipped", message=skipped)
    return element


def cases_of(step):
    """The cases of a step's own report, or one for the whole step; one more if it failed in a way its report does not
    show."""
    cases, has_report = [], True
    try:
        cases = list(xml.parse(step.folder / "report.xml").getroot().iter("testcase"))
    except (OSError, xml.ParseError):
        has_report = False
    lines = [line for line in step.output.splitlines() if line.strip()] or ["no output"]
    if step.status is None:
        return cases + [case(step.name, failure="was not run to its end")]
    if step.status == 124:
        return cases + [case(step.name, failure=f"took longer than {step.seconds} s: {lines[-1]}")]
    if step.status == SKIPPED and not cases:
        return [case(step.name, skipped=lines[-1])]
    if step.status == 0 and has_report and not cases:
        return [case(step.name, failure="no case ran")]
    if step.status == 0 or (cases and any(c.find("failure") is not None for c in cases)):
        return cases or [case(step.name)]
    return cases + [case(step.name, failure=f"exit status {step.status}: {lines[-1]}")]


def kernel_case(log):
    faults = (
        [line for line in log.read_text(errors="replace").splitlines() if KERNEL_FAULTS.search(line)]
        if log.exists()
        else ["no log"]
    )
    return case("kernel log is clean", failure=faults[0] if faults else None)


def write_report(cases):
    suite = xml.Element("testsuite", name="guest")
    suite.extend(cases)
    kind, _, path = os.environ.get("GTEST_OUTPUT", "").partition(":")
    if kind == "xml" and path:
        temporary = path + ".tmp"
        xml.ElementTree(suite).write(temporary)
        os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guest", required=True)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("steps", nargs="+", type=parse_step)
    arguments = parser.parse_args()

    checked = subprocess.run([arguments.guest, "check"], text=True, stdout=subprocess.PIPE, timeout=60)
    print(checked.stdout, end="")
    if checked.returncode != 0:
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="guest-test.") as folder:
        for number, step in enumerate(arguments.steps):
            step.folder = Path(folder) / str(number)
            step.folder.mkdir()
        (Path(folder) / "script").write_text(script(arguments.steps))
        log = Path(folder) / "dmesg"
        limit = sum(step.seconds + 5 for step in arguments.steps) + BESIDE_STEPS
        run = subprocess.run(
            [
                arguments.guest,
                "run",
                "--timeout",
                str(limit),
                "--writable",
                folder,
                "--dmesg",
                str(log),
                *arguments.option,
                "--",
                "bash",
                f"{folder}/script",
            ],
            stdin=subprocess.DEVNULL,
        )
        cases = [case for step in arguments.steps for case in cases_of(step)] + [kernel_case(log)]
        if run.returncode != 0:
            cases.append(case("guest", failure=f"rdma-guest: exit status {run.returncode}"))
        for step in arguments.steps:
            if step.status != 0:
                print(f"---- {step.name}\n{step.output}")
        write_report(cases)
    failures = [
        element for element in cases if element.find("failure") is not None or element.find("error") is not None
    ]
    for element in failures:
        print(f"FAILED {element.get('name')}: {(element.find('failure').get('message') or '').splitlines()[0]}")
    print(f"{len(cases)} cases, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
