"""The command line of scripts/fabric-run."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.options import REPEATED, add_environment, add_number, add_run_options, command_parser
from gloo_bypass_tools.common.transports import BY_NAME, NETEM, SWITCH, names
from gloo_bypass_tools.fabric_run import enclosure, kernel_capture, place
from gloo_bypass_tools.fabric_run.run import SECTIONS, Run, netem_script, read_description

FABRIC = program_places.program("tools/fabric/fabric")
# Where the command line does not say.
MEMORY_MIB, SNAP_BYTES = 512, 128
TRANSPORTS = names(lambda one: one.links and not one.variant_of)

DESCRIPTION = """\
Starts the ranks of one run on an emulated fabric, waits for them, and takes everything away that it made. The \
fabric's description
says how many ranks there are and what the links between them do. Over DPDK each rank has a memif socket of the \
fabric; over the others each
has a network namespace with an interface on the fabric. All cross the same emulated links. Over RDMA, and with \
--links netem, the kernel's
netem makes the links of the same description, and SoftRoCE the RDMA devices: here, or in the guest of \
scripts/rdma-guest. Ranks meet elsewhere
(MASTER_ADDR): nothing but their collectives crosses the links. Rank 0's output is shown; every rank's goes to \
OUTPUT/rank-N.log, the fabric's counters to
OUTPUT/fabric.json. Nothing outside the run's own namespaces is changed; as root, or as a user who may make user \
namespaces. Over RDMA
interfaces and devices named fabric-N and rxe-fabric-N are made in the namespace it was started in, by root or in the \
guest, with rules of routing,
before which that of the table local makes room, and net.core.netdev_max_backlog is raised; all is undone at the end."""
EPILOG = """\
  scripts/fabric-run --ranks 2 --defaults delay=10ms --transport DPDK -- build/tools/all_reduce_perf --transports \
{transport} -b 4 -e 1M -f 16
  scripts/fabric-run --config FILE --event at=5s,from=r3,to=r2,down=200ms --transport TCP -- \
build/trainer/ddp_train --model tiny --steps 20
  scripts/fabric-run --ranks 2 --transport TCP --sysctl net.ipv4.tcp_congestion_control=bbr -- python3 train.py

