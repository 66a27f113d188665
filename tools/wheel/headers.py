"""Downloads Debian's packages of headers and unpacks them, without installing anything: no root is needed."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from gloo_bypass_tools.common.debian_mirror import debian_mirror
from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.wheel.failures import WheelError

PACKAGES = ("libgloo-dev", "libtorch-dev")
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
APT_LIMIT_S = 600
VERSIONS = "versions"  # the file that makes a folder complete: of each package


def run(*command, cwd=None):
    try:
        done = ask(command, APT_LIMIT_S, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WheelError(f"{command[0]} failed: {error}") from error
    if done.returncode != 0:
        lines = errors_of(done)
        why = next((line for line in lines if line.startswith("E:")), lines[0])
        question = f"; does apt reach {debian_mirror()}?" if command[0] == "apt-get" else ""
        raise WheelError(f"{command[0]} failed: {why}{question}")
    return done.stdout


def apt_of(release, folder):
    """apt-get with lists of that release only, in this folder."""
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sources = folder / "sources.list"
    signed = f"[signed-by={KEYS}] " if KEYS.exists() else ""
    sources.write_text(f"deb {signed}{debian_mirror()} {release} main\n")
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": os.devnull,
        # This machine's choices and packages are not of that release.
        "Dir::Etc::preferences": os.devnull,
        "Dir::Etc::preferencesparts": os.devnull,
        "Dir::State::status": os.devnull,
        "APT::Default-Release": "",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache::Archives": folder / "archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
        "Acquire::Retries": 3,
    }
    return ["apt-get", "-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]


def unpacked(release, folder):
    """{package: version}: their files lie in folder/root. Again only if the folder is not complete, or of another
    release."""
    done = folder / VERSIONS
    if not (done.exists() and done.read_text().startswith(f"release {release}\n")):
        shutil.rmtree(folder, ignore_errors=True)
        apt = apt_of(release, folder)
        run(*apt, "update")
        run(*apt, "download", *PACKAGES, cwd=folder)
        lines = [f"release {release}"]
        for archive in sorted(folder.glob("*.deb")):
            run("dpkg-deb", "-x", archive, folder / "root")
            lines.append(run("dpkg-deb", "-W", "--showformat=${Package} ${Version}\n", archive).strip())
        done.write_text("\n".join(lines) + "\n")
    return dict(line.split() for line in done.read_text().splitlines()[1:])


def gloo_in_words(version):
    """of 12 September 2025, for 0.0~git20250912.d97133a-2."""
    day = re.search(r"git(\d{8})", version)
    return f"of {time.strftime('%-d %B %Y', time.strptime(day.group(1), '%Y%m%d'))}" if day else version


def folder_of(generation, place, say):
    """What -Dgenerations names for this one (plugin/wheel/meson.build), and the versions of its packages."""
    folder = place / generation.name
    versions = unpacked(generation.debian, folder / "packages")
    version = versions["libgloo-dev"]
    if not version.startswith(generation.revision):
        say(
            f"{generation.debian}'s libgloo-dev is {version} now; {generation.name} was compared with PyTorch's Gloo "
            f"as {generation.revision}: run scripts/test --wheel with every release that it is for"
        )
    include = folder / "include"
    include.unlink(missing_ok=True)
    include.symlink_to("packages/root/usr/include")
    (folder / "gloo").write_text(gloo_in_words(version) + "\n")
    (folder / "torch").write_text("\n".join(generation.releases) + "\n")
    return folder, versions
