"""What a sweep measures, cell by cell, and how a cell is run: a point over a transport. Pure."""

from gloo_bypass_tools.study import cells, sweep_prediction, sweeps, training


def cells_of(plan):
    """In the order of measuring: the transports of one point one after another."""
    return training.cells_of(plan)


def command_of(plan, study, cell, programs, output, limit=()):
    point = study.variant(cell.variant)
    if study.workload == sweeps.TRAIN:
        return training.command_of(plan, point, cell, programs, output, limit)
    model_s = sweep_prediction.reduce_s(plan, point, cell.transport)
    return cells.reduce_command(
        plan.of_reduce(point),
        cell.transport,
        ("--ranks", point.ranks, *point.fabric_flags()),
        ("--algorithm", point.algorithm),
        model_s,
        programs,
        output,
        cells.report_beside(output),
    )


def run_limit_s(plan, study, cell):
    point = study.variant(cell.variant)
    if study.workload == sweeps.TRAIN:
        # Of a rank with little processor time, the start too.
        return training.run_limit_s(plan, point, cell.transport) / (point.processor_share or 1.0)
    return cells.run_limit_s(
        plan.of_reduce(point), sweep_prediction.reduce_s(plan, point, cell.transport), cell.transport
    )


def guest_problem_of(plan, study):
    """Why this sweep says nothing in the guest; empty where it does."""
    return study.guest_problem(plan, study) if plan.guest else ""


def problem_of(plan, study):
    """Why a point cannot be measured; empty where all can."""
    for point in (study.variant(name) for name in plan.variants):
        if study.workload == sweeps.TRAIN:
            if (steps := training.steps_of(plan, point)) <= plan.warm_up:
                return f"--warm-up {plan.warm_up} leaves none of the {steps} steps of {point.name} to measure"
        elif (size := point.bytes or plan.bytes) % 4 or size < 8 * point.ranks:
            return (
                f"--bytes {size}: it must be a multiple of 4, and {8 * point.ranks} at least with {point.ranks} ranks"
            )
    return ""
