"""Write docs/benchmarks.md and docs/speed.png from results/benchmarks/*.json, the output of the other programs here.

python benchmarks/report.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib.figure import Figure

from onebyone.paper.figures import style
from onebyone.runs.table import Table, render

ROOT = Path(__file__).parent.parent
NUMBERS = ROOT / "results" / "benchmarks"
MARKUP = re.compile(r"([*_<|`])")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((NUMBERS / f"{name}.json").read_text())
    return found


def gpu(numbers: dict[str, Any]) -> str:
    single, complete = numbers["single"], numbers["16 runs"]
    rows = [
        ["eager", f"{single['eager']:.1f}", ""],
        ["captured, one run", f"{single['captured']:.2f}", ""],
        *(
            [f"pack of {n}", f"{numbers[f'pack {n} separate']:.3f}", f"{numbers[f'pack {n} joint']:.3f}"]
            for n in (4, 8, 16, 32)
        ),
    ]
    tables = read("tables")
    minutes = tables["seconds"] / tables["runs"] * 320 / 60
    same = {name.removeprefix("same "): value for name, value in numbers.items() if name.startswith("same ")}
    found = ", ".join(f"{name} {value:.0e}" for name, value in same.items() if value)
    differ = f"differ by at most {found}" if found else f"are identical for all {len(same)} methods that were compared"
    return f"""## On a GPU

The table shows the time of a training step of one run, in milliseconds: CCP with the image shape of CIFAR-10, 10
incoming and 10 replayed images, on one {numbers["device"]} (`benchmarks/gpu.py`). A *captured* step is a CUDA graph,
which is recorded once and then replayed. In a *pack*, several runs share the GPU.

{render(Table("", [""], {"": ["separate passes", "joint pass"]}, rows), "markdown")}

- **Captured.** A captured step is {single["eager"] / single["captured"]:.1f} times as fast as an eager one.
- **Complete runs.** 16 runs with one class per task and 10 evaluations each take {complete["seconds"]:.1f} s together,
  and {complete["megabytes each"]:.0f} MB of memory per run.
- **The paper's tables.** They were run before the [kernels](#kernels-for-the-resnet) below were written:
  {tables["runs"]} runs, {tables["at once"]} at once, in {tables["seconds"]:,.0f} s. These were {tables["what"]}.
  At this rate, 320 runs take {minutes:.1f} minutes.
- **The same results.** After 200 steps without TF32, the parameters, buffers and memory of captured and eager steps
  {differ}. A run in a pack of 16 has {"the same" if numbers["alone as in the pack"] else "another"} accuracy matrix
  {"as" if numbers["alone as in the pack"] else "than"} the same run alone.
"""


def ways(numbers: dict[str, Any]) -> str:
    """A step without Triton's kernels, with them, and in bf16."""
    names = {"before": "PyTorch", "float32": "kernels", "bf16": "kernels, bf16"}
    cases = sorted({tuple(name.split()[1:3]) for name in numbers if name.startswith("compared ")})
    rows = []
    for way, name in names.items():
        found = [numbers[f"compared {method} {passes} {way}"] for method, passes in cases]
        rows.append([name, *(f"{one['median']:.3f} ({one['least']:.3f} to {one['most']:.3f})" for one in found)])
    columns = {"": [f"{method.upper()}, {passes}" for method, passes in cases]}
    return f"""### Kernels for the ResNet

If Triton is installed, the ResNet's convolutions, BatchNorm, shortcuts and ReLU are computed by this library's own
kernels. The times above are with these kernels. The table compares them with the layers of PyTorch, in a pack of 16:
milliseconds for a step of one run, as the median (and the range) of four measurements that were made in turn.

{render(Table("", [""], columns, rows), "markdown")}
"""


def precision(numbers: dict[str, Any]) -> str:
    """Accuracies in float32 and in bf16."""
    found: dict[str, list[float]] = numbers["accuracy"]
    rows = [
        [name, f"{fmean(values):.1f}", f"{stdev(values):.1f}", ", ".join(f"{value:.1f}" for value in values)]
        for name, values in found.items()
    ]
    return f"""### Accuracy in bf16

The option `precision=bf16` makes a step faster, but less precise. The table shows the final accuracy in per cent on
CIFAR-10: one class at a time, M = 100, joint passes, tuned options (`benchmarks/precision.py`). The tables of the
paper are in float32.

{render(Table("", [""], {"": ["mean", "standard deviation", "seeds 0 to 4"]}, rows), "markdown")}
"""


def tried() -> str:
    """Other kernels, by single measurements."""
    about, found, after = (NUMBERS / "engine.txt").read_text().strip().split("\n\n")
    heading, *rows = [re.split(r" {2,}", line.strip()) for line in found.splitlines()]
    table = Table("", heading[:1], {"": heading[1:]}, [row + [""] * (len(heading) - len(row)) for row in rows])
    return "\n\n".join(["### What was tried", prose(about), render(table, "markdown"), prose(after)]) + "\n"


def overhead() -> str:
    """A step against a bare loop."""
    found: dict[str, list[list[str]]] = {}
    for line in (NUMBERS / "step.txt").read_text().strip().splitlines():
        if heading := re.search(r"threads: (\d+)$", line):
            rows = found.setdefault(heading[1], [])
        else:
            name, taken, ratio = re.split(r" {2,}", line)
            rows.append([name, taken.split()[0], ratio.split()[0]])
    table = Table(
        "",
        ["threads", "step"],
        {"": ["ms per step", "relative to the bare loop"]},
        [[threads, *row] for threads, rows in found.items() for row in rows],
    )
    return f"""## What the library costs on a CPU

A step of ER is compared with a bare PyTorch loop that does the same work: a reduced ResNet-18, 10 incoming and 10
replayed images of 32 pixels, augmentation, a reservoir and SGD (`benchmarks/step.py`, 2 cores). `channels-last`, the
memory layout that is the default on a CPU, is measured separately, because the bare loop does not use it. Ratios are
medians over rounds.

{render(table, "markdown")}
"""


