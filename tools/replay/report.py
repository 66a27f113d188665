"""What a play took beside what was traced. Pure."""

import statistics

STEP_COLUMNS = ("step", "traced s", "played s", "ratio", "waiting s")


def steps_of(plan, answers):
    """Rows of each repetition, all of it first (step None) and then its steps: (step, traced or None, played, waiting
    or None), the slowest rank's times. Only of all of it is known how long a rank did nothing but wait."""
    rows = []
    for number in range(len(answers[0]["rounds"])):
        rounds = [answer["rounds"][number] for answer in answers]
        rows.append((None, None, max(each["whole_s"] for each in rounds), max(each["waited_s"] for each in rounds)))
        for step in sorted({int(step) for each in rounds for step in each["steps_s"]}):
            traced = plan.steps_us.get(step)
            played = max(each["steps_s"].get(str(step), 0.0) for each in rounds)
            rows.append((step, traced and traced / 1e6, played, None))
    return rows


def record(plan, answers, transport):
    """For --json."""
    rows = steps_of(plan, answers)
    names = ("step", "traced_s", "played_s", "waiting_s")
    return {
        "ranks": plan.ranks,
        "transport": transport,
        "least_bytes_a_rank": [answer["least_bytes"] for answer in answers],
        "steps": [dict(zip(names, row)) for row in rows if row[0] is not None],
        "whole": [dict(zip(names[2:], row[2:])) for row in rows if row[0] is None],
        "ratio": ratio_of(rows),
    }


def ratio_of(rows):
    """Of the medians of the steps that follow the first one, which finds everything cold."""
    first = min((step for step, *_ in rows if step is not None), default=None)
    steps = [(step, traced, played) for step, traced, played, _ in rows if step is not None and traced]
    pairs = [(traced, played) for step, traced, played in steps if step != first]
    pairs = pairs or [(traced, played) for _, traced, played in steps]
    if not pairs:
        return None
    return statistics.median(played for _, played in pairs) / statistics.median(traced for traced, _ in pairs)


def shown(value):
    return f"{value:.4f}" if value is not None else "-"


def text_of(plan, answers, transport):
    rows = steps_of(plan, answers)
    lines = ["{:>6} {:>10} {:>10} {:>7} {:>10}".format(*STEP_COLUMNS)]
    for step, traced, played, waiting in rows:
        name, ratio = "all" if step is None else step, f"{played / traced:.3f}" if traced else "-"
        lines.append(f"{name:>6} {shown(traced):>10} {shown(played):>10} {ratio:>7} {shown(waiting):>10}")
    ratio = ratio_of(rows)
    if ratio is not None:
        which = "the only step" if len({step for step, *_ in rows} - {None}) == 1 else "median step but the first"
        lines.append(f"{which}: played / traced {ratio:.3f}")
    moved = max(answer["least_bytes"] for answer in answers)
    lines.append(f"{plan.ranks} ranks over {transport}; a rank sent and received at least {moved} bytes there")
    return "\n".join(lines)
