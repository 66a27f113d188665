"""Starts the ranks of a PyTorch program as processes, and ends them whatever happens. Every wait has a bound."""

import os
import random
import signal
import socket
import subprocess
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.environ.get("PLUGIN_LIBRARY", "")
PACKAGE_PATH = os.environ.get("PLUGIN_PYTHON_PATH", "")
# The Python of an environment with PyTorch from pip and our wheel; else Debian's, which python3-torch belongs to.
PYTHON = os.environ.get("PLUGIN_PYTHON", "/usr/bin/python3")
FROM_WHEEL = "PLUGIN_PYTHON" in os.environ
# A bound that only a hang reaches, for two busy cores and PyTorch's import. An emulated guest needs more.
HANG_SECONDS = float(os.environ.get("PLUGIN_HANG_SECONDS", 90))
# What an installed package consists of, beside the plug-in.
PACKAGE_MODULES = {
    "gloo_bypass/" + name
    for name in (
        "__init__.py",
        "__main__.py",
        "_answers.py",
        "_availability.py",
        "_built.py",
        "_calls.py",
        "_devices.py",
        "_door.abi3.so",
        "_door.pyi",
        "_library.py",
        "_membership.py",
        "_movement.py",
        "_old_torch.py",
        "_other_backends.py",
        "_path_probe.py",
        "_pipeline.py",
        "_process_group.py",
        "_profiling.py",
        "_queue.py",
        "_reductions.py",
        "_several.py",
        "_short_way.py",
        "_stats.py",
        "_tensors.py",
        "_torchcomms.py",
        "_work.py",
        "py.typed",
    )
} | {"gloo_bypass_autoload.py"}


def free_port():
    """An unused port, outside the range from which the kernel assigns ports: rank 0 listens seconds later."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        end = int(file.read().split()[0])
    for _ in range(100):
        with socket.socket() as probe:
            try:
                probe.bind(("", random.randrange(1024, end) if end > 2048 else 0))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise AssertionError("no free port in 100 tries")


def clean_environment():
    """The variables of a user who has set none of ours."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GLOO_", "MASTER_", "LD_PRELOAD", "RANK", "WORLD_SIZE", "PYTHONPATH"))
    }
    return {**kept, "USE_LIBUV": "0"}  # Debian 13's PyTorch asks for libuv by default, and has none


class Ranks:
    """`with Ranks("train.py", 2, transport="DPDK") as ranks: ranks.wait()`. Output of rank r: ranks.output(r). `load`:
    how the plug-in is loaded; a wheel loads it by itself, where others are preloaded; None: not at all. `prefixes`: for
    each rank, the words that run it in its place."""

    def __init__(
        self,
        program,
        size,
        transport="DPDK",
        load="preload",
        arguments=(),
        environment=None,
        per_rank=None,
        prefixes=None,
    ):
        self.folder = tempfile.TemporaryDirectory(prefix="gbt")
        self.processes = []
        port = str(free_port())
        for rank in range(size):
            env = clean_environment()
            env.update(
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                RANK=str(rank),
                WORLD_SIZE=str(size),
                OMP_NUM_THREADS="1",
                PYTHONUNBUFFERED="1",
            )
            if transport:
                env["GLOO_DEVICE_TRANSPORT"] = transport
            if transport == "DPDK":
                env["GLOO_BYPASS_MEMIF_DIRECTORY"] = os.path.join(self.folder.name, "m")
            if load is None:
                env["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
            elif load == "preload" and not FROM_WHEEL:
                env["LD_PRELOAD"] = LIBRARY  # children of the rank get it too: programs without PyTorch do not notice
            elif load == "import":
                env["PYTHONPATH"] = PACKAGE_PATH
            env["LOAD"] = load or ""
            env["PLUGIN_LIBRARY"] = LIBRARY
            env.update(environment or {})
            env.update((per_rank or {}).get(rank, {}))
            output = open(self._path(rank), "wb")
            self.processes.append(
                subprocess.Popen(
                    [
                        *(prefixes[rank] if prefixes else []),
                        PYTHON,
                        os.path.join(FOLDER, "programs", program),
                        *map(str, arguments),
                    ],
                    env=env,
                    cwd=self.folder.name,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
            output.close()

    def _path(self, rank):
        return os.path.join(self.folder.name, f"output-{rank}")

    def output(self, rank):
        with open(self._path(rank), errors="replace") as file:
            return file.read()

    def value(self, rank, name):
        """What the program printed as `name=value`."""
        for line in self.output(rank).splitlines():
            if line.startswith(name + "="):
                return line[len(name) + 1 :]
        raise AssertionError(f"rank {rank} printed no {name}=:\n{self.output(rank)}")

    def write_file(self, name):
        """In the folder that the ranks run in."""
        with open(os.path.join(self.folder.name, name), "w"):
            pass

    def wait_for_line(self, rank, text):
        end = time.monotonic() + HANG_SECONDS
        while text not in self.output(rank):
            assert self.processes[rank].poll() is None, f"rank {rank} ended without '{text}':\n{self.output(rank)}"
            assert time.monotonic() < end, f"rank {rank} never printed '{text}':\n{self.output(rank)}"
            time.sleep(0.02)

    def wait(self, ranks=None):
        """Exit statuses of the given ranks, or of all."""
        end = time.monotonic() + HANG_SECONDS
        statuses = []
        for rank in range(len(self.processes)) if ranks is None else ranks:
            try:
                statuses.append(self.processes[rank].wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {rank} hangs:\n{self.output(rank)}") from None
        return statuses

    def whoever_prints(self, text):
        """The first rank found to have printed it."""
        end = time.monotonic() + HANG_SECONDS
        while True:
            for rank in range(len(self.processes)):
                if text in self.output(rank):
                    return rank
            assert time.monotonic() < end, f"no rank printed '{text}':\n" + "\n".join(
                map(self.output, range(len(self.processes)))
            )
            time.sleep(0.02)

    def succeed(self):
        statuses = self.wait()
        assert statuses == [0] * len(statuses), "\n".join(
            f"rank {rank}: exit status {status}\n{self.output(rank)}" for rank, status in enumerate(statuses)
        )
        return self

    def signal(self, rank, number):
        self.processes[rank].send_signal(number)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)  # the session that Popen made for it
                except ProcessLookupError:
                    pass
            process.wait()
        self.folder.cleanup()
