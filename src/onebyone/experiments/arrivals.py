"""The picture of how classes arrive: one panel a stream, one ridge a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from onebyone import streams
from onebyone.files import whole
from onebyone.streams import Stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = (
    ("class-incremental", "one class after another"),
    ("blurry:share=0.3", "a share of the samples strays to other tasks"),
    ("gaussian:width=1", "classes come and go"),
    ("returning:periods=3", "every class comes back"),
    ("class-incremental:imbalance=20", "some classes are rare"),
    ("iid", "all classes at any time"),
)
CLASSES, SAMPLES = 10, 1200  # of each class
STRETCHES = 120  # of time, in which arrivals are counted


def arrivals(stream: Stream, y: Tensor, num_classes: int) -> Tensor:
    """[stretches, classes] how many samples of each class arrive in each stretch of time.

    >>> y = torch.arange(400) % 2
    >>> arrivals(streams.class_incremental(y, 2), y, 2).sum(0).tolist()
    [200, 200]
    """
    labels = y[torch.cat([task.indices for task in stream.tasks])]
    return torch.stack([torch.bincount(part, minlength=num_classes) for part in labels.tensor_split(STRETCHES)])


def draw_streams(path: Path) -> None:
    """Six streams of ten classes with as many samples each, as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    y = torch.arange(CLASSES).repeat_interleave(SAMPLES)
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    FigureCanvasAgg(figure)  # without pyplot: no window, no global state
    figure.suptitle("How ten classes arrive", x=0.01, ha="left", fontsize=15, fontweight="bold")
    for axes, (text, sentence) in zip(figure.subplots(2, 3).flat, SHOWN, strict=True):
        _draw(axes, arrivals(streams.create(text, y, CLASSES), y, CLASSES))
        axes.set_title(f"--stream {text}", loc="left", fontsize=10, fontweight="bold", pad=18)
        axes.text(0, 1.02, sentence, transform=axes.transAxes, fontsize=9, color="#555555")
    with whole(path) as place:
        figure.savefig(place, dpi=130, format="png")


def _draw(axes: Axes, counts: Tensor) -> None:
    """A ridge for each class, the first on top; as high as the share of samples that are of this class."""
    from matplotlib import colormaps

    share = counts / counts.sum(1, keepdim=True)
    for label in range(CLASSES):
        ground = CLASSES - 1 - label
        colour = colormaps["viridis"](label / CLASSES)
        axes.fill_between(range(STRETCHES), ground, ground + 0.92 * share[:, label], color=colour, step="mid", lw=0)
        axes.axhline(ground, color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_xlim(0, STRETCHES - 1)
    axes.set_ylim(0, CLASSES)
    axes.set_xticks([0.1 * STRETCHES, 0.9 * STRETCHES], ["first sample", "last sample"], color="#555555", fontsize=8)
    axes.set_yticks([CLASSES - 0.5 - label for label in range(CLASSES)], [str(label) for label in range(CLASSES)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
