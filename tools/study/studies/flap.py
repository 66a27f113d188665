"""Training over a link that goes down and comes back."""

from gloo_bypass_tools.study import sweeps
from gloo_bypass_tools.study.sweeps import Point, SweepScale

ABOUT = f"""
Two ranks train a tiny model, some tens of steps a second; both ways of their link are down for 50, 200 or 1000 ms,
again and again, and up for {sweeps.UP_MS / 1000:g} s between (in the guest, {sweeps.GUEST_UP_MS / 1000:g} s).
"""
MODEL = "The time down itself: what any transport loses."


def predicted(asked):
    return asked.point.down_ms * 1e-3 if asked.key == "lost_time" else None


STUDIES = (
    sweeps.Sweep(
        name="flap",
        order=130,
        title="A link that goes down and comes back",
        about=ABOUT,
        model_about=MODEL,
        axis="down for",
        workload=sweeps.TRAIN,
        base="none",
        variants=(
            Point("none", label="never", endless=True),
            *(Point(f"{ms}ms", label=f"{ms} ms", down_ms=float(ms), endless=True) for ms in (50, 200, 1000)),
        ),
        quantities=("lost_time", "repeated_bytes", "lost_frames", "t_ar", "t_step"),
        scales={"small": SweepScale(steps=200), "published": SweepScale(steps=1000)},
        model=sweeps.TINY,
        same_bits=True,
        predicted=predicted,
    ),
)
