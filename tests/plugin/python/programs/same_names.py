"""What a group and its backend for CPUs answer besides collectives, over Gloo's and over ours, as `where.call=answer`
lines of one backend after the other. Argument: gloo or bypass. One rank."""

import datetime
import re
import sys
import warnings

import torch
import torch.distributed as dist

CPU = torch.device("cpu")
SECONDS = datetime.timedelta(seconds=7)
TYPES = dist.ProcessGroup.BackendType


def own_store():
    return dist.HashStore()


def reconfigured(group):
    options = torch._C._distributed_c10d.ReconfigureOptions()
    options.uuid, options.handles = 1, [group.get_reconfigure_handle()]
    group.reconfigure(options).wait()
    return group.rank(), group.size(), group.get_reconfigure_handle()


def options_of(backend):
    made = backend.options
    return made.backend, made._timeout, made.group_name, made.global_ranks_in_group


def merged(group):
    made = group.merge_remote_group(own_store(), 1, SECONDS)
    tensor = torch.ones(2)
    made.allreduce([tensor]).wait()
    names = made.group_name.split(":")[-1], made.group_desc
    return type(made) is type(group), made.rank(), made.size(), names, tensor.tolist()


def split(group):
    made = group.split_group([0])
    return type(made) is type(group), made.rank(), made.size(), made.group_desc.split(":")[:2]


def refused(group, ranks):
    try:
        group.split_group(ranks)
    except RuntimeError as error:
        return str(error).splitlines()[0]


#: Called on the group, and on its backend for CPUs.
BOTH = {
    "rank": lambda it: it.rank(),
    "size": lambda it: it.size(),
    "name": lambda it: it.name(),
    "_get_backend_name": lambda it: it._get_backend_name(),
    "_get_sequence_number_for_group": lambda it: type(it._get_sequence_number_for_group()),
    "set_timeout": lambda it: it.set_timeout(SECONDS),
    "supports_reconfigure": lambda it: it.supports_reconfigure,
    "supports_window": lambda it: it.supports_window,
    "get_reconfigure_handle": lambda it: it.get_reconfigure_handle(),
    "new_window": lambda it: it.new_window(),
    "register_abort_hook": lambda it: it.register_abort_hook(1, print),
    "unregister_abort_hook": lambda it: it.unregister_abort_hook(1),
    "_add_ephemeral_timeout": lambda it: it._add_ephemeral_timeout(SECONDS),
    "_enable_collectives_timing": lambda it: it._enable_collectives_timing(),
    "_register_on_completion_hook": lambda it: it._register_on_completion_hook(print),
    "_wait_for_pending_works": lambda it: it._wait_for_pending_works(),
    "bound_device_id": lambda it: it.bound_device_id,
    "monitored_barrier": lambda it: it.monitored_barrier(SECONDS),
}
GROUP = {
    "_device_types": lambda it: [device for device in it._device_types if device == CPU],
    "_has_hooks": lambda it: it._has_hooks(),
    "_id": lambda it: type(it._id()),
    "_backend_id": lambda it: type(it._backend_id(TYPES.GLOO)),
    "_start_coalescing": lambda it: it._start_coalescing(CPU),
    "_end_coalescing": lambda it: it._end_coalescing(CPU),
    "use_pg_for_symm_mem_rendezvous": lambda it: it.use_pg_for_symm_mem_rendezvous,
    "get_backend": lambda it: it.get_backend(CPU).name(),
    "register_pre_hook": lambda it: it.register_pre_hook(1, print),
    "register_post_hook": lambda it: it.register_post_hook(1, print),
    "unregister_pre_hook": lambda it: it.unregister_pre_hook(1),
    "unregister_post_hook": lambda it: it.unregister_post_hook(1),
    "boxed": lambda it: type(it.boxed()),
    "unbox": lambda it: type(dist.ProcessGroup.unbox(it.boxed())) is type(it),
    "merge_remote_group": merged,
    "split_group": split,
    "split_group_of_none": lambda group: refused(group, []),
    "split_group_of_one_twice": lambda group: refused(group, [0, 0]),
    "_set_pg_timeout": lambda it: dist.distributed_c10d._set_pg_timeout(SECONDS, it),
    "timeout": lambda it: it._get_backend(CPU).options._timeout,
    "reconfigure": reconfigured,
}
BACKEND = {
    "options": options_of,
    "_set_default_timeout": lambda it: it._set_default_timeout(SECONDS),
    "get_error": lambda it: it.get_error(),
    "eager_connect_single_device": lambda it: it.eager_connect_single_device(torch.device("cpu", 0)),
    "supports_splitting": lambda it: it.supports_splitting,
    "supports_coalescing": lambda it: it.supports_coalescing,
    "supports_time_estimate": lambda it: it.supports_time_estimate,
    "supports_shrinking": lambda it: it.supports_shrinking,
    "supports_tensor_alloc": lambda it: it.supports_tensor_alloc(torch.device("cuda:0")),
    "allocate_tensor": lambda it: it.allocate_tensor(2, dtype=torch.float32, device=CPU),
    "mem_allocator": lambda it: it.mem_allocator,
    "memory_stats": lambda it: it.memory_stats(),
    "suspend": lambda it: it.suspend(),
    "resume": lambda it: it.resume(),
    "shrink": lambda it: it.shrink([0]),
    "_verify_work_timeout": lambda it: it._verify_work_timeout(None, SECONDS),
    "_set_group_uid": lambda it: it._set_group_uid("x"),
    "setUsePgForSymmMemRendezvous": lambda it: it.setUsePgForSymmMemRendezvous(False),
    "allreduce_sparse": lambda it: it.allreduce_sparse([torch.eye(2).to_sparse()]).wait(),
    "split": lambda it: it.split(own_store(), [0], it.options).size(),
    "merge": lambda it: it.merge(own_store(), it.options, 0, 1).size(),
}


def answer(call, it):
    """The value, or the exception's classes that programs catch, and its first line."""
    try:
        text = repr(call(it))
    except Exception as error:
        kind = next(kind for kind in type(error).__mro__ if kind.__module__ in ("builtins", "torch.distributed"))
        text = f"{kind.__name__}: {str(error).splitlines()[0]}"
    return re.sub(r"0x[0-9a-f]+|gloo_bypass: |\(Got.*", "", text)


def main():
    backend = sys.argv[1]
    warnings.simplefilter("ignore")
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=2 * SECONDS)
    group = dist.group.WORLD
    for where, it, calls in (
        ("backend", group._get_backend(CPU), {**BACKEND, **BOTH}),
        ("group", group, {**BOTH, **GROUP}),
    ):
        for name, call in calls.items():
            print(f"{where}.{name}={answer(call, it)}")


if __name__ == "__main__":
    main()
