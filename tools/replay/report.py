"""What a play took beside what was traced. Pure."""

import statistics

STEP_COLUMNS = ("step", "traced s", "played s", "ratio", "waiting s")


def steps_of(plan, answers):
    """Rows of each repetition and step, the slowest rank's times: (step, traced or None, played, waiting or None). Of
    a trace without steps, the whole is one; only of a whole is known how long a rank did nothing but wait."""
    rows = []
    for number in range(len(answers[0]["rounds"])):
        rounds = [answer["rounds"][number] for answer in answers]
        for step in sorted({int(step) for each in rounds for step in each["steps_s"]}):
            played = max(each["steps_s"].get(str(step), 0.0) for each in rounds)
            traced = plan.steps_us.get(step)
            waiting = max(each["waited_s"] for each in rounds) if step == 0 else None
            rows.append((step, traced and traced / 1e6, played, waiting))
    return rows


def record(plan, answers, transport):
    """For --json."""
    rows = steps_of(plan, answers)
    names = ("step", "traced_s", "played_s", "waiting_s")
    return {
        "ranks": plan.ranks,
        "transport": transport,
        "least_bytes_a_rank": [answer["least_bytes"] for answer in answers],
        "steps": [dict(zip(names, row)) for row in rows if row[0] > 0],
        "whole": [dict(zip(names[2:], row[2:])) for row in rows if row[0] == 0],
        "ratio": ratio_of(rows),
    }


def ratio_of(rows):
    """Of the medians of the steps that follow the first one, which finds everything cold."""
    pairs = [(traced, played) for step, traced, played, _ in rows if step > 0 and traced]
    pairs = pairs[1:] or pairs
    if not pairs:
        return None
    return statistics.median(played for _, played in pairs) / statistics.median(traced for traced, _ in pairs)


def shown(value):
    return f"{value:.4f}" if value is not None else "-"


def text_of(plan, answers, transport):
    rows = steps_of(plan, answers)
    lines = ["{:>6} {:>10} {:>10} {:>7} {:>10}".format(*STEP_COLUMNS)]
    for step, traced, played, waiting in rows:
        ratio = f"{played / traced:.3f}" if traced else "-"
        lines.append(f"{step or 'all':>6} {shown(traced):>10} {shown(played):>10} {ratio:>7} {shown(waiting):>10}")
    ratio = ratio_of(rows)
    if ratio is not None:
        lines.append(f"median step but the first: played / traced {ratio:.3f}")
    moved = max(answer["least_bytes"] for answer in answers)
    lines.append(f"{plan.ranks} ranks over {transport}; a rank sent and received at least {moved} bytes there")
    return "\n".join(lines)
