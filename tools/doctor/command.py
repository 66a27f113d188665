"""The command line of gloo-bypass-doctor."""

import argparse
import contextlib
import json
import signal
import sys
from pathlib import Path

from gloo_bypass_tools.common.options import REPEATED, command_parser
from gloo_bypass_tools.common.transports import TABLE
from gloo_bypass_tools.doctor import path_probe
from gloo_bypass_tools.doctor.finding import MISSING, OK, WARNING, Subject
from gloo_bypass_tools.doctor.machine import Machine
from gloo_bypass_tools.doctor.paths import AUTO, TITLES, examine

PROGRAM = "gloo-bypass-doctor"
NOT_WORKING = 1
DESCRIPTION = f"""\
Inspects this machine and says, for each way of moving packets, what it lacks and the command that mends it. It only \
reads.
Each line is a finding: ok; warning: it works, but slower, or not for every use; missing: it cannot work without.

{path_probe.HELP}"""
EPILOG = f"""\
{AUTO}.

exit status: 0 if every path asked for works (without --path: if any of memif, netdev, pci, udp and rdma does; with \
--probe: if UDP goes both ways); 1 if not; 2 bad input"""
MARKS = {OK: ("ok", "green"), WARNING: ("warning", "yellow"), MISSING: ("MISSING", "red")}


def parse(arguments):
    parser = command_parser(PROGRAM, DESCRIPTION, EPILOG)
    parser.add_argument("--path", choices=TITLES, help="only this one; may be repeated", **REPEATED)
    path_probe.add_arguments(parser)
    parser.add_argument(
        "--json", action="store_true", help="for programs: {path: {works, findings: [{name, state, found, why, mend}]}}"
    )
    parser.add_argument("--brief", action="store_true", help="no findings that are ok")
    parser.add_argument(
        "--plugin",
        metavar="FILE",
        type=Path,
        help="the libgloo_bypass.so to look at (default: build/plugin's, or the installed one)",
    )
    parser.add_argument(
        "--wheel",
        action="store_true",
        help="for the wheel and PyTorch from pip: leave out what they bring along, such as DPDK; "
        "`python3 -m gloo_bypass` checks the wheel itself",
    )
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="default auto: on a terminal"
    )
    parser.add_argument("--sysroot", metavar="DIR", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.sysroot.is_dir():
        parser.error(f"--sysroot: '{options.sysroot}' is no folder")
    if sum([options.probe is not None, options.listen is not None, bool(options.path)]) > 1:
        parser.error("--probe, --listen and --path do not go together")
    if options.plugin and options.wheel:
        parser.error("--plugin and --wheel do not go together")
    path_probe.read_places(options, parser)
    return options


def works(findings):
    return all(finding.state != MISSING for finding in findings)


def text(path, title, findings, brief):
    """Lines of (text, colour) that report a path."""
    lacks = sum(finding.state == MISSING for finding in findings)
    verdict = "works" if not lacks else f"lacks {lacks} thing{'s' if lacks > 1 else ''}"
    yield f"{path}: {verdict}", "green" if not lacks else "red"
    yield f"  {title}", None
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


def listen_for_probes(options):
    with contextlib.suppress(KeyboardInterrupt):
        path_probe.listen(
            options.listen, options.seconds, lambda line: print(f"{PROGRAM}: {line}", flush=True), PROGRAM
        )


def finding_of(direction):
    subject = Subject(direction.name)
    if direction.problem:
        return subject.missing(direction.problem, "ranks need UDP both ways", direction.advice)
    if direction.is_narrow:
        return subject.warning(
            f"packets of more than {direction.largest} bytes do not arrive",
            "ranks find that out by themselves, once they have lost some; this setting tells them at once",
            direction.advice,
        )
    return subject.ok(f"packets of up to {direction.largest} bytes arrive")


def examine_all(options):
    """(title, findings) of each path asked for, or of the probe."""
    if options.probe is not None:
        ways = path_probe.probe(options.probe, PROGRAM)
        return {"udp": ("UDP between this host and another", [finding_of(way) for way in ways])}
    machine, paths = Machine(options.sysroot), dict.fromkeys(options.path) or TITLES
    return {path: (TITLES[path], examine(machine, path, options.plugin, options.wheel)) for path in paths}


def main(arguments=None):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" is no fault
    options = parse(arguments)
    try:
        if options.listen is not None:
            return listen_for_probes(options)
        results = examine_all(options)
    except path_probe.ProbeError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return NOT_WORKING
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if options.json:
        record = {
            path: {"works": works(findings), "findings": [one.as_dict() for one in findings]}
            for path, (_, findings) in results.items()
        }
        print(json.dumps(record, indent=2))
    else:
        put = writer(options.color)
        for path, (title, findings) in results.items():
            for line, colour in text(path, title, findings, options.brief):
                put(line, colour)
        if not options.path and options.probe is None:
            put(AUTO, None)
    if options.path or options.probe is not None:
        return 0 if all(works(findings) for _, findings in results.values()) else NOT_WORKING
    return 0 if any(works(results[path][1]) for one in TABLE for path in one.paths) else NOT_WORKING
