"""The command line of gloo-bypass-doctor."""
import argparse
import json
import signal
import sys
from pathlib import Path

from gloo_bypass_tools.common.transports import TABLE
from gloo_bypass_tools.doctor.finding import MISSING, OK, WARNING
from gloo_bypass_tools.doctor.machine import Machine
from gloo_bypass_tools.doctor.paths import AUTO, TITLES, examine

NOT_WORKING, BAD_INPUT = 1, 2
DESCRIPTION = """\
Inspects this machine and says, for each way of moving packets, what it lacks and the command that mends it. It only \
reads.
Each line is a finding: ok; warning: it works, but slower, or not for every use; missing: it cannot work without."""
EPILOG = f"""\
{AUTO}.

exit status: 0 if every path asked for works (without --path: if any of memif, netdev, pci, udp and rdma does); 1 if \
not; 2 bad input"""
MARKS = {OK: ("ok", "green"), WARNING: ("warning", "yellow"), MISSING: ("MISSING", "red")}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="gloo-bypass-doctor", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", choices=TITLES, action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true",
                        help="for programs: {path: {works, findings: [{name, state, found, why, mend}]}}")
    parser.add_argument("--brief", action="store_true", help="no findings that are ok")
    parser.add_argument("--plugin", metavar="FILE", type=Path,
                        help="the libgloo_bypass.so to look at (default: build/plugin's, or the installed one)")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto",
                        help="default auto: on a terminal")
    parser.add_argument("--sysroot", metavar="DIR", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.sysroot.is_dir():
        parser.error(f"--sysroot: '{options.sysroot}' is no folder")
    return options


def works(findings):
    return all(finding.state != MISSING for finding in findings)


def text(path, findings, brief):
    """Lines of (text, colour) that report a path."""
    lacks = sum(finding.state == MISSING for finding in findings)
    verdict = "works" if not lacks else f"lacks {lacks} thing{'s' if lacks > 1 else ''}"
    yield f"{path}: {verdict}", "green" if not lacks else "red"
    yield f"  {TITLES[path]}", None
    for finding in findings:
        if brief and finding.state == OK:
            continue
        mark, colour = MARKS[finding.state]
        yield f"  {mark:<8} {finding.name}: {finding.found}", colour
        if finding.state != OK and finding.why:
            yield f"           {finding.why}", None
        for command in finding.mend:
            yield f"           $ {command}" if not command.startswith("#") else f"           {command}", "cyan"
    yield "", None


def writer(color):
    """A function that prints (line, colour): with rich on a terminal if it is installed, else plain."""
    if color == "always" or (color == "auto" and sys.stdout.isatty()):
        try:
            from rich.console import Console
            console = Console(highlight=False, soft_wrap=True, force_terminal=True if color == "always" else None)
            return lambda line, colour: console.print(line, style=colour, markup=False)
        except ImportError:
            pass
    return lambda line, colour: print(line)


def main(arguments=None):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" is no fault
    options = parse(arguments)
    machine = Machine(options.sysroot)
    results = {path: examine(machine, path, options.plugin) for path in (dict.fromkeys(options.path) or TITLES)}
    if options.json:
        print(json.dumps({path: {"works": works(findings), "findings": [f.as_dict() for f in findings]}
                          for path, findings in results.items()}, indent=2))
    else:
        put = writer(options.color)
        for path, findings in results.items():
            for line, colour in text(path, findings, options.brief):
                put(line, colour)
        if not options.path:
            put(AUTO, None)
    if options.path:
        return 0 if all(works(findings) for findings in results.values()) else NOT_WORKING
    return 0 if any(works(results[path]) for one in TABLE for path in one.paths) else NOT_WORKING
