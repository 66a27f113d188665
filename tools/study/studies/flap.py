"""Training over a link that goes down and comes back."""

from gloo_bypass_tools.study.definition import GUEST_UP_MS, TINY, TRAIN, UP_MS, Point, sweep, training_scale

ABOUT = f"""
Two ranks train a tiny model, some tens of steps a second; both ways of their link are down for 50, 200 or 1000 ms,
again and again, and up for {UP_MS / 1000:g} s between (in the guest, {GUEST_UP_MS / 1000:g} s).
"""
MODEL = "The time down itself: what any transport loses."


def predicted(asked):
    return asked.point.down_ms * 1e-3 if asked.key == "lost_time" else None


STUDIES = (
    sweep(
        TRAIN,
        name="flap",
        order=130,
        title="A link that goes down and comes back",
        about=ABOUT,
        model_about=MODEL,
        axis="down for",
        base="none",
        variants=(
            Point("none", label="never", endless=True),
            *(Point(f"{ms}ms", label=f"{ms} ms", down_ms=float(ms), endless=True) for ms in (50, 200, 1000)),
        ),
        quantities=("lost_time", "repeated_bytes", "lost_frames", "t_ar", "t_step"),
        scales={"small": training_scale(200), "published": training_scale(1000)},
        model=TINY,
        same_bits=True,
        predicted=predicted,
    ),
)
