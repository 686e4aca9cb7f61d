"""The demonstration: methods on digits that arrive one class at a time, all with the same bytes of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onebyone.cli.options import method_option
from onebyone.cli.output import Output
from onebyone.cli.progress import Bar
from onebyone.data import Dataset, load
from onebyone.evaluation import Result
from onebyone.files import atomic_write
from onebyone.methods import find
from onebyone.paper.figures import style
from onebyone.paper.printed import TITLES
from onebyone.runs.config import RunConfig
from onebyone.runs.listener import Listener
from onebyone.runs.results import Results, summarize
from onebyone.runs.run import run
from onebyone.runs.table import EMPTY, Table, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEMORY = 20  # samples per class
BUDGET = MEMORY * 10 * 64  # bytes of as many digits, for a method that keeps something else
METHODS = {
    "patch-lda (auto)": RunConfig(method="patch-lda", device="cpu", options={"budget": BUDGET}),
    **{
        title: RunConfig(method=name, device="cpu", memory_per_class=MEMORY)
        for title, name in {"CCP": "ccp", "SupBYOL": "supbyol", "ER": "er", "fine-tuning": "finetune"}.items()
    },
}
SEEDS = (0, 1, 2)
METRICS = ("accuracy", "forgetting", "average_anytime")
TITLE = f"digits, one class at a time, {BUDGET:,} bytes of memory, {len(SEEDS)} seeds, in per cent"


def demo_command(
    methods: Annotated[list[str] | None, method_option("five")] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the picture and the runs go.")] = Path("demo"),
) -> Output:
    """Compare methods on ten digits: a table and a picture.

    Each method learns three times, one class at a time, in seconds on a CPU.
    A second call finds the runs that are done.
    """
    configs = chosen(methods or ())
    with Bar() as bar:
        results = compare(out, configs, listener=bar)
    picture: Path | None = out / "anytime.png"
    try:
        anytime_figure(results, out / "anytime.png", {title: style(each.method)[0] for title, each in configs.items()})
    except ImportError as error:
        picture = None
        missing = f"There is no picture ({error}); pip install 'onebyone[research]'"
    data: dict[str, dict[str, Any]] = {}
    rows = []
    for name, runs in results.items():
        found = Results.from_runs(runs)
        values = {metric: found.summarize(metric) for metric in METRICS}
        rows.append([name, *(str(value.percent) if value else EMPTY for value in values.values())])
        data[name] = {metric: {"mean": value.mean, "std": value.std} for metric, value in values.items() if value}
    table = render(Table(TITLE, ["method"], {"": [metric.replace("_", " ") for metric in METRICS]}, rows))
    last = f"The picture: {picture}" if picture else missing
    return Output({"methods": data, "seeds": len(SEEDS), "picture": picture}, table, last)


def chosen(names: Sequence[str]) -> dict[str, RunConfig]:
    """The run of each of these methods by its title; without names, those of the demonstration."""
    if not names:
        return METHODS
    titles = {config.method: title for title, config in METHODS.items()}
    found: dict[str, RunConfig] = {}
    for name in dict.fromkeys(names):
        find(name)  # refuses an unknown name before the first run
        if name in titles:
            found[titles[name]] = METHODS[titles[name]]
        else:
            short = TITLES[name] if name in TITLES else name.rpartition(":")[2]
            title = name if short in found or short in METHODS else short
            found[title] = RunConfig(method=name, device="cpu", memory_per_class=MEMORY)
    return found


def compare(out: Path, configs: Mapping[str, RunConfig], listener: Listener | None = None) -> dict[str, list[Result]]:
    """The results of every method and seed, from run folders under ``out``: a second call finds them there."""
    data = load("digits")
    results: dict[str, list[Result]] = {}
    for title, config in configs.items():
        seeds = [replace(config, seed=seed) for seed in SEEDS]
        results[title] = [run(c, data=data, out=out / c.folder_name(), listener=listener) for c in seeds]
    return results


def anytime_figure(results: Mapping[str, Sequence[Result]], path: Path, colours: Mapping[str, str]) -> None:
    """Accuracy over the classes seen so far, as they arrive; a band of one standard deviation over the seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no window, no global state
    figure.suptitle(
        "Ten digits, one class at a time, each image seen once", x=0.02, ha="left", fontsize=15, fontweight="bold"
    )
    axes = figure.add_subplot()
    subtitle = f"accuracy on all classes seen so far in per cent; memory of {BUDGET:,} bytes, {MEMORY} images per class"
    axes.set_title(subtitle, loc="left", fontsize=10, color="#555555")
    arrivals = range(1, 11)
    ends: dict[str, float] = {}
    for title, runs in results.items():
        colour = colours[title]
        curves = [[100 * value for value in result.anytime] for result in runs]
        points = [point for values in zip(*curves, strict=True) if (point := summarize(values))]
        middle = [point.mean for point in points]
        low, high = [p.mean - p.std for p in points], [p.mean + p.std for p in points]
        axes.fill_between(arrivals, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(arrivals, middle, color=colour, linewidth=2.5, marker="o", markersize=4)
        ends[title] = middle[-1]
    height = 0.0
    for title, end in sorted(ends.items(), key=lambda item: item[1]):
        height = max(end, height + 5)  # names of curves that end together stand above each other
        axes.text(10.2, height, f"{title}  {end:.0f}", color=colours[title], va="center", size=11, weight="bold")
    chance = [100 / n for n in arrivals]
    axes.plot(arrivals, chance, color="#bbbbbb", linewidth=1, linestyle=":")
    axes.set_xlim(0.6, 12.9)
    axes.set_ylim(0, 104)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    _draw_arrivals(axes, load("digits"))
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=160, format="png")


def _draw_arrivals(axes: Axes, data: Dataset) -> None:
    """Under each point of the curves, one image of the class that arrives there."""
    for label in range(data.num_classes):
        image = data.train_x[data.train_y == label][0, 0].numpy()
        inset = axes.inset_axes((label + 0.65, -13, 0.7, 11), transform=axes.transData)
        inset.imshow(image, cmap="gray_r", interpolation="nearest")
        inset.axis("off")
