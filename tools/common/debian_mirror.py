"""Where this machine's apt gets Debian from, and what it is told about the way there: for mmdebstrap.

Nothing here needs the network. Without apt, or where it knows no Debian, the answers are Debian's own public mirror and
no settings.
"""

import re
import subprocess
from pathlib import Path

from gloo_bypass_tools.common.processes import ask

PUBLIC_MIRROR = "http://deb.debian.org/debian"
# Names under which a source is a release itself, and not its updates or something that others add to it.
RELEASE_NAMES = {"bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"}
# What apt is told of proxies, and of Release files whose date a mirror of its own does not keep up.
SETTINGS = re.compile(
    r"Acquire::(https?(::.*)?::(Proxy|Proxy-Auto-Detect|CaInfo|Verify-Peer)|"
    r"Check-Date|Check-Valid-Until|Max-ValidTime)\b"
)
LIST_OF_MIRRORS = "mirror+file:"
ANSWER_LIMIT_S = 60
SOURCE_FIELDS = ("$(TARGET_OF)", "$(RELEASE)", "$(COMPONENT)", "$(REPO_URI)", "$(ORIGIN)")


def answer_of(*command):
    """The lines of a command of apt's; none where it cannot be had."""
    try:
        done = ask(command, ANSWER_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def resolved(address):
    """The first mirror of a list of them, which programs other than apt do not read."""
    if not address.startswith(LIST_OF_MIRRORS):
        return address
    try:
        lines = Path(address[len(LIST_OF_MIRRORS) :].rstrip("/")).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[0] for line in lines if line.strip() and not line.startswith("#")), "")


def debian_mirror():
    for line in answer_of("apt-get", "indextargets", "--format", "|".join(SOURCE_FIELDS)):
        kind, release, component, address, origin = line.split("|", len(SOURCE_FIELDS) - 1)
        # A source that apt has no lists of yet tells no origin; its address does then.
        debian = origin == "Debian" if origin else address.rstrip("/").endswith("/debian")
        if kind == "deb" and component == "main" and release in RELEASE_NAMES and debian and resolved(address):
            return resolved(address).rstrip("/")
    return PUBLIC_MIRROR


def apt_options():
    """Options for mmdebstrap that give its apt the settings of this machine's."""
    return [f"--aptopt={line}" for line in answer_of("apt-config", "dump", "--no-empty") if SETTINGS.match(line)]
