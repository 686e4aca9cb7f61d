"""Draw the pictures of docs/setting.md: python docs/pictures.py

`onebyone demo` draws anytime.png.
"""

from copy import deepcopy
from pathlib import Path

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

import onebyone
from onebyone import memory, streams
from onebyone.paper.figures import style
from onebyone.runs import Results, RunConfig, run

HERE = Path(__file__).parent
DATA = onebyone.load("digits")
GRAY = "#555555"
CLASS_COLOURS = {0: "#4477aa", 1: "#ee6677", 4: "#228833", 6: "#ccbb44"}  # of no method; other classes are grey
ER = style("er")[0]
SHOWN = (
    ("class-incremental", "one class after another"),
    ("blurry:share=0.3", "a share of the samples arrives in other tasks"),
    ("gaussian:width=1", "classes come and go"),
    ("returning:periods=3", "every class returns"),
    ("class-incremental:imbalance=20", "some classes are rare"),
    ("iid", "all classes at any time"),
)
CLASSES, SAMPLES = 10, 1200  # of each class
INTERVALS = 120  # of time, in which arrivals are counted


def figure(title: str, size: tuple[float, float]) -> Figure:
    made = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(made)
    made.suptitle(title, x=0.01, ha="left", fontsize=15, fontweight="bold")
    return made


def draw_memory(path: Path, per_class: int = 4, moments: tuple[int, ...] = (0, 3, 9)) -> None:
    """The incoming batch and the memory, at three moments of the stream."""
    kept = memory.create("reservoir", per_class * DATA.num_classes, DATA.spec.shape, torch.uint8, DATA.num_classes)
    random = torch.Generator().manual_seed(0)
    made = figure("Incoming batch and memory at three moments of the stream", (11, 3.6))
    rows = made.subplots(len(moments), 2, width_ratios=(10, 20))
    for task in onebyone.class_incremental(DATA.train_y, DATA.num_classes).tasks:
        for index in task.batches(10):
            if len(index) == 10:
                incoming = DATA.train_x[index]
            kept.add(DATA.train_x[index], DATA.train_y[index], random)
        (label,) = task.classes
        if label not in moments:
            continue
        left, right = rows[moments.index(label)]
        stored = kept.everything()
        strip(left, incoming, 10)
        for axes in (left, right):
            axes.set_anchor("NW")
        strip(right, stored.x[stored.y.argsort(stable=True)], 20)
        left.set_title(f"while class {label} arrives: a batch of class {label}", loc="left", fontsize=10, color=GRAY)
        counts = stored.y.bincount(minlength=label + 1).tolist()
        words = f"memory of {kept.capacity} samples, per class: {' '.join(map(str, counts[: label + 1]))}"
        right.set_title(words, loc="left", fontsize=10, color=GRAY)
    made.savefig(path, dpi=130)


def strip(axes: Axes, images: Tensor, columns: int) -> None:
    """Images side by side, with a pixel between them."""
    framed = torch.nn.functional.pad(images[:, 0], (0, 1, 0, 1))
    lines = [torch.cat(list(line), 1) for line in framed.split(columns)]
    axes.imshow(torch.cat(lines).numpy(), cmap="gray_r", interpolation="nearest")
    axes.axis("off")


def draw_batchnorm(path: Path, seeds: range = range(5)) -> None:
    """Features of one network in training mode: in batches of all classes, and in batches of one class each."""
    learner = onebyone.create("iid", DATA.spec)
    for index in onebyone.iid(DATA.train_y, DATA.num_classes):
        learner.observe(DATA.train_x[index], DATA.train_y[index])
    shuffled = torch.randperm(len(DATA.test_y), generator=torch.Generator().manual_seed(0))
    by_class = DATA.test_y.argsort(stable=True)
    batches = {
        "batches of all classes": shuffled.split(40),
        "batches of one class each": by_class.split(DATA.test_y.bincount().tolist()),
    }
    made = figure("BatchNorm on a batch of one class takes the class away", (12, 4.6))
    panels = made.subplots(1, 3, width_ratios=(4, 4, 3))
    for axes, (title, parts) in zip(panels, batches.items(), strict=False):
        features = torch.cat([in_training(learner, DATA.test_x[index]) for index in parts])
        labels = DATA.test_y[torch.cat(parts)]
        right = float((learner.readout()(features).argmax(1) == labels).float().mean())
        plane = torch.linalg.svd(features - features.mean(0), full_matrices=False).U[:, :2]
        for label in sorted(range(DATA.num_classes), key=CLASS_COLOURS.__contains__):  # those in colour are on top
            colour, name = CLASS_COLOURS.get(label, "#d4d4d4"), f"class {label}" if label in CLASS_COLOURS else None
            axes.scatter(*plane[labels == label].T.numpy(), color=colour, label=name, s=22, linewidths=0)
        axes.set_title(f"{title}:\naccuracy of the head {100 * right:.0f} %", loc="left", fontsize=10, color=GRAY)
        axes.set_xticks([])
        axes.set_yticks([])
    made.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False, fontsize=11)
    draw_passes(panels[2], seeds)
    made.savefig(path, dpi=130)


