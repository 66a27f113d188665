"""A rank's nodes, built from what its main thread did over time: it computed, began collectives, and waited for some.
Pure.
"""

from gloo_bypass_tools.execution_traces.trace import COLLECTIVE, COMPUTE, NOTHING, Node, Trace


class Timeline:
    """Times are microseconds of one clock, and never go back. What lies between two calls was computed."""

    def __init__(self, begin_us):
        self.begin_us = self.cursor_us = begin_us
        self.nodes, self.steps_us = [], {}
        self.step = None
        self.waits_for = []  # of the next node on the thread

    def whole_us(self, time_us):
        """Rounded, so that the sum of durations stays right."""
        return round(time_us - self.begin_us)

    def add(self, name, kind, waits_for, **more):
        begin = self.whole_us(self.cursor_us)
        node = Node(len(self.nodes) + 1, name, kind, sorted(waits_for), begin, on_cpu=True, step=self.step, **more)
        self.nodes.append(node)
        return node.id

    def compute(self, until_us, name):
        duration_us = self.whole_us(until_us) - self.whole_us(self.cursor_us)
        last = self.nodes[-1] if self.nodes else None
        if last and self.waits_for == [last.id] and (last.kind, last.name, last.step) == (COMPUTE, name, self.step):
            last.duration_us += duration_us
        elif duration_us > 0:
            self.waits_for = [self.add(name, COMPUTE, self.waits_for, duration_us=duration_us)]
        self.cursor_us = max(self.cursor_us, until_us)

    def collective(self, operation, size, name, group=""):
        """Begins one now; its node's id."""
        return self.add(name, COLLECTIVE, self.waits_for, operation=operation, bytes=size, group=group)

    def wait(self, collectives, until_us):
        """The thread waited for these until then."""
        self.waits_for = sorted({*self.waits_for, *collectives})
        self.cursor_us = max(self.cursor_us, until_us)

    def begin_step(self, step, duration_us):
        self.step = step
        self.steps_us[step] = round(duration_us)
        self.add(f"ProfilerStep#{step}", NOTHING, self.waits_for, duration_us=round(duration_us))

    def end_step(self):
        self.step = None

    def trace(self):
        return Trace(self.nodes, self.steps_us)
