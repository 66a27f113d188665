"""available() under each of the environments in the argument, one after the other in one process: importing PyTorch
takes seconds.

Prints a JSON list of {"answers": ..., "left": what this process has afterwards that it had not before}; last, what
the answers to three threads that ask at the same time.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import gloo_bypass


def state_of_process():
    """Threads, open files and children."""
    state = {"thread " + name for name in os.listdir("/proc/self/task")}
    for fd in os.listdir("/proc/self/fd"):
        try:
            state.add(f"file {fd} {os.readlink('/proc/self/fd/' + fd)}")
        except FileNotFoundError:
            pass  # the descriptor that listed the folder
    with open("/proc/thread-self/children") as children:
        return state | {"child " + pid for pid in children.read().split()}


results = []
for environment in json.loads(sys.argv[1]):
    os.environ.update(environment)
    before = state_of_process()
    answers = gloo_bypass.available()
    after = state_of_process()
    results.append(
        {
            "answers": {name: [bool(a), a.name, a.available, a.device, a.reason] for name, a in answers.items()},
            "left": sorted(after - before),
        }
    )
    for name in environment:
        del os.environ[name]
with ThreadPoolExecutor(3) as threads:
    at_once = [future.result() for future in [threads.submit(gloo_bypass.available) for _ in range(3)]]
results.append([[str(answer) for answer in answers.values()] for answers in at_once])
print(json.dumps(results))
