"""How long a study takes, said before it begins: by the model where that knows, else by what was measured on one
machine. Pure.

That machine: 2 cores of an Intel Xeon (Emerald Rapids) with nothing else to do; the guest: emulated on it. Others need
their own times, and a busy machine several times as long. Units: seconds, bytes, floating-point operations.
"""

from gloo_bypass_tools.model import ring
from gloo_bypass_tools.study import definition, prediction, training_prediction, transports
from gloo_bypass_tools.study.plan import steps_of

# A run: fabric and processes come up, meet, and go.
START_S, GUEST_START_S, BOOT_S = 6.0, 40.0, 30.0
# Of DistilGPT2: a sample of 64 tokens in FP32 on one core, forward, backward and its share of the optimiser; a step of
# the tiny model.
SAMPLE_S, TINY_STEP_S = 0.3, 0.05
# What crosses the fabric, in all, through the kernel or while ranks compute; through memory while they do not; in the
# guest.
EVENT_BYTES_A_SECOND, MEMORY_BYTES_A_SECOND, GUEST_BYTES_A_SECOND = 2.3e8, 1e9, 4e6
# An all-reduce over TCP where frames are lost, to one where none are; for models that know of no loss.
LOSS_OVER_TCP = 2.0
# In the guest, of each of its two processors; and what a step needs there besides, whatever the size of the model.
GUEST_OPERATIONS_A_SECOND, GUEST_STEP_S = 6e7, 0.3
OPERATIONS_A_TOKEN = {definition.MODEL: 6 * 82e6, definition.TINY: 6 * 46e3}


def reduces_s(plan, model_s, transport, lossy=False):
    """A run of all_reduce_perf: one that is checked, those that warm up, those that are timed. The model leaves out the
    processor, which moves what crosses the fabric."""
    start_s, rate = START_S, MEMORY_BYTES_A_SECOND if transport == "DPDK" else EVENT_BYTES_A_SECOND
    if transport in plan.guest:
        start_s, rate = GUEST_START_S, GUEST_BYTES_A_SECOND
    one_s = model_s + ring.event_bytes(plan.ranks, plan.bytes) / rate
    if lossy and transports.is_tcp(transport):
        one_s *= LOSS_OVER_TCP
    return start_s + (1 + plan.warm_up + plan.rounds) * one_s


def step_s(plan, point, transport, cores):
    model, frames = plan.model_over(transport), training_prediction.event_bytes(plan, point, transport).frames
    # Sixteen bits as 32: a processor that has arithmetic for them is quicker, another slower.
    crowd = max(1.0, point.ranks / cores) * max(1.0, point.bits / 32)
    if transport in plan.guest:
        operations = OPERATIONS_A_TOKEN[model] * point.batch * plan.sequence_length_over(transport)
        return GUEST_STEP_S + crowd * operations / GUEST_OPERATIONS_A_SECOND + frames / GUEST_BYTES_A_SECOND
    crossing_s = frames / EVENT_BYTES_A_SECOND
    step = TINY_STEP_S * crowd if model == definition.TINY else crowd * point.batch * SAMPLE_S + crossing_s
    if not point.edge.is_slow:
        return step
    return step + training_prediction.reduces_s(plan, point, transport, crossing_s) - crossing_s


def training_s(plan, point, transport, cores):
    start_s = GUEST_START_S if transport in plan.guest else START_S
    return start_s + steps_of(plan, point) * step_s(plan, point, transport, cores) / (point.processor_share or 1.0)


def cell_s(plan, study, cell, cores):
    """Of a run, on a quick machine."""
    point = study.variant(cell.variant)
    if study.workload == definition.TRAIN:
        return training_s(plan, point, cell.transport, cores)
    model_s = prediction.schedule_s(plan, study, cell)
    return reduces_s(plan.at(point), model_s, cell.transport, bool(cell.loss_percent))


def in_words(plan, runs_s):
    """`runs_s`: of all runs together."""
    seconds = runs_s + (BOOT_S if plan.guest else 0.0)
    minutes = max(1, round(seconds / 60))
    return f"about {minutes} min" if minutes < 120 else f"about {seconds / 3600:.1f} hours"
