"""The pictures of a study's page, in both of the report's themes. Pure but for reading the raw files."""

from dataclasses import dataclass

from gloo_bypass_tools.report import page, plots
from gloo_bypass_tools.study import trace_plots, traces

RANKS = "ranks"


@dataclass(frozen=True)
class Picture:
    """`section` of the page; `name`: of the file, without .png; `alt`: for those who cannot see it. PNGs."""

    section: str
    name: str
    alt: str
    light: bytes
    dark: bytes

    def as_shown(self):
        """What the template needs."""
        return {"light": page.data_uri(self.light), "dark": page.data_uri(self.dark), "alt": self.alt}


def in_both(section, name, alt, draw):
    """`draw(theme)` gives a PNG, or None where there is nothing to draw; then there is no picture."""
    light = draw(plots.LIGHT)
    return None if light is None else Picture(section, name, alt, light, draw(plots.DARK))


def write(folder, pictures):
    for one in pictures:
        folder.write_bytes(f"plots/{one.name}.png", one.light)


def slug_of(variant):
    """For a file's name."""
    return "".join(one for one in variant if one.isalnum() or one in "-._")


def traces_of(folder, runs):
    """(variant, transport) -> RunTrace of the first run that left any."""
    found = {}
    for run in runs:
        key = run["cell"]["variant"], run["cell"]["transport"]
        if key not in found and (trace := traces.trace_of(folder.place(run["folder"]))) is not None:
            found[key] = trace
    return found


def of_ranks(by_run, variant, label, transports):
    """What each rank used over time; nothing where no run of the variant was sampled."""
    if not any(trace.ranks for (name, _), trace in by_run.items() if name == variant):
        return []
    alt = f"{label}: CPU, memory, bytes sent and received of each rank over time, over each transport; samples.csv has "
    alt += "the same figures."

    def draw(theme):
        return trace_plots.ranks(by_run, variant, label, transports, theme)

    return [in_both(RANKS, f"ranks-{slug_of(variant)}", alt, draw)]
