"""All-reduces until one fails; prints the error and how long the failing one took. Stays until a file "leave" exists,
so that its end makes no other rank fail. Where none fails, ends ROUNDS after all ranks have found a file "end".
Arguments: timeout in seconds, "child" for a forked one that stays as long."""

import datetime
import os
import sys
import time

import load  # noqa: F401
import torch
import torch.distributed as dist

ROUNDS = 1000
timeout = float(sys.argv[1])


def stay():
    for _ in range(1000):
        if os.path.exists("leave"):
            break
        time.sleep(0.05)


dist.init_process_group("gloo")
dist.barrier()  # the timeout is for those who are here: importing PyTorch may take one rank seconds longer than another
group = dist.new_group(timeout=datetime.timedelta(seconds=timeout))
size = dist.get_world_size()
tensor = torch.empty(20_000)  # stays: see collectives.py: leave()
number, rounds_left = 0, ROUNDS
while rounds_left > 0:
    begin = time.monotonic()
    try:
        tensor.fill_(number + dist.get_rank())
        tensor[-1] = os.path.exists("end")
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        print(f"seconds={time.monotonic() - begin:.3f}")
        print(f"failed_at={time.time():.3f}")
        print("error=" + str(error).replace("\n", " "))
        stay()
        sys.exit(3)
    assert (tensor[:-1] == size * number + size * (size - 1) // 2).all(), "a wrong sum"
    rounds_left -= int(tensor[-1] == size)
    if number == 10 and "child" in sys.argv and os.fork() == 0:
        stay()
        os._exit(0)
    if number == 20:
        print("going=yes")
    number += 1
del group
dist.destroy_process_group()
print("done=yes")
