"""What PyTorch's profiler shows of our operations."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group(sys.argv[1])
rank, size, tensor = dist.get_rank(), dist.get_world_size(), torch.ones(3, 4)
with torch.autograd.profiler.profile(record_shapes=True) as profile:
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.broadcast(tensor, 0, async_op=True).get_future().wait()
    dist.all_gather([torch.ones(2) for _ in range(size)], torch.ones(2))
    dist.all_gather_into_tensor(torch.ones(2 * size), torch.ones(2))
    dist.all_reduce_coalesced([tensor, torch.ones(1)], async_op=True).wait()
    group = dist.group.WORLD
    group.allgather_coalesced(
        [[torch.ones(1), torch.ones(2)] for _ in range(size)], [torch.ones(1), torch.ones(2)]
    ).wait()
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor)
    dist.barrier()
    # A failure ends its event too.
    for wrong in (dist.ReduceOp.BAND,):
        try:
            dist.all_reduce(tensor, wrong)
        except RuntimeError:
            pass
events = [event for event in profile.function_events if event.name.startswith(sys.argv[1] + ":")]
assert all(event.is_async and event.count == 1 for event in events)
print("events=" + " ".join(f"{event.name}{event.input_shapes}".replace(" ", "") for event in events))
dist.destroy_process_group()
