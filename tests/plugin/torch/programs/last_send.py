"""Rank 0 sends messages, waits for them, and its process ends. Rank 1 is busy meanwhile, and receives once a file
"ended" exists. Arguments: how rank 0 ends (endings.py; "destroy": the group first), number of messages, bytes of
each."""

import os
import sys
import time

import load  # noqa: F401
import torch
import torch.distributed as dist
from endings import end, join

how, count, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
join()
first = torch.zeros(1)
if dist.get_rank() == 0:
    dist.send(first, 1)
    messages = [torch.full((length,), number % 251, dtype=torch.uint8) for number in range(count)]
    sent = [dist.isend(message, 1) for message in messages]
    while sent:
        sent.pop(0).wait()
    if how == "destroy":
        dist.destroy_process_group()
    end(how)
dist.recv(first, 0)
print("busy=yes")
while not os.path.exists("ended"):
    time.sleep(0.01)
message = torch.empty(length, dtype=torch.uint8)
for number in range(count):
    message.zero_()
    dist.recv(message, 0)
    assert (message == number % 251).all(), f"message {number} is wrong"
try:
    dist.recv(message, 0)
except RuntimeError as error:
    print("error=" + str(error).replace("\n", " "))
print("received=all")
os._exit(0)
