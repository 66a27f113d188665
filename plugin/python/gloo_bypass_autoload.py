"""PyTorch 2.5 and later call autoload() at the end of `import torch` (entry point group torch.backends), so that
GLOO_DEVICE_TRANSPORT=DPDK works without an import in the script, and init_process_group("bypass") too.

Not part of the package gloo_bypass, because importing that loads the plug-in. An exception from autoload() would break
`import torch` for every program of the machine, so none leaves it. TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns the call off.
"""

import atexit
import functools
import inspect
import os
import sys
import sysconfig
from typing import Any, Callable, Dict, List, Optional, Tuple

#: GLOO_DEVICE_TRANSPORT's values that are ours.
TRANSPORTS = ("DPDK", "UDP", "RDMA")
#: The backend's name in init_process_group.
NAME = "bypass"
_OURS_FOR_GLOO = "GLOO_BYPASS_COLLECTIVES"
_SECURITY = "GLOO_BYPASS_SECURITY"
_UNDEFINED = "undefined"
_LEAST_TORCH = (2, 6)


def asks_for_ours() -> bool:
    """Whether GLOO_DEVICE_TRANSPORT names one of our transports."""
    # Accept small letters here: the plug-in reports them better than PyTorch does.
    return os.environ.get("GLOO_DEVICE_TRANSPORT", "").strip().upper() in TRANSPORTS


def replaces_gloo() -> bool:
    """Whether groups that a program makes with "gloo" are to be ours. ValueError if the setting is neither."""
    value = os.environ.get(_OURS_FOR_GLOO, "")
    if value not in ("", "gloo", "own"):
        raise ValueError(f"{_OURS_FOR_GLOO}={value!r} is not allowed: it must be gloo or own")
    return value == "own"


def _chosen_by_torch() -> str:
    """For a program that names no backend: "cpu:gloo" without a GPU."""
    from torch.distributed import distributed_c10d as c10d

    return str(c10d.BackendConfig(c10d.Backend(_UNDEFINED)))


class Request:
    """What a program asked for when it made a group; PyTorch tells a backend's creator only a part of it."""

    def __init__(self, arguments: Dict[str, Any]) -> None:
        self.said = str(arguments["backend"])  # such as "cpu:gloo,cuda:nccl"; "undefined": PyTorch chooses
        self.options: Any = arguments.get("backend_options", arguments.get("pg_options"))
        self.device_id: Any = arguments.get("device_id")
        self.group_name: str = str(arguments.get("group_name", ""))
        self.ranks: List[int] = list(arguments.get("global_ranks_in_group") or [])
        self.is_default = not self.ranks
        self.enable_reconfigure = bool(arguments.get("enable_reconfigure", False))
        self.replaces = replaces_gloo()
        said = _chosen_by_torch() if self.replaces and self.said == _UNDEFINED else self.said.lower()
        #: The name that the program knows.
        self.says = "gloo" if self.replaces and "gloo" in said else NAME
        pairs = [pair.split(":") for pair in said.split(",")]
        self._devices: Dict[str, str] = {pair[0]: self._named(pair[1]) for pair in pairs if len(pair) == 2}
        # PyTorch stops at our group, so ours comes first: it makes the others.
        ordered = sorted(self._devices.items(), key=lambda item: item[1] != NAME)
        #: What PyTorch is to read instead.
        self.backend = ",".join(":".join(item) for item in ordered) if ordered else self._named(said)

    def _named(self, name: str) -> str:
        return NAME if name == "gloo" and self.replaces else name

    def refuse_clear(self) -> None:
        """RuntimeError where Gloo's own transport would carry what we are to encrypt."""
        asked = os.environ.get(_SECURITY, "")
        if asked in ("", "off") or asks_for_ours():
            return
        said = _chosen_by_torch() if self.backend == _UNDEFINED else self.backend
        if "gloo" in said:
            raise RuntimeError(
                f"gloo_bypass: {_SECURITY}={asked!r} encrypts nothing over Gloo's own transports: set "
                f"GLOO_DEVICE_TRANSPORT to DPDK or UDP, or leave {_SECURITY} out"
            )

    def is_ours(self) -> bool:
        return self.backend == NAME or NAME in self._devices.values()

    def own_devices(self) -> List[str]:
        """That the program has named for ours."""
        return [device for device, name in self._devices.items() if name == NAME]

    def other_devices(self) -> Dict[str, str]:
        return {device: name for device, name in self._devices.items() if name != NAME}


_request: Optional[Request] = None
_told = False  # whether this process has said whose its groups are


def load_groups() -> Any:
    """The module that makes our groups; loads the plug-in. The extension module would crash where there is no GIL:
    objects look otherwise there."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError(
            f"gloo_bypass: the backend {NAME!r} needs a Python that has a GIL, and {sys.executable} is free-threaded: "
            "use the other build of this Python"
        )
    from gloo_bypass import _process_group

    return _process_group


def _create(options: Any, unused: Any = None) -> Any:
    """The creator of the backend."""
    return load_groups().create(options, _request)


def refuse(*unused: Any) -> Any:
    import torch

    least = ".".join(map(str, _LEAST_TORCH))
    raise RuntimeError(f"gloo_bypass: the backend {NAME!r} needs PyTorch {least} or later, this is {torch.__version__}")


def _refusing(make_group: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's function that makes each group, of a release that would go on with Gloo's where ours are wanted."""
    signature = inspect.signature(make_group)

    @functools.wraps(make_group)
    def make(*arguments: Any, **more: Any) -> Any:
        request = Request(signature.bind(*arguments, **more).arguments)
        if request.is_ours():
            refuse()
        request.refuse_clear()
        return make_group(*arguments, **more)

    return make


