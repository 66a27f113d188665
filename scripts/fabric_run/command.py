"""The command line of scripts/fabric-run."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from argument_types import assignment, number_in

from . import enclosure, network
from .failures import FabricRunError
from .processes import Fabric, FabricRanks

ROOT = Path(__file__).resolve().parents[2]
FABRIC = ROOT / "build" / "tools" / "fabric" / "fabric"
SECTIONS = ("ranks", "network", "seed", "defaults", "ring", "host", "edge", "event")
MASTER_PORT = 29500
# A memif ring: 2^10 slots of 2 KiB, or fewer of jumbo frames.
LOG2_SLOTS, LOG2_JUMBO_SLOTS = 10, 9
CHECK_S = 30.0
MARKERS_OVER_LOOPBACK = "127.0.0.1"
ETHERNET_HEADER = 14

DESCRIPTION = """\
Starts the ranks of one run on an emulated fabric, waits for them, and takes everything away that it made. The fabric's description
says how many ranks there are and what the links between them do. Over DPDK each rank has a memif socket of the fabric; over the others each
has a network namespace with an interface on the fabric. All cross the same emulated links. Ranks meet elsewhere (MASTER_ADDR): nothing but
their collectives crosses the links. Rank 0's output is shown; every rank's goes to OUTPUT/rank-N.log, the fabric's counters to
OUTPUT/fabric.json. Nothing outside the run's own namespaces is changed; as root, or as a user who may make user namespaces."""
EPILOG = """\
  scripts/fabric-run --ranks 2 --defaults delay=10ms --transport DPDK -- build/tools/all_reduce_perf --transports {transport} -b 4 -e 1M -f 16
  scripts/fabric-run --config FILE --edge from=r3,to=r2,down=true --transport TCP -- build/trainer/ddp_train --model tiny --steps 20
  scripts/fabric-run --ranks 2 --transport TCP --sysctl net.ipv4.tcp_congestion_control=bbr -- python3 train.py

exit status: 0; that of the rank which failed first; 1 the fabric failed, or a time limit; 2 bad input; 128 + N ended by signal N"""


class Interrupted(Exception):
    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def sysctl(text):
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("net.") or "/" in name or ".." in name:
        raise argparse.ArgumentTypeError(f"'{text}' is not net.NAME=VALUE")
    return name, value


def parse(arguments):
    parser = argparse.ArgumentParser(prog="fabric-run", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", required=True, choices=("TCP", "DPDK", "DPDK-netdev"),
                        help="what the ranks speak: Gloo's own TCP; DPDK over memif; DPDK over an interface of the kernel (af_packet)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the fabric's description; fabric/README.md says what is in it")
    for section in SECTIONS:
        parser.add_argument(f"--{section}", action="append", default=[], metavar="VALUE", help="of the description; as build/tools/fabric/fabric")
    parser.add_argument("--mtu", type=number_in(int, 576, 32000), default=1500, metavar="N", help="longest IP packet (default 1500)")
    parser.add_argument("--memory", type=number_in(int, 1, 1 << 20), default=512, metavar="MIB", help="for frames under way (default 512)")
    parser.add_argument("--samples", action="store_true", help="the edges' counters each second to OUTPUT/samples.jsonl")
    parser.add_argument("--capture", action="store_true", help="every frame, as it enters the fabric, to OUTPUT/capture.pcapng, with step markers: "
                        "{markers} in the program's arguments is where they go, as in ddp_train --step-markers {markers}")
    parser.add_argument("--snap", type=number_in(int, 0, 65536), default=128, metavar="N", help="bytes kept of each frame; 0: all (default 128)")
    parser.add_argument("--rendezvous", choices=("control", "fabric"), default="control",
                        help="not DPDK: where MASTER_ADDR is: in a network of its own (default), or on the emulated links")
    parser.add_argument("--sysctl", type=sysctl, action="append", default=[], metavar="NAME=VALUE",
                        help="not DPDK: in each rank's namespace, as net.ipv4.tcp_rmem='4096 131072 67108864'; may be repeated")
    parser.add_argument("--env", type=assignment, action="append", default=[], metavar="NAME=VALUE", help="for every rank; may be repeated")
    parser.add_argument("--output", type=Path, metavar="DIR", help="a new folder for logs and counters (default results/fabric-<time>)")
    parser.add_argument("--timeout", type=number_in(float, 1, 7 * 86400), default=3600.0, metavar="S", help="for the run (default 3600)")
    parser.add_argument("--fabric", type=Path, default=FABRIC, metavar="PATH", help="the program (default build/tools/fabric/fabric)")
    parser.add_argument("program", nargs="+", metavar="PROGRAM", help="after --: what each rank runs, and its arguments; "
                        "{transport} in them is GLOO_DEVICE_TRANSPORT")
    options = parser.parse_args(arguments)
    if not options.config and not options.ranks and not options.host:
        parser.error("give --config FILE, or --ranks N")
    if shutil.which(options.program[0]) is None:
        parser.error(f"there is no program '{options.program[0]}'")
    return options


