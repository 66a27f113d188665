"""The command line of gloo-bypass-doctor."""
import argparse
import json
import os
import signal
import sys
from pathlib import Path

from gloo_bypass_tools.common.argument_types import number_in
from gloo_bypass_tools.common.transports import TABLE
from gloo_bypass_tools.doctor.finding import MISSING, OK, WARNING, missing, ok
from gloo_bypass_tools.doctor.machine import Machine, integer
from gloo_bypass_tools.doctor.path_probe import DEFAULT_PORT, ProbeError, listen, place, probe
from gloo_bypass_tools.doctor.paths import AUTO, TITLES, examine

NOT_WORKING, BAD_INPUT = 1, 2
DESCRIPTION = """\
Inspects this machine and says, for each way of moving packets, what it lacks and the command that mends it. It only \
reads.
Each line is a finding: ok; warning: it works, but slower, or not for every use; missing: it cannot work without.

Between two hosts: --listen on one, --probe ADDRESS on the other. UDP packets of several sizes go both ways for two \
seconds; each way is judged by itself. They need a TCP connection to the same port.
ADDRESS is a name or an address, with :PORT after it where another port than the first of GLOO_BYPASS_UDP_PORT \
(47777) is to be used, as in 10.0.0.2:47790 or [fd00::2]:47790."""
EPILOG = f"""\
{AUTO}.

exit status: 0 if every path asked for works (without --path: if any of memif, netdev, pci, udp and rdma does; with \
--probe: if UDP goes both ways); 1 if not; 2 bad input"""
MARKS = {OK: ("ok", "green"), WARNING: ("warning", "yellow"), MISSING: ("MISSING", "red")}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="gloo-bypass-doctor", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", choices=TITLES, action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--probe", metavar="ADDRESS", help="whether UDP goes there and back, and up to which size")
    parser.add_argument("--listen", metavar="ADDRESS", nargs="?", const="",
                        help="answer those that probe this host (default: at all its addresses)")
    parser.add_argument("--seconds", type=number_in(int, 1, 86400), default=600,
                        help="how long to listen (default 600)")
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
    if sum([options.probe is not None, options.listen is not None, bool(options.path)]) > 1:
        parser.error("--probe, --listen and --path do not go together")
    try:
        for name in ("probe", "listen"):
            if getattr(options, name) is not None:
                setattr(options, name, place(getattr(options, name), first_port()))
        if options.probe is not None and not options.probe[0]:
            raise ProbeError("it names no host")
    except ProbeError as error:
        parser.error(f"--{name}: {error}")
    return options


def first_port():
    """Of GLOO_BYPASS_UDP_PORT, whose ports a firewall lets through."""
    return integer(os.environ.get("GLOO_BYPASS_UDP_PORT", "").partition("-")[0]) or DEFAULT_PORT


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
    try:
        listen(options.listen, options.seconds, lambda line: print(f"gloo-bypass-doctor: {line}", flush=True))
    except KeyboardInterrupt:
        pass


def finding_of(direction):
    if direction.problem:
        return missing(direction.name, direction.problem,
                       "ranks need UDP both ways, in packets as large as the interface's MTU or 1500 bytes",
                       direction.advice)
    return ok(direction.name, f"packets of up to {direction.largest} bytes arrive")


def examine_all(options):
    """(title, findings) of each path asked for, or of the probe."""
    if options.probe is not None:
        return {"udp": ("UDP between this host and another", [finding_of(way) for way in probe(options.probe)])}
    machine = Machine(options.sysroot)
    return {path: (TITLES[path], examine(machine, path, options.plugin))
            for path in (dict.fromkeys(options.path) or TITLES)}


def main(arguments=None):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" is no fault
    options = parse(arguments)
    try:
        if options.listen is not None:
            return listen_for_probes(options)
        results = examine_all(options)
    except ProbeError as error:
        print(f"gloo-bypass-doctor: {error}", file=sys.stderr)
        return NOT_WORKING
    if options.json:
        print(json.dumps({path: {"works": works(findings), "findings": [f.as_dict() for f in findings]}
                          for path, (_, findings) in results.items()}, indent=2))
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
