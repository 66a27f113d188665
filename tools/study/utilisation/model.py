"""The same as the published models have it: computed, over a link that has a rate and a delay and nothing else.

A sum takes what a ring's bytes and rounds take (tools/model/ring.py; Z. Charles et al., "Communication-Efficient
Language Model Training Scales Reliably and Robustly: Scaling Laws for DiLoCo", 2025, appendix A.2, with bandwidth and
latency). One sum follows the other. What is waited for and what goes on beside is the method's, simulated step by step
as for figure 4 of the paper on Streaming DiLoCo; but DiLoCo's own sum is waited for here, where that figure has it
beside a backward pass. Pure.
"""

from gloo_bypass_tools.execution_traces import methods, plan
from gloo_bypass_tools.execution_traces.trace import COLLECTIVE, COMPUTE
from gloo_bypass_tools.model import ring
from gloo_bypass_tools.study.utilisation.cells import PLACES, RANKS


def whole_s(method, rate_mbit, delay_ms, ranks=RANKS):
    """What all steps of a method take: its trace in virtual time. All ranks do the same at the same time."""
    link = ring.Link(delay_ms * 1e-3, rate_mbit * 1e6 / 8)
    actions = plan.make([methods.trace_of(method)]).actions[0]
    ended, thread_free, link_free = [], 0.0, 0.0
    for action in actions:  # in the order in which they begin
        begin = max((ended[other] for other in action.after), default=0.0)
        if action.kind == COLLECTIVE:
            link_free = max(begin, link_free) + ring.time_s(ranks, action.bytes, link)
            ended.append(link_free)
        elif action.kind == COMPUTE:
            thread_free = max(begin, thread_free) + action.duration_us * 1e-6
            ended.append(thread_free)
        else:
            ended.append(begin)
    return max(ended)


def of_cell(cell, method):
    return whole_s(method, cell.rate_mbit, PLACES[cell.place].delay_ms)