def description_flags(options):
    return [word for section in SECTIONS for value in getattr(options, section) for word in (f"--{section}", value)]


def read_description(options):
    """What the fabric makes of it: hosts with their addresses."""
    if not os.access(options.fabric, os.X_OK):
        raise FabricRunError(f"there is no program '{options.fabric}': build it with scripts/build, or say --fabric PATH", 2)
    check = ["--check", str(options.config)] if options.config else ["--check"]
    answer = subprocess.run([options.fabric, *check, "--json", *description_flags(options)], stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, errors="replace", timeout=CHECK_S, check=False)
    if answer.returncode != 0:
        raise FabricRunError((answer.stderr.strip().splitlines() or ["the fabric's check failed"])[-1].removeprefix("fabric: "), 2)
    return json.loads(answer.stdout)


class Run:
    """One run, inside the enclosure."""

    def __init__(self, options, description, folder):
        self.options, self.hosts, self.folder = options, description["hosts"], Path(folder)
        self.own_namespaces = options.transport != "DPDK"
        self.control = self.own_namespaces and options.rendezvous == "control"
        self.namespaces = [network.RankNamespace(index, host, options.mtu, options.sysctl, folder) for index, host in enumerate(self.hosts)]

    def make_network(self):
        network.prepare(self.hosts, self.folder, self.control)
        if self.own_namespaces:
            for namespace in self.namespaces:
                namespace.make(self.control)

    def fabric_words(self):
        options = self.options
        words = [options.fabric, *(["--config", options.config] if options.config else []), *description_flags(options), "--mtu", options.mtu,
                 "--memory", options.memory]
        for index, host in enumerate(self.hosts):
            port = f"interface={network.fabric_interface(index)}" if self.own_namespaces else f"memif={self.socket(index)}"
            words += ["--host", f"name={host['name']},{port}"]
        if options.capture:
            words += ["--capture", options.output / "capture.pcapng", "--snap", options.snap]
            if not self.own_namespaces:
                words += ["--markers", MARKERS_OVER_LOOPBACK]
        if options.samples:
            words += ["--samples", options.output / "samples.jsonl"]
        return [str(word) for word in words]

    def socket(self, index):
        return self.folder / f"rank{index}.sock"

    def frame_bytes(self):
        return self.options.mtu + ETHERNET_HEADER

    def memif_device(self, index):
        buffer_bytes = max(2048, (self.frame_bytes() + 255) // 256 * 256)
        slots = LOG2_SLOTS if buffer_bytes == 2048 else LOG2_JUMBO_SLOTS
        mac = self.hosts[index]["mac"] or network.mac_of(index)
        return (f"net_memif0,role=client,id=0,socket={self.socket(index)},socket-abstract=no,bsize={buffer_bytes},rsize={slots},mac={mac}")

    def environment_of(self, index):
        host = self.hosts[index]
        values = {"RANK": index, "WORLD_SIZE": len(self.hosts), "LOCAL_RANK": index, "MASTER_PORT": MASTER_PORT,
                  "GLOO_DEVICE_TRANSPORT": self.options.transport.partition("-")[0]}
        if self.own_namespaces:
            values["MASTER_ADDR"] = network.control_address(0) if self.control else self.hosts[0]["ipv4"]
            values["GLOO_SOCKET_IFNAME"] = network.INTERFACE
            if self.options.transport == "DPDK-netdev":
                values |= {"GLOO_BYPASS_LINK": "netdev", "GLOO_BYPASS_INTERFACE": network.INTERFACE}
        else:
            values |= {"MASTER_ADDR": "127.0.0.1", "GLOO_BYPASS_LINK": "pci", "GLOO_BYPASS_PCI_ADDRESS": self.memif_device(index),
                       "GLOO_BYPASS_IPV4": f"{host['ipv4']}/{host['prefix_length']}", "GLOO_BYPASS_MTU": self.options.mtu}
        return {**os.environ, **{name: str(value) for name, value in values.items()}, **dict(self.options.env)}

    def markers_address(self):
        """Where rank 0 sends step markers: over the fabric to another rank, or to the fabric itself where the kernel does not cross it."""
        return self.hosts[1]["ipv4"] if self.own_namespaces and len(self.hosts) > 1 else MARKERS_OVER_LOOPBACK

    def words_of(self, index):
        values = {"{transport}": self.options.transport.partition("-")[0], "{markers}": self.markers_address()}
        program = self.options.program
        for name, value in values.items():
            program = [word.replace(name, value) for word in program]
        if not self.own_namespaces:
            return program
        # A host name of its own, that of its interface on the fabric: by it Gloo finds the interface where nothing else says.
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$1" && shift && exec "$@"', "rank", self.hosts[index]["name"]]
        return [*self.namespaces[index].prefix(), *named, *program]

    def run(self):
        self.make_network()
        fabric = Fabric(self.fabric_words(), self.options.output / "fabric.log", self.options.output / "fabric.json")
        fabric.wait_until_ready()
        with FabricRanks(self.options.output) as ranks:
            try:
                for index in range(len(self.hosts)):
                    ranks.start(self.words_of(index), self.environment_of(index))
                ranks.wait_beside(fabric, self.options.timeout)
            finally:
                ranks.end()
                counters = fabric.end()
        print(fabric.last_table(), end="")
        if not any(edge["delivered"] for edge in counters["edges"]):
            raise FabricRunError("nothing crossed the fabric: does the program take its transport from GLOO_DEVICE_TRANSPORT? "
                                 "all_reduce_perf wants --transports {transport}")


def run_within(options, folder):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    Run(options, read_description(options), folder).run()
    return 0


def interrupt(number, _frame):
    for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)  # once is enough
    raise Interrupted(number)


def run_outside(options, arguments):
    enclosure.check_tools()
    read_description(options)
    enclosure.check_right()
    try:
        options.output.mkdir(parents=True)
    except OSError as error:
        raise FabricRunError(f"--output {options.output}: {error.strerror}: choose a folder that does not exist yet", 2) from error
    # What is in it lies on a file system of the enclosure's own, and goes with that.
    with tempfile.TemporaryDirectory(prefix="fabric-run-") as folder:
        return enclosure.run_inside(folder, arguments)


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    inside = arguments[:1] == [enclosure.INSIDE]
    if not inside:
        # One name for both: the default has the time in it.
        chosen = ROOT / "results" / time.strftime("fabric-%Y%m%d-%H%M%S")
        arguments = ["--output", str(chosen), *arguments]
    options = parse(arguments[2:] if inside else arguments)
    options.output = options.output.absolute()
    options.fabric = options.fabric.absolute()
    try:
        return run_within(options, arguments[1]) if inside else run_outside(options, arguments)
    except Interrupted as interruption:
        print(f"fabric-run: ended by {interruption}", file=sys.stderr)
        return interruption.status
    except FabricRunError as error:
        print(f"fabric-run: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        print(f"fabric-run: {error}", file=sys.stderr)
        return 1