exit status: 0; that of the rank which failed first; 1 the fabric failed, or a time limit; 2 bad input; 128 + N ended \
by signal N"""


def sysctl(text):
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("net.") or "/" in name or ".." in name:
        raise argparse.ArgumentTypeError(f"'{text}' is not net.NAME=VALUE")
    return name, value


def add_fabric(parser):
    meaning = "the program (default build/tools/fabric/fabric)"
    parser.add_argument("--fabric", type=Path, default=FABRIC, metavar="PATH", help=meaning)


def parse(arguments):
    parser = command_parser("fabric-run", DESCRIPTION, EPILOG)
    parser.add_argument(
        "--transport",
        required=True,
        choices=TRANSPORTS,
        help="what the ranks speak: Gloo's own TCP; DPDK over memif; DPDK over an interface of the kernel "
        "(af_packet); UDP; RDMA over SoftRoCE",
    )
    parser.add_argument(
        "--links",
        choices=("switch", "netem"),
        help="what makes them: the fabric's switch (default), or the kernel's netem (over "
        "RDMA always): no seed, duplication or reordering",
    )
    parser.add_argument(
        "--where",
        choices=("auto", place.HOST, place.IN_GUEST),
        default="auto",
        help="here, or in scripts/rdma-guest; auto: there if this kernel has no netem or SoftRoCE, and the "
        "run needs it",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the fabric's description; tools/fabric/core/README.md says what is in it",
    )
    for section in SECTIONS:
        meaning = "of the description; as build/tools/fabric/fabric"
        parser.add_argument(f"--{section}", metavar="VALUE", help=meaning, **REPEATED)
    add_number(parser, "--mtu", int, 576, 32000, "longest IP packet", default=1500)
    meaning = f"switch: for frames under way (default {MEMORY_MIB})"
    add_number(parser, "--memory", int, 1, 1 << 20, meaning, metavar="MIB")
    parser.add_argument(
        "--samples", action="store_true", help="switch: the edges' counters each second to OUTPUT/samples.jsonl"
    )
    parser.add_argument(
        "--capture",
        action="store_true",
        help="every frame, as it enters the fabric, to OUTPUT/capture.pcapng, with step markers: "
        "{markers} in the program's arguments is where they go, as in ddp_train --step-markers {markers}",
    )
    meaning = f"with --capture: bytes kept of each frame; 0: all (default {SNAP_BYTES})"
    add_number(parser, "--snap", int, 0, 65536, meaning)
    parser.add_argument(
        "--rendezvous",
        choices=("control", "fabric"),
        default="control",
        help="not DPDK, RDMA: where MASTER_ADDR is: in a network of its own (default), or on the emulated links",
    )
    parser.add_argument(
        "--sysctl",
        type=sysctl,
        metavar="NAME=VALUE",
        help="not DPDK, RDMA: in each rank's namespace, as net.ipv4.tcp_rmem='4096 131072 67108864'; may be repeated",
        **REPEATED,
    )
    add_environment(parser, "for every rank")
    add_run_options(parser, "logs and counters", "fabric-<time>")
    add_fabric(parser)
    parser.add_argument(
        "program",
        nargs="+",
        metavar="PROGRAM",
        help="after --: what each rank runs, and its arguments; {transport} in them is GLOO_DEVICE_TRANSPORT",
    )
    options = parser.parse_args(arguments)
    options.fabric = options.fabric.absolute()
    if not options.config and not options.ranks and not options.host:
        parser.error("give --config FILE, or --ranks N")
    check_links(parser, options)
    options.memory = MEMORY_MIB if options.memory is None else options.memory
    options.snap = SNAP_BYTES if options.snap is None else options.snap
    if shutil.which(options.program[0]) is None:
        parser.error(f"there is no program '{options.program[0]}'")
    return options


def check_links(parser, options):
    """Chooses what makes the links, and refuses what that cannot do."""
    if options.links is None:
        options.links = BY_NAME[options.transport].links
    needs_device = BY_NAME[options.transport].needs_device
    if options.links == SWITCH and needs_device:
        parser.error("--links switch: frames of SoftRoCE do not cross the switch; leave it out")
    if options.links == NETEM and not needs_device and not BY_NAME[options.transport].own_namespaces:
        parser.error("--links netem: memif's frames are not the kernel's; say --transport DPDK-netdev")
    for flag, given in (("--samples", options.samples), ("--memory", options.memory is not None)):
        if options.links == NETEM and given:
            parser.error(f"{flag}: only the fabric's switch has that; netem makes the links here")
    if options.snap is not None and not options.capture:
        parser.error("--snap: it is of --capture, which is not there")
    if not BY_NAME[options.transport].own_namespaces and (options.sysctl or options.rendezvous != "control"):
        parser.error(f"--sysctl, --rendezvous: ranks over {options.transport} have no network namespaces of their own")


def run_within(options, folder):
    Run(options, read_description(options), folder).run()
    return 0


def run_outside(options, arguments):
    description = read_description(options)
    netem, roce = options.links == NETEM, BY_NAME[options.transport].needs_device
    if netem:
        netem_script(options, description["hosts"])  # what netem cannot do is refused here
    where, why = place.choose(options.where, netem, roce, place.guest_problem)
    if where == place.IN_GUEST:
        print(f"fabric-run: in the guest: {why}", file=sys.stderr, flush=True)
        place.become_guest(arguments, options.output, options.timeout)
    enclosure.check_tools(
        *(["tc"] if netem else []),
        *(["rdma"] if roce else []),
        *(kernel_capture.PROGRAMS if netem and options.capture else []),
    )
    enclosure.check_right()
    enclosure.make_output(options.output)
    # What is in it lies on a file system of the enclosure's own, and goes with that.
    with tempfile.TemporaryDirectory(prefix="fabric-run-") as folder:
        return enclosure.run_inside(folder, arguments, own_network=not roce)


def main(arguments=None):
    return enclosure.run_command("fabric-run", "fabric", parse, run_within, run_outside, arguments)
