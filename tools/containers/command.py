"""The command line of scripts/run-containers."""

import argparse
import os
import sys
import time
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.failures import exit_status
from gloo_bypass_tools.common.options import REPEATED, add_environment, add_number, add_run_options, command_parser
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.containers import images
from gloo_bypass_tools.containers.compose import compose_file
from gloo_bypass_tools.containers.engine import ContainerError, find_engine
from gloo_bypass_tools.containers.guest import become_guest
from gloo_bypass_tools.containers.group import Job, RankGroup
from gloo_bypass_tools.containers.recipes import RECIPES

IMAGE = "gloo-bypass-rank"

DESCRIPTION = """\
Starts the ranks of one training in containers, with podman or docker, waits for them, and removes everything that it \
made.
Rank 0's output is shown; every rank's goes to OUTPUT/rank-N.log, and what ranks write to /results to \
OUTPUT/results/."""
EPILOG = """\
  scripts/run-containers --build                                                  makes the image
  scripts/run-containers --build --base-image mmdebstrap                          the same where no registry can be \
reached
  scripts/run-containers --transport RDMA --guest -- --model tiny --steps 20           SoftRoCE on any machine
  scripts/run-containers --transport DPDK --ranks 2 -- --model tiny --steps 20 --metrics /results/metrics.jsonl
  scripts/run-containers --transport DPDK-auto --ranks 4 --ranks-per-container 2 -- --model tiny --steps 20

exit status: 0; 1 a rank failed, or the engine; 2 bad input; 128 + N ended by signal N"""


def folder(text):
    path = Path(text).resolve()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is no folder")
    if ":" in str(path):
        raise argparse.ArgumentTypeError(f"'{path}': container engines read the ':' as a separator")
    return path


def parse(arguments):
    parser = command_parser("run-containers", DESCRIPTION, EPILOG)
    parser.add_argument(
        "--transport",
        choices=RECIPES,
        metavar="T",
        help="; ".join(f"{name}: {recipe.summary}" for name, recipe in RECIPES.items()),
    )
    add_number(parser, "--ranks", int, 1, 64, "default 2", default=2)
    per_container = "default 1; more: each container stands for a host with so many ranks (see DPDK-auto)"
    add_number(parser, "--ranks-per-container", int, 1, 64, per_container, default=1)
    parser.add_argument("--engine", choices=("podman", "docker"), help="default: the first of them that answers")
    parser.add_argument(
        "--runtime", metavar="NAME", help="the engine's OCI runtime (runc, crun, ...), if not its default"
    )
    parser.add_argument("--build", action="store_true", help="make the image first; without --transport, do no more")
    parser.add_argument(
        "--base-image",
        choices=("mmdebstrap",),
        help=f"make {images.BASE_IMAGE} from a Debian mirror if it is not there",
    )
    parser.add_argument(
        "--package",
        metavar="NAME",
        help="with --build: a Debian package to add, as python3-torch; may be repeated",
        **REPEATED,
    )
    parser.add_argument("--image", default=IMAGE, metavar="NAME", help=f"default {IMAGE}")
    parser.add_argument(
        "--rootfs",
        type=folder,
        metavar="DIR",
        help="podman only: no image, but this root file system under an overlay; / is this machine's own",
    )
    parser.add_argument(
        "--guest",
        action="store_true",
        help="in the guest of scripts/rdma-guest, with this machine's podman images: SoftRoCE where this "
        "kernel has none",
    )
    parser.add_argument("--program", default="ddp_train", metavar="PATH", help="default ddp_train")
    add_environment(parser, "for every rank")
    parser.add_argument("--interface", metavar="NAME", help="the ranks' network interface (GLOO_SOCKET_IFNAME)")
    parser.add_argument("--data", type=folder, metavar="DIR", help="a folder that the ranks see as /data, read-only")
    add_run_options(parser, "logs and results", "containers-<time>")
    parser.add_argument(
        "--compose", action="store_true", help="print a compose file for this transport and number of ranks, and end"
    )
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="after --: the program's")
    options = parser.parse_args(arguments)
    if not options.transport and not options.build:
        parser.error("give --transport " + ", ".join(RECIPES) + ", or --build")
    if options.compose and not options.transport:
        parser.error("--compose needs --transport")
    if options.ranks % options.ranks_per_container:
        parser.error(f"--ranks {options.ranks} is no multiple of --ranks-per-container {options.ranks_per_container}")
    if options.compose:
        check_compose(parser, options)
    if options.rootfs and options.build:
        parser.error("--rootfs needs no image: leave out --build")
    if options.guest and (options.build or options.engine == "docker"):
        parser.error("--guest uses podman, and an image that was built before")
    if options.package and not options.build:
        parser.error("--package changes the image: it needs --build")
    return options