def against_avalanche() -> str:
    """A step against Avalanche's, for three networks."""
    _, *blocks = (NUMBERS / "avalanche.txt").read_text().strip().split("\n\n")
    parts = []
    for block in blocks:
        title, heading, *lines = block.splitlines()
        names = re.split(r" {2,}", heading.strip())
        rows = []
        for line in lines:
            name, *values = re.split(r" {2,}", line.strip())
            value = dict(zip(names, values, strict=True))
            ratios = [value[way].replace("x", " x") for way in ("as in its example", "optimized, channels-last")]
            rows.append([name, value["ms per step"], value["above network"], *ratios])
        columns = ["ms", "ms outside the network", "speed: its example = 1", "speed: optimized, channels-last = 1"]
        network, _, shape = title.split(":")[0].partition(", ")
        kind = f"samples of {shape.replace('x', ' x ')}" if "x" in shape else f"vectors of {shape} values"
        parts.append(f"**{network}**, {kind}:\n\n" + render(Table("", ["step"], {"": columns}, rows), "markdown"))
    return f"""## Compared with Avalanche 0.6.0 on a CPU

The same step of ER is measured in both libraries: 10 incoming and 10 replayed samples, a memory of 200 samples, plain
SGD, one thread (`benchmarks/against_avalanche.py`). Avalanche is used in these ways:

- *as in its example* follows `examples/online_replay.py` of Avalanche.
- *one call per step* does the same, but calls `train` once per batch, as live data require.
- *optimized* removes everything that can be removed: metrics, transforms, and checks at every step.

Avalanche passes incoming and replayed samples through the network together. *onebyone, joint pass* does the same.
*onebyone* is the default, with two passes, which is more work. *network alone* is a lower bound for
every library: forward pass, backward pass and SGD on 20 constant samples. The last two columns are the speed relative
to two of the ways to use Avalanche. All ratios are in `results/benchmarks/avalanche.txt`.

{(chr(10) * 2).join(parts)}
"""


def growth() -> str:
    """How the time of a step depends on sizes."""
    titles = {
        "memory per class": ("memory per class", "ms per step"),
        "classes": ("classes", "ms per step"),
        "batch": ("batch size", "ms per sample"),
    }
    found: dict[str, dict[str, list[str]]] = {}
    networks: list[str] = []
    for line in (NUMBERS / "growth.txt").read_text().strip().splitlines()[1:]:
        if not line.startswith(" "):
            networks.append(line)
        elif not line.startswith("    "):
            sizes = found.setdefault(next(name for name in titles if line.strip().startswith(name)), {})
        else:
            size, taken, _ = re.split(r" {2,}", line.strip())
            sizes.setdefault(f"{int(size):,}", []).append(taken.removesuffix(" ms"))
    tables = [
        render(
            Table("", [titles[name][0]], {"": [f"{network}: {titles[name][1]}" for network in networks]}, rows),
            "markdown",
        )
        for name, sizes in found.items()
        for rows in [[[size, *taken] for size, taken in sizes.items()]]
    ]
    return f"""## How the time of a step grows

The time of a step of ER depends little on the size of the memory and on the number of classes. Larger batches take
less time per sample (`benchmarks/growth.py`, one thread). The memory is full before anything is measured. It has 10
classes in the first table, and 5 samples per class in the second. In the third table, as many samples are replayed as
arrive.

{(chr(10) * 2).join(tables)}
"""


def picture(numbers: dict[str, Any], path: Path) -> None:
    bars = {
        "eager PyTorch": numbers["single"]["eager"],
        "captured as a CUDA graph": numbers["single"]["captured"],
        "16 runs in a pack": numbers["pack 16 separate"],
        "16 in a pack, joint pass": numbers["pack 16 joint"],
    }
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    figure.suptitle("A step of CCP on one H200, in milliseconds", x=0.02, ha="left", fontsize=14, fontweight="bold")
    axes = figure.add_subplot()
    drawn = axes.barh(list(bars), list(bars.values()), color=style("ccp")[0])
    axes.bar_label(drawn, [f"{value:.2g}" for value in bars.values()], padding=4, fontsize=11, fontweight="bold")
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=11)
    figure.savefig(path, dpi=160)


def prose(text: str) -> str:
    """A paragraph of a text file as Markdown."""
    return MARKUP.sub(r"\\\1", text)


def main() -> None:
    numbers = read("gpu")
    parts = [
        """# Benchmarks

This page shows how long a training step takes, first on a CPU and then on a GPU. Measurements of other parts are on
the pages that describe them: [learning photographs](tutorials/own_encoder.md#speed-of-lite0) and [parallel
fits](tutorials/clusters.md#exact-parallel-fits). Times depend on the machine. The programs in `benchmarks/` measure
them on yours. `python benchmarks/report.py` writes this page from the measurements in `results/benchmarks/`.
""",
        overhead(),
        against_avalanche(),
        growth(),
        gpu(numbers),
        ways(numbers),
        precision(read("precision")),
        tried(),
    ]
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join(parts))
    picture(numbers, ROOT / "docs" / "speed.png")
    print("docs/benchmarks.md, docs/speed.png")


if __name__ == "__main__":
    main()
