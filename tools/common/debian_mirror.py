"""Where this machine's apt gets Debian from, and its settings for the way there: for mmdebstrap.

Nothing here needs the network. Without apt, or if apt knows no Debian, the answers are Debian's own public mirror and
no settings.
"""

import re
import subprocess
from pathlib import Path

from gloo_bypass_tools.common.processes import ask

PUBLIC_MIRROR = "http://deb.debian.org/debian"
# Names under which a source is a release itself, and not its updates or something that others add to it.
RELEASE_NAMES = {"bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"}
# apt's settings about proxies, and about the dates of Release files, which a local mirror may not keep up to date.
SETTINGS = re.compile(
    r"Acquire::(https?(::.*)?::(Proxy|Proxy-Auto-Detect|CaInfo|Verify-Peer)|"
    r"Check-Date|Check-Valid-Until|Max-ValidTime)\b"
)
LIST_OF_MIRRORS = "mirror+file:"
ANSWER_LIMIT_S = 60
SOURCE_FIELDS = ("$(TARGET_OF)", "$(RELEASE)", "$(COMPONENT)", "$(REPO_URI)", "$(ORIGIN)")


def answer_of(*command):
    """The lines that a command of apt's prints; none if it fails."""
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
        # apt knows the origin only of sources that it has lists of. The address tells it for the others.
        debian = origin == "Debian" if origin else address.rstrip("/").endswith("/debian")
        if kind == "deb" and component == "main" and release in RELEASE_NAMES and debian and resolved(address):
            return resolved(address).rstrip("/")
    return PUBLIC_MIRROR


def apt_options():
    """Options for mmdebstrap that give its apt the settings of this machine's."""
    return [f"--aptopt={line}" for line in answer_of("apt-config", "dump", "--no-empty") if SETTINGS.match(line)]
