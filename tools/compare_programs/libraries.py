"""Other libraries' all-reduces, beside which the program all_reduce runs: each in a virtual environment of its own,
which is made here from PyPI.

MPI's ranks are started by its own mpirun, as it does by default, and call it through mpi4py. DeepSpeed's operator is
compiled here for the chosen PyTorch, by the machine's compiler.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.failures import Failure
from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.common.interpreter import environment_with

# The program that they are measured with; they have no decoder and no DistributedDataParallel.
PROGRAM = "all_reduce"
RANK = "gloo_bypass_tools.compare_programs.library_rank"
INSTALL_S, CHECK_S = 1200, 600
WHERE = "import json, site; print(json.dumps(site.getsitepackages()))"
VERSIONS = """import importlib.metadata, sys
print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in sys.argv[1:]))"""


class LibraryError(Failure):
    """The library cannot be measured; the text is one line."""


@dataclass(frozen=True)
class Library:
    """`packages`: on PyPI. `installs`: words behind `pip install`, a command each. `check`: Python that fails, with a
    line, where the library cannot be used. `launcher`: what starts all ranks, in the environment's bin/; '' where
    each rank is started by itself. `crowded`: its words for more ranks than cores. `needs_torch`: the environment sees
    the packages of the chosen Python."""

    name: str
    packages: tuple
    installs: tuple
    check: str
    launcher: str = ""
    crowded: tuple = ()
    settings: dict = field(default_factory=dict)
    needs_torch: bool = False


# Loads the library and does not begin: Open MPI would leave memory behind.
LOADED = """import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI"""


def mpi(name, package, launcher, crowded=(), **settings):
    packages = package, "mpi4py", "numpy"
    return Library(name, packages, (packages,), LOADED, launcher, crowded, settings)


BUILT = """from deepspeed.comm.torch import build_shm_op
if build_shm_op() is None:
    raise SystemExit("DeepSpeed does not build its operator in shared memory here")"""
TABLE = (
    # As root it wants to be asked twice.
    mpi(
        "OpenMPI",
        "openmpi",
        "mpirun",
        ("--map-by", ":OVERSUBSCRIBE"),
        OMPI_ALLOW_RUN_AS_ROOT=1,
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1,
    ),
    mpi("MPICH", "mpich", "mpiexec"),
    Library(
        "DeepSpeed",
        ("deepspeed",),
        (("--upgrade", "setuptools", "wheel"), ("--no-build-isolation", "deepspeed")),
        BUILT,
        settings={"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": 0},
        needs_torch=True,
    ),
)
BY_NAME = {one.name: one for one in TABLE}


@dataclass(frozen=True)
class Prepared:
    """A library that can be measured. `folder`: its virtual environment. `versions`: of its packages."""

    library: Library
    folder: Path
    versions: str

    @property
    def starts_all(self):
        """Whether one command starts all ranks."""
        return bool(self.library.launcher)

    def environment(self):
        return environment_of(self.library, self.folder)

    def words(self, ranks, settings, result):
        """The command that starts all ranks, or one of them where the library has no launcher."""
        start = []
        if self.starts_all:
            crowded = self.library.crowded if ranks > len(os.sched_getaffinity(0)) else ()
            start = [self.folder / "bin" / self.library.launcher, *crowded, "-n", ranks]
        return [*start, self.folder / "bin" / "python", "-m", RANK, self.library.name, settings, result]


def environment_of(library, folder):
    """The programs of the environment come first: compilers of DeepSpeed's operator look for ninja."""
    found = environment_with((program_places.HERE,)) | library.settings
    found |= {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TORCH_EXTENSIONS_DIR": folder / "extensions",
    }
    return {name: str(value) for name, value in found.items()}


def asked(what, words, limit_s, environment=None):
    """What a program says; LibraryError where it fails."""
    try:
        done = ask(words, limit_s, env=environment, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LibraryError(f"{what}: {error}") from error
    if done.returncode != 0:
        said = errors_of(done)
        errors = [line for line in said if line.startswith("ERROR")] or said[-1:]
        raise LibraryError(f"{what}: {errors[0]}")
    return done.stdout


def install(library, python, folder):
    """Makes the environment; nothing of it is left where that fails."""
    try:
        asked(f"{python} -m venv", [python, "-m", "venv", folder], CHECK_S)
        own = folder / "bin" / "python"
        if library.needs_torch:
            places = json.loads(asked(python, [python, "-c", WHERE], CHECK_S))
            (Path(json.loads(asked(own, [own, "-c", WHERE], CHECK_S))[0]) / "torch.pth").write_text("\n".join(places))
        for words in library.installs:
            command = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
            asked(f"pip install {' '.join(words)}", command, INSTALL_S, environment_of(library, folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def folder_of(library, interpreter, libraries):
    """Its virtual environment below `libraries`; one for each PyTorch where it needs one."""
    return libraries / (library.name.lower() + (f"-{interpreter.torch}" if library.needs_torch else ""))


def prepare(name, interpreter, libraries, progress=lambda text: None):
    """The library of that name in `libraries`, a folder."""
    library = BY_NAME[name]
    folder = folder_of(library, interpreter, libraries)
    if not (folder / "bin" / "python").exists():
        progress(f"installs {' and '.join(library.packages)} in {folder}, once")
        install(library, interpreter.program, folder)
    own, environment = folder / "bin" / "python", environment_of(library, folder)
    asked(f"{folder} cannot be used (remove it to install it again)", [own, "-c", library.check], CHECK_S, environment)
    return Prepared(library, folder, asked(own, [own, "-c", VERSIONS, *library.packages], CHECK_S).strip())
