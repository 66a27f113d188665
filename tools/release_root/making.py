"""Makes a root by mmdebstrap: as NAME.new, renamed to NAME when it is complete."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.debian_mirror import apt_options, debian_mirror
from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.release_root import namespaces
from gloo_bypass_tools.release_root.failures import RootError
from gloo_bypass_tools.release_root.store import RECORD, RELEASES, say

# of scripts/install-packages: what building and testing need; a guest is not started in a root
LISTS = ("build", "run")
LAYOUT = 1  # of a root; counts up when its making changes, so that older ones are made anew
MAKING_LIMIT_S = 3600.0
LISTING_LIMIT_S = 60
FREE_BYTES = 5_000_000_000  # a root takes 3 GB, its packages 1 GB while they are unpacked
# The causes that have an answer, as apt, dpkg and mmdebstrap put them; the first that is found in the log is named.
CAUSES = (
    ("No space left on device", "no room is left: {folder} needs {gigabytes:.0f} GB"),
    (
        "Temporary failure resolving|Could not (resolve|connect)|Connection (timed out|refused)|Network is unreachable|"
        "Unable to connect",
        "{mirror} cannot be reached: check the network, or apt's proxy settings",
    ),
    (
        "does not have a Release file|404  Not Found",
        "{mirror} does not have all of {release}: try another with --mirror, or later",
    ),
    ("Unable to locate package|has no installation candidate", "{release} has no such package: {line}"),
    ("is not valid yet|is expired", "the mirror's list of {release} is out of date: {line}"),
    (
        "NO_PUBKEY|GPG error|no public key",
        "the key that signs {release} is not known here: update the package debian-archive-keyring",
    ),
)


def packages(lists=LISTS):
    """Names of packages, from scripts/install-packages, where they are kept."""
    try:
        done = ask([program_places.script("install-packages"), "--list", *lists], LISTING_LIMIT_S)
        why = errors_of(done)[-1] if done.returncode != 0 else ""
    except (OSError, subprocess.SubprocessError) as error:
        why = str(error)
    if why:
        raise RootError(f"scripts/install-packages --list failed: {why}")
    return done.stdout.split()


def digest_of(release, names):
    return hashlib.sha256("\n".join([str(LAYOUT), release, *sorted(set(names))]).encode()).hexdigest()


def cause_of(log, **values):
    """Why mmdebstrap failed, in one line."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    for signs, text in CAUSES:
        for line in lines:
            if re.search(signs, line):
                return text.format(line=line[:300], **values)
    errors = [line for line in lines if line.startswith(("E:", "Err:"))]
    return (errors or lines or ["mmdebstrap said nothing"])[0][:300]


def remove_tree(path):
    """Removes a folder, also files of other users of a user namespace. It stays on one file system."""
    if path.exists():
        command = ["rm", "-rf", "--one-file-system", "--", path]
        try:
            status = namespaces.run(command, limit_s=MAKING_LIMIT_S, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise RootError(f"cannot remove {path} within {MAKING_LIMIT_S / 60:.0f} minutes") from error
        if status != 0:
            raise RootError(f"cannot remove {path}: what rm said is above")


def mmdebstrap_command(release, folder, names, mirror):
    # Mode root, in namespaces of ours: in any other a root without privileges could not be entered with the same ids.
    kind = ["--mode=root", "--format=directory", "--variant=minbase"]
    return ["mmdebstrap", *kind, "--include=" + ",".join(names), *apt_options(), release, folder, mirror]


def ready(store, release, digest):
    return (store.record(release) or {}).get("packages") == digest


def ensure(store, release, mirror=None):
    """The root of this release with the packages of today's lists is there when this returns. Made by one process at a
    time."""
    digest = digest_of(release, packages())
    if ready(store, release, digest):
        return
    with store.lock(release, alone=True) as lock:
        if not ready(store, release, digest):
            make(store, release, digest, mirror or debian_mirror(), lock)


def make(store, release, digest, mirror, lock):
    """Under the lock, which mmdebstrap holds as well: it may outlive this process, if that is killed."""
    if not shutil.which("mmdebstrap"):
        raise RootError("mmdebstrap is not installed: run scripts/install-packages releases")
    free = shutil.disk_usage(store.folder).free
    if free < FREE_BYTES:
        raise RootError(
            f"no room for a root: {store.folder} has {free / 1e9:.1f} GB free, {FREE_BYTES / 1e9:.0f} GB "
            "are needed; set XDG_CACHE_HOME to another folder"
        )
    new, root, log = store.unfinished(release), store.root(release), store.log(release)
    remove_tree(new)
    say(f"making the root of {release}, Debian {RELEASES[release]} (once; some minutes); log: {log}")
    begin = time.monotonic()
    try:
        command, environment = mmdebstrap_command(release, new, packages(), mirror), dict(os.environ, LC_ALL="C")
        with open(log, "w", encoding="utf-8") as output:
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            status = namespaces.run(command, MAKING_LIMIT_S, pass_fds=[lock], env=environment, **streams)
        if status != 0:
            cause = cause_of(log, release=release, mirror=mirror, folder=store.folder, gigabytes=FREE_BYTES / 1e9)
            raise RootError(f"the root of {release} could not be made: {cause} (all of it: {log})")
        (new / RECORD).write_text(json.dumps({"packages": digest, "made": int(time.time()), "mirror": mirror}) + "\n")
        remove_tree(root)
        new.rename(root)
    except subprocess.TimeoutExpired as error:
        raise RootError(
            f"mmdebstrap was stopped after {MAKING_LIMIT_S / 60:.0f} minutes; what it said: {log}"
        ) from error
    except OSError as error:
        raise RootError(f"the root of {release} could not be made: {error}") from error
    finally:
        remove_tree(new)
    say(f"made the root of {release} in {time.monotonic() - begin:.0f} s")
