"""The command line of scripts/release-root."""

import argparse
import re
import time
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.argument_types import assignment
from gloo_bypass_tools.common.failures import exit_status
from gloo_bypass_tools.common.options import AS_WRITTEN, REPEATED
from gloo_bypass_tools.release_root import namespaces
from gloo_bypass_tools.release_root.failures import MISSING
from gloo_bypass_tools.release_root.making import digest_of, ensure, packages, remove_tree
from gloo_bypass_tools.release_root.running import run
from gloo_bypass_tools.release_root.store import RELEASES, Store

DESCRIPTION = """Keeps a root file system of each Debian release that gloo-bypass builds on, made by mmdebstrap from \
this machine's Debian mirror,
and runs commands in it. Needs mmdebstrap (scripts/install-packages releases), and root or a user with ranges in \
/etc/subuid."""
NOTES = f"""A root is made once, and again when the package lists of scripts/install-packages change. It lies in
$XDG_CACHE_HOME/gloo-bypass/releases/ (~/.cache by default) and takes about 3 GB.

In it: COMMAND runs as root in the folder it was started in, on this machine's kernel, network and devices, with the \
variables that tests
and compilers read (GLOO_*, CCACHE_*, GTEST_*, CXX and the like). Written through to this machine are only that folder \
and those given
with --share, and ccache's. Whatever is changed elsewhere is gone at the end, and so is every process that is left.

Exit status: the command's; {MISSING} when there is no root (one line on stderr says why); 128 + N when \
signal N ended it."""


def folder(text):
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' is no folder")
    path = path.resolve()
    if path == Path("/"):
        raise argparse.ArgumentTypeError(f"'{text}' cannot be shared: a root has its own")
    return path


def mirror(text):
    if not re.match(r"[a-z+]+:\S+$", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no address of a mirror, as http://deb.debian.org/debian")
    return text


def parser():
    common = {"epilog": NOTES, "allow_abbrev": False, **AS_WRITTEN}
    top = argparse.ArgumentParser(prog="release-root", description=DESCRIPTION, **common)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name, text, arguments=""):
        usage = f"release-root {name} {arguments}".rstrip()
        added = verbs.add_parser(name, help=text, description=text, usage=usage, **common)
        if name != "list":
            added.add_argument("release", choices=RELEASES, metavar="RELEASE", help=", ".join(RELEASES))
        if name in ("make", "run"):
            added.add_argument(
                "--mirror", type=mirror, metavar="URL", help="make the root from this mirror (default: this machine's)"
            )
        return added

    make = "make the root unless it is there"
    verb("make", f"{make}, with the packages of today's lists", "RELEASE [--mirror URL]")
    running = verb("run", f"{make}, and run COMMAND in it", "RELEASE [options] -- COMMAND...")
    running.add_argument("--only-existing", action="store_true", help="fail rather than make the root")
    written = "what is written below DIR appears here; may be repeated"
    running.add_argument("--share", type=folder, metavar="DIR", help=written, **REPEATED)
    running.add_argument("--env", type=assignment, metavar="NAME=VALUE", help="may be repeated", **REPEATED)
    running.add_argument("command", nargs="+", metavar="COMMAND", help="after --: the command and its arguments")
    verb("list", "say which roots there are, and whether they have the packages of today's lists")
    verb("remove", "remove the root", "RELEASE")
    return top


def list_roots(store):
    names = packages()
    for release in RELEASES:
        record = store.record(release)
        if record:
            made = time.strftime("%Y-%m-%d", time.gmtime(record["made"]))
            state = "has not the packages of today's lists: will be made anew"
            if record["packages"] == digest_of(release, names):
                state = "current"
            print(f"{release}: {store.root(release)}, made {made} from {record['mirror']}, {state}")
        else:
            print(f"{release}: not made yet")


def remove(store, release):
    with store.lock(release, alone=True):
        remove_tree(store.unfinished(release))
        # First out of sight, then removed: an interrupted removal leaves nothing that looks like a root.
        if store.root(release).exists():
            store.root(release).rename(store.unfinished(release))
        remove_tree(store.unfinished(release))
        store.log(release).unlink(missing_ok=True)


def run_command(store, options):
    if not options.only_existing:
        ensure(store, options.release, options.mirror)
    here = [] if Path.cwd() == Path("/") else [Path.cwd()]
    return run(store, options.release, options.command, [*here, *options.share], Path.cwd(), dict(options.env))


def serve(options):
    store = Store()
    if options.verb == "list":
        list_roots(store)
        return 0
    store.prepare()
    namespaces.check()
    if options.verb == "make":
        ensure(store, options.release, options.mirror)
    elif options.verb == "remove":
        remove(store, options.release)
    else:
        status = run_command(store, options)
        return 128 - status if status < 0 else status
    return 0


def main(arguments=None):
    options = parser().parse_args(arguments)
    processes.interrupt_once()
    return exit_status("release-root", lambda: serve(options))
