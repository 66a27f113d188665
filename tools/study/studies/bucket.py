"""Training with other sizes of DDP's buckets."""

from gloo_bypass_tools.model import overlap
from gloo_bypass_tools.study.definition import TINY, TRAIN, Point, sweep
from gloo_bypass_tools.study.training_prediction import gradient_buckets

ABOUT = """
Two ranks; gradients are reduced in buckets of at most so many MiB, the first of at most 1 MiB, while backward goes on.
"""
MODEL = """
T_ar: buckets against backward, two at a time, with the time of a byte and backward's window from the measured default
of 25 MiB (which is therefore met by itself). Bytes: 2(N-1) S and headers.
"""
BISECTIONS = 60


def time_of_buckets(listed, window_s, byte_s):
    """T_ar where an all-reduce has byte_s for each byte, and as much longer as others run beside it."""
    return overlap.timeline(
        [bucket.ready * window_s for bucket in listed],
        [bucket.size for bucket in listed],
        lambda size, together: size * byte_s * together,
    )


def timeline(model, point, base_point, base):
    """Of this point's buckets, where the base's T_ar and its visible part say how long backward's window and a byte
    take."""
    window_s = base["t_ar"] - base["t_exposed"]
    of_base, total = gradient_buckets(base_point, model), 0.0
    if base["t_ar"] <= 0:
        return None
    low, high = 0.0, 2 * base["t_ar"] / sum(bucket.size for bucket in of_base)
    for _ in range(BISECTIONS):
        total = (low + high) / 2
        low, high = (low, total) if time_of_buckets(of_base, window_s, total).ar_s > base["t_ar"] else (total, high)
    # The window is from the first bucket's readiness to the last one's, and a smaller first bucket is ready sooner: by
    # little, left out.
    return time_of_buckets(gradient_buckets(point, model), window_s, total)


def predicted(asked):
    if not asked.has_times:
        return None
    made = timeline(asked.plan.model_over(asked.transport), asked.point, asked.base_point, asked.base)
    if made is None:
        return None
    return {
        "t_ar": made.ar_s,
        "t_exposed": made.exposed_s,
        "t_step": asked.base["t_step"] + made.exposed_s - asked.base["t_exposed"],
    }.get(asked.key)


def guest_problem(plan):
    if plan.guest_model != TINY:
        return ""
    return (
        "in the guest the tiny model trains, whose gradient of 0.18 MB is one bucket at all these sizes; "
        "--guest-model distilgpt2 has some, at many minutes a step"
    )


STUDIES = (
    sweep(
        TRAIN,
        name="bucket",
        order=120,
        title="Bucket size of DDP",
        about=ABOUT,
        model_about=MODEL,
        axis="bucket, MiB",
        base="25MiB",
        variants=tuple(
            Point(
                f"{size:g}MiB",
                bucket_mb=size,
                label=f"{size:g}",
                published=("batch-size", "bs=8") if size == 25 else (),
            )
            for size in (1.0, 10.0, 25.0, 100.0, 500.0)
        ),
        quantities=("t_step", "t_ar", "t_exposed", "bytes_per_event"),
        same_bits=True,
        predicted=predicted,
        guest_problem=guest_problem,
    ),
)
