"""A device for _pipeline.py whose copies run as late as events allow, and in an order that a seed decides: whoever
forgets to wait for one reads what was there before. Memory is bytearrays."""

import random
import threading

CALLERS = 2


class Event:
    """The first `length` copies of a stream."""

    def __init__(self, stream, length):
        self.stream, self.length = stream, length


class Stream:
    def __init__(self):
        self.waiting = []  # copies, and events that later ones wait for; done ones are None
        self.done = 0


class FakeDevice:
    """As _pipeline.Device. `log` has what was done, in its order."""

    def __init__(self, seed=0):
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.streams = [Stream() for _ in range(3)]  # by _pipeline's numbers; the last is the caller's current one
        self.hosts = {}  # by address
        self.log, self.kept = [], []
        self.allocated = []

    def memory_for_short(self):
        return None

    # --- what the device does when it likes ---

    def advance(self, stream, length):
        """Until that many of the stream's tasks have run; others may."""
        with self.lock:
            while stream.done < length:
                task = stream.waiting[stream.done]
                if isinstance(task, Event):
                    self.advance(task.stream, task.length)
                else:
                    task()
                stream.done += 1

    def do_something(self):
        for stream in self.random.sample(self.streams, len(self.streams)):
            if self.random.random() < 0.3:
                self.advance(stream, self.random.randint(stream.done, len(stream.waiting)))

    def finish(self):
        for stream in self.streams:
            self.advance(stream, len(stream.waiting))

    def enqueue(self, stream, task):
        with self.lock:
            self.streams[stream].waiting.append(task)
            self.do_something()

    # --- _pipeline.Device ---

    def now(self):
        return self.mark(CALLERS)

    def catch_up(self, event):
        self.enqueue(CALLERS, event)

    def follow(self, stream, event):
        self.enqueue(stream, event)

    def mark(self, stream):
        with self.lock:
            return Event(self.streams[stream], len(self.streams[stream].waiting))

    def hold(self, event):
        self.advance(event.stream, event.length)

    def keep(self, memory):
        self.kept.append(memory)

    def placed(self, memory):
        self.hosts[(len(self.hosts) + 1) << 32] = memory
        return memory

    def host_memory(self, size, kept):
        self.allocated.append((size, kept))
        return self.placed(bytearray(self.random.randbytes(size)))

    def address(self, host):
        return next(address for address, memory in self.hosts.items() if memory is host)

    def copy_in(self, stream, host, at, memory, first, last):
        def copy():
            self.log.append(("in", first, last))
            host[at : at + last - first] = memory[first:last]

        self.enqueue(stream, copy)

    def copy_out(self, stream, memory, first, last, host, at):
        def copy():
            self.log.append(("out", first, last))
            memory[first:last] = host[at : at + last - first]

        self.enqueue(stream, copy)