@torch.no_grad()
def in_training(learner: onebyone.Learner, x: Tensor) -> Tensor:
    """Features as in a training step: normalised by the statistics of their batch."""
    return deepcopy(learner).train().embed(learner.view(x, augment=False))


def draw_passes(axes: Axes, seeds: range) -> None:
    """Accuracy of ER with incoming and replayed images in two batches and in one."""
    for position, passes in enumerate(("separate", "joint")):
        configs = [RunConfig(method="er", seed=seed, device="cpu", options={"passes": passes}) for seed in seeds]
        results = Results.from_runs(run(config, data=DATA) for config in configs)
        value = results.summarize("accuracy")
        assert value is not None
        axes.bar(position, value.percent.mean, color=ER, width=0.7, alpha=(0.25, 0.6)[position])
        axes.scatter([position] * len(results), [100 * row.metrics["accuracy"] for row in results], color=GRAY, s=22)
        axes.text(position, 103, f"{value.percent.mean:.0f}", ha="center", fontsize=12, fontweight="bold")
    axes.set_title(
        f"ER, one class per task, M = 20:\naccuracy, {len(seeds)} seeds", loc="left", fontsize=10, color=GRAY
    )
    axes.set_xticks([0, 1], ["separate passes\n(the paper)", "one joint pass"])
    axes.set_ylim(0, 110)
    axes.spines[["top", "right"]].set_visible(False)


def count_arrivals(stream: streams.Stream, y: Tensor, num_classes: int) -> Tensor:
    """[intervals, classes] how many samples of each class arrive in each interval of time."""
    labels = y[torch.cat([task.indices for task in stream.tasks])]
    return torch.stack([torch.bincount(part, minlength=num_classes) for part in labels.tensor_split(INTERVALS)])


def draw_streams(path: Path) -> None:
    """Six streams of ten classes of equal size."""
    y = torch.arange(CLASSES).repeat_interleave(SAMPLES)
    made = figure("How ten classes arrive", (11, 6.6))
    for axes, (text, sentence) in zip(made.subplots(2, 3).flat, SHOWN, strict=True):
        draw_ridges(axes, count_arrivals(streams.stream_named(text, y, CLASSES), y, CLASSES))
        axes.set_title(f"--stream {text}", loc="left", fontsize=10, fontweight="bold", pad=18)
        axes.text(0, 1.02, sentence, transform=axes.transAxes, fontsize=9, color="#555555")
    made.savefig(path, dpi=130)


def draw_ridges(axes: Axes, counts: Tensor) -> None:
    """A ridge for each class, the first on top. Its height is the share of the class among the samples."""
    share = counts / counts.sum(1, keepdim=True)
    for label in range(CLASSES):
        ground = CLASSES - 1 - label
        colour = colormaps["viridis"](label / CLASSES)
        axes.fill_between(range(INTERVALS), ground, ground + 0.92 * share[:, label], color=colour, step="mid", lw=0)
        axes.axhline(ground, color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_xlim(0, INTERVALS - 1)
    axes.set_ylim(0, CLASSES)
    axes.set_xticks([0.1 * INTERVALS, 0.9 * INTERVALS], ["first sample", "last sample"], color="#555555", fontsize=8)
    axes.set_yticks([CLASSES - 0.5 - label for label in range(CLASSES)], [str(label) for label in range(CLASSES)])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


if __name__ == "__main__":
    draw_memory(HERE / "memory.png")
    draw_batchnorm(HERE / "batchnorm.png")
    draw_streams(HERE / "streams.png")