def check_compose(parser, options):
    """A compose file is of a transport and a number of ranks; its user says the rest in it."""
    if options.ranks_per_container > 1:
        parser.error("--compose writes one rank a container: leave out --ranks-per-container")
    others = ("build", "base_image", "rootfs", "guest", "env", "interface", "data", "arguments")
    given = [f"--{name.replace('_', '-')}" for name in others if getattr(options, name)]
    given += [f"--{name}" for name in ("program", "image") if getattr(options, name) != parser.get_default(name)]
    if given:
        what = given[0].replace("--arguments", "the program's arguments")
        parser.error(f"--compose writes a file of the transport and the ranks alone: put {what} into that file")


def output_path(options):
    return (options.output or ROOT / "results" / time.strftime("containers-%Y%m%d-%H%M%S")).absolute()


def new_output(path):
    try:
        path.mkdir(parents=True)
    except FileExistsError as error:
        raise ContainerError(f"{path} exists already: choose another --output") from error
    except OSError as error:
        raise ContainerError(f"cannot make {path}: {error.strerror}: choose another --output") from error
    return path


def environment_of(options):
    """Computing threads as torchrun and ddp_train --spawn share them out; what the caller says comes last."""
    threads = max(1, (os.cpu_count() or 1) // options.ranks)
    interface = {"GLOO_SOCKET_IFNAME": options.interface} if options.interface else {}
    return {"OMP_NUM_THREADS": threads, **interface, **dict(options.env)}


def program_of(options):
    """The program and its arguments. all_reduce_perf is the one that reads its transport from there, not from the
    environment."""
    words = [options.program, *options.arguments]
    if Path(options.program).name == "all_reduce_perf" and "--transports" not in words:
        words += ["--transports", RECIPES[options.transport].environment["GLOO_DEVICE_TRANSPORT"]]
    return words


def check_devices(recipe):
    for device in recipe.granted("device"):
        if not Path(device).is_dir() or not any(Path(device).iterdir()):
            raise ContainerError(
                f"{device} has no device: scripts/softroce up makes a SoftRoCE one where the kernel has rdma_rxe, "
                "and --guest runs all this where it has none"
            )


def run_ranks(engine, options):
    recipe = RECIPES[options.transport]
    if options.rootfs and not engine.is_podman:
        raise ContainerError("--rootfs is podman's: use --engine podman, or an image")
    if not options.rootfs and not engine.has_image(options.image):
        raise ContainerError(
            f"{engine.name} has no image {options.image}: make it with scripts/run-containers --build "
            "(no registry in reach: --build --base-image mmdebstrap)"
        )
    check_devices(recipe)
    output = new_output(output_path(options))
    job = Job(
        recipe,
        options.ranks,
        program_of(options),
        output,
        options.timeout,
        image=options.image,
        rootfs=str(options.rootfs or ""),
        environment=environment_of(options),
        data=options.data,
        ranks_per_container=options.ranks_per_container,
    )
    with RankGroup(engine, job) as group:
        group.start()
        try:
            group.wait()
        except BaseException:
            group.quietly_collect()
            raise
        group.collect()
    print(
        f"run-containers: {options.ranks} ranks over {recipe.transport} ended well; logs and results: {output}",
        file=sys.stderr,
    )


def carry_out(options, arguments):
    if options.guest:
        become_guest(arguments, output_path(options), options.timeout)
    engine = find_engine(options.engine, options.runtime)
    if options.base_image:
        images.make_base_image(engine)
    if options.build:
        images.build_rank_image(engine, options.image, options.package)
    if options.transport:
        run_ranks(engine, options)
    return 0


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    if options.compose:
        print(compose_file(RECIPES[options.transport], options.ranks), end="")
        return 0
    processes.interrupt_once()
    return exit_status("run-containers", lambda: carry_out(options, arguments))
