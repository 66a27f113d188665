"""What the Python that the ranks run under has: PyTorch, our package, what a program needs besides."""

import json
import os
import subprocess
from dataclasses import dataclass

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.failures import BAD_INPUT, Failure
from gloo_bypass_tools.common.processes import ask, errors_of
from gloo_bypass_tools.common.rank_processes import clean_environment

QUERY_S = 120
# Of the interpreter: nothing of the user's is imported but PyTorch and our package.
QUESTION = """import importlib.util, json, platform, sys, torch
found = {"python": platform.python_version(), "torch": torch.__version__, "gloo_bypass": "", "why_not": "", "has": [
    name for name in sys.argv[1:] if importlib.util.find_spec(name) is not None],
    "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]}
try:
    import gloo_bypass
    found["gloo_bypass"] = gloo_bypass.__version__ if hasattr(gloo_bypass, "require_transport") else ""
    found["why_not"] = "" if found["gloo_bypass"] else f"gloo_bypass {gloo_bypass.__version__} there is too old"
except ImportError as error:
    found["why_not"] = str(error)
print(json.dumps(found))"""
# These would choose another transport than GLOO_DEVICE_TRANSPORT, or another number of threads.
NOT_PASSED_ON = ("LD_PRELOAD", "TORCH_DISTRIBUTED_USE_TORCHCOMMS", "TORCH_DEVICE_BACKEND_AUTOLOAD")
NOT_PASSED_ON += ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class InterpreterError(Failure):
    """The Python cannot run the programs."""

    status = BAD_INPUT


@dataclass(frozen=True)
class Interpreter:
    """`gloo_bypass` is our package's version, '' where there is none; `why_not` says why. `gpus`: names of those
    that PyTorch can use. `path`: folders for PYTHONPATH."""

    program: str
    python: str
    torch: str
    gloo_bypass: str
    why_not: str
    has: tuple = ()
    gpus: tuple = ()
    path: tuple = ()

    def environment(self):
        return environment_with(self.path)


def named(text):
    """For argparse: a path from anywhere. Not its target: a virtual environment's Python is a link to another one."""
    return os.path.abspath(text) if os.sep in text else text


def add_python(parser):
    parser.add_argument(
        "--python",
        type=named,
        default="/usr/bin/python3",
        metavar="FILE",
        help="with PyTorch, and gloo_bypass unless it is in --build (default /usr/bin/python3)",
    )


def environment_with(path):
    kept = {name: value for name, value in clean_environment().items() if name not in NOT_PASSED_ON}
    folders = [*map(str, path), *filter(None, [kept.get("PYTHONPATH", "")])]
    return kept | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}


def answer(program, path, modules):
    try:
        done = ask([program, "-c", QUESTION, *modules], QUERY_S, env=environment_with(path), cwd="/")
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise InterpreterError(f"{program}: {error}") from error
    raise InterpreterError(f"{program}: {errors_of(done)[-1]}")


def find(program, build, modules):
    """The Interpreter. Our package is its own, where it has one; else that of the build folder."""
    path = (program_places.HERE,)
    found = answer(program, path, modules)
    built = build / "plugin" / "python"
    if not found["gloo_bypass"] and (built / "gloo_bypass").is_dir():
        with_ours = answer(program, (*path, built), modules)
        if with_ours["gloo_bypass"] or "No module named" in found["why_not"]:
            found, path = with_ours, (*path, built)
    return Interpreter(
        str(program), **(found | {"has": tuple(found["has"]), "gpus": tuple(found["gpus"]), "path": path})
    )
