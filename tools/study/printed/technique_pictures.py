"""Loss against time as pictures: of a link's measured runs, with loss against bytes beside it; and of a stored run,
which does not have the bytes, a column for each transport and a row for each link. Pure but for reading and writing."""

from gloo_bypass_tools.report import marked_tables
from gloo_bypass_tools.report.plots import LIGHT
from gloo_bypass_tools.study import panels
from gloo_bypass_tools.study.printed import technique_runs
from gloo_bypass_tools.study.printed.technique_entries import STUDIES
from gloo_bypass_tools.study.printed.technique_runs import WINDOW
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

LOSS = f"loss, mean of {WINDOW} steps"
HEIGHT_IN, LEGEND_IN = 2.6, 0.6


def draw_loss(axes, run, at, **look):
    """Of a measured or stored run. `at`: where on the x axis each step ended."""
    axes.plot(at[WINDOW - 1 :], run.smoothed(), **look)


def write_measured(path, title, runs):
    figure, ((over_time, over_bytes),) = panels.panels(LIGHT, 2, [3.2], title, share_x="none")
    for index, run in enumerate(runs):
        look = panels.look_of(index, LIGHT) | {"label": f"{run.point}, {run.transport}"}
        draw_loss(over_time, run, run.seconds, **look)
        draw_loss(over_bytes, run, [sent / 1e6 for sent in run.bytes], **look)
    over_time.set(xlabel="seconds", ylabel=LOSS)
    over_bytes.set(xlabel="MB sent by rank 0", xscale="log")
    over_bytes.legend(fontsize="small")
    panels.write(figure, path)


def figure_of(run):
    links, transports, study = run.of("link"), run.of("transport"), STUDIES[run.study]
    # A point looks the same in all pictures of a study.
    looks = {point: panels.look_of(at, LIGHT) for at, point in enumerate(study.points)}
    figure, grid = panels.panels(LIGHT, len(transports), [HEIGHT_IN] * len(links), f"{study.title}, {run.ranks} ranks")
    panels.name_columns(grid, transports, LIGHT)
    for row in run.rows:
        axes = grid[links.index(row.link)][transports.index(row.transport)]
        draw_loss(axes, row, row.seconds, **looks[row.point])
    for axes in grid.flat:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
        axes.set_xlabel("seconds", fontsize=9)
    for link, (first, *_) in zip(links, grid):
        panels.label_levels(first, LIGHT, f"{link}: {LOSS}")
    key = [(point, looks[point]) for point in run.of("point")]
    panels.key_below(figure, LIGHT, key, LEGEND_IN / figure.get_figheight(), columns=3)
    return figure


def pictures_of(folder):
    """{path of the picture: the stored run}, of those with losses of more steps than one point of a line takes."""
    runs = {path: technique_runs.read(path) for path in sorted(folder.glob(f"*{marked_tables.RUN}"))}
    return {
        path.with_name(path.name.replace(marked_tables.RUN, ".svg")): run
        for path, run in runs.items()
        if all(len(row.losses) > WINDOW for row in run.rows)
    }


def write_stored(folder):
    """Beside the page, the same for the same runs."""
    for path, run in pictures_of(folder).items():
        panels.write_same(lambda run=run: figure_of(run), path)
