"""What has been published of these methods: computed, over a link that has a rate and a delay and nothing else.

A sum of S bits over R ranks takes 2 S (1 - 1/R) / W + e (Z. Charles et al., "Communication-Efficient Language Model
Training Scales Reliably and Robustly: Scaling Laws for DiLoCo", 2025, appendix A.2, with the bandwidth W); e is the
delay of the ring's 2 (R - 1) rounds. One sum follows the other; what overlaps is simulated step by step, as for figure
4 of the paper on Streaming DiLoCo. Pure.
"""

from gloo_bypass_tools.execution_traces import methods, plan
from gloo_bypass_tools.execution_traces.trace import COLLECTIVE, COMPUTE
from gloo_bypass_tools.study.utilisation.cells import PLACES, RANKS


def sum_s(size, rate_mbit, delay_ms, ranks=RANKS):
    return 2 * 8 * size * (1 - 1 / ranks) / (rate_mbit * 1e6) + 2 * (ranks - 1) * delay_ms * 1e-3


def whole_s(method, rate_mbit, delay_ms, ranks=RANKS):
    """What all steps of a method take: its trace in virtual time. All ranks do the same at the same time."""
    actions = plan.make([methods.trace_of(method)]).actions[0]
    ended, thread_free, link_free = [], 0.0, 0.0
    for action in actions:  # in the order in which they begin
        begin = max((ended[other] for other in action.after), default=0.0)
        if action.kind == COLLECTIVE:
            link_free = max(begin, link_free) + sum_s(action.bytes, rate_mbit, delay_ms, ranks)
            ended.append(link_free)
        elif action.kind == COMPUTE:
            thread_free = max(begin, thread_free) + action.duration_us * 1e-6
            ended.append(thread_free)
        else:
            ended.append(begin)
    return max(ended)


def of_cell(cell, method):
    return whole_s(method, cell.rate_mbit, PLACES[cell.place].delay_ms)