def _hide_plugin() -> Any:
    """Takes our creator from PyTorch's table of plug-ins: where that has any, PyTorch gives no group of several devices
    ("cpu:gloo") a default backend."""
    import torch.distributed as dist

    return dist.Backend._plugins.pop(NAME.upper(), None)


def _watching(make_group: Callable[..., Any], plugin: Any) -> Callable[..., Any]:
    """PyTorch's function that makes each group, with the request remembered for _create(), which it finds meanwhile."""
    signature = inspect.signature(make_group)

    @functools.wraps(make_group)
    def make(*arguments: Any, **more: Any) -> Any:
        global _request
        bound = signature.bind(*arguments, **more)
        request = Request(bound.arguments)
        request.refuse_clear()
        if not request.is_ours():
            return make_group(*arguments, **more)
        from torch.distributed import Backend

        previous, _request = _request, request
        bound.arguments["backend"] = Backend(request.backend)
        Backend._plugins[NAME.upper()] = plugin
        try:
            made = make_group(*bound.args, **bound.kwargs)
        finally:
            _request = previous
            _hide_plugin()
        if request.says == "gloo":
            _name_it_gloo(request, made)
        return made

    return make


def _name_it_gloo(request: Request, made: Any) -> None:
    """The program asks what it made, and would not know ours."""
    from torch.distributed import distributed_c10d as c10d

    group, store = made
    if group in c10d._world.pg_map:
        said = c10d.Backend(request.said)
        c10d._world.pg_map[group] = (said, store)
        c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(said))
    global _told
    if not _told and (group.rank() if request.is_default else c10d.get_rank()) == 0:
        _told = True
        print(
            f"gloo-bypass: {_OURS_FOR_GLOO}=own: this program's Gloo groups use our collectives",
            file=sys.stderr,
            flush=True,
        )


def _monitored(monitored_barrier: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's function, which knows Gloo only."""

    @functools.wraps(monitored_barrier)
    def call(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> Any:
        from torch.distributed import distributed_c10d as c10d

        used = c10d._get_default_group() if group is None else group
        if hasattr(used, "_door"):
            return used.monitored_barrier(timeout, wait_all_ranks)
        return monitored_barrier(group, timeout, wait_all_ranks)

    return call


def _limited(set_timeout: Callable[..., None]) -> Callable[..., None]:
    """PyTorch's function, which looks for its own backends and warns where there are none."""

    @functools.wraps(set_timeout)
    def call(timeout: Any, group: Any = None) -> None:
        from torch.distributed import distributed_c10d as c10d

        used = c10d._get_default_group() if group is None else group
        if hasattr(used, "_door"):
            used.set_timeout(timeout)
        else:
            set_timeout(timeout, group)

    return call


def _shutting_down(shutdown_backend: Callable[..., None]) -> Callable[..., None]:
    """PyTorch 2.6's function, which ends NCCL's groups only."""

    @functools.wraps(shutdown_backend)
    def call(group: Any) -> None:
        if hasattr(group, "_door"):
            group.shutdown()
        else:
            shutdown_backend(group)

    return call


def torch_release() -> Tuple[int, ...]:
    """(2, 11)"""
    import torch

    return tuple(int(word) for word in torch.__version__.split(".")[:2])


def is_old() -> bool:
    """Whether our groups were never tried with this PyTorch."""
    return torch_release() < _LEAST_TORCH


def _leave_all() -> None:
    groups = sys.modules.get("gloo_bypass._process_group")
    if groups is not None:
        groups.leave_all()


def register() -> None:
    """Makes the backend known to PyTorch, once. Loads nothing of ours."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    old = is_old()
    if hasattr(dist.Backend, NAME.upper()):
        # PyTorch's own import turned what autoload() raised into a warning.
        if old and replaces_gloo():
            refuse()
        return
    known = inspect.signature(dist.Backend.register_backend).parameters
    more = {"extended_api": True, "devices": ["cpu", "cuda"]}  # PyTorch 1.13 has no devices
    creator = refuse if old else _create
    dist.Backend.register_backend(NAME, creator, **{name: more[name] for name in more if name in known})
    plugin = _hide_plugin()
    if old:
        c10d._new_process_group_helper = _refusing(c10d._new_process_group_helper)
        if replaces_gloo():
            refuse()  # now, rather than when a group is made
        return
    c10d._new_process_group_helper = _watching(c10d._new_process_group_helper, plugin)
    c10d._set_pg_timeout = _limited(c10d._set_pg_timeout)
    if hasattr(c10d, "_shutdown_backend"):
        c10d._shutdown_backend = _shutting_down(c10d._shutdown_backend)
    c10d.monitored_barrier = dist.monitored_barrier = _monitored(c10d.monitored_barrier)
    # Now, not when the first group is made: what programs register later ends before groups do, and may use them.
    atexit.register(_leave_all)


def autoload() -> None:
    """Makes the backend known, and imports gloo_bypass if GLOO_DEVICE_TRANSPORT names one of its transports; if that
    fails, one warning says why."""
    try:
        register()
    except Exception as error:
        _warn(f"the backend {NAME!r} will not work: {error}")
    if not asks_for_ours():
        return
    try:
        # PyTorch calls this last, when it is complete, so the package may import it.
        import gloo_bypass  # noqa: F401
    except Exception as error:
        _warn(f"GLOO_DEVICE_TRANSPORT={os.environ['GLOO_DEVICE_TRANSPORT']} will not work: {error}")


def _warn(text: str) -> None:
    try:
        import warnings

        warnings.warn(text, RuntimeWarning, stacklevel=2)
    except Exception:  # -W error turns warnings into exceptions
        try:
            print(f"RuntimeWarning: {text}", file=sys.stderr)
        except Exception:  # no stderr
            pass
