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
COLUMNS = re.compile(r"\S {2,}\S|^ {2}", re.MULTILINE)
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
    return f"""## On a GPU

{numbers["device"]}, CCP, CIFAR-10 shapes, 10 + 10 images; milliseconds for a step of one run (`benchmarks/gpu.py`).
With Triton's kernels for the ResNet (`nets/kernels.py`), which the next section compares with PyTorch's layers.

{render(Table("", [""], {"": ["separate passes", "joint pass"]}, rows), "markdown")}

- Captured is {single["eager"] / single["captured"]:.1f} times as fast as eager.
- 16 complete one-class runs with 10 evaluations each: {complete["seconds"]:.1f} s together, \
{complete["megabytes each"]:.0f} MB per run.
- The paper's tables, as they were run without the kernels: {tables["runs"]} runs, {tables["at once"]} at once, \
in {tables["seconds"]:,.0f} s. These were {tables["what"]}. 320 take {minutes:.1f} minutes.
- After 200 steps without TF32, captured and eager differ (largest relative difference of any parameter, buffer or
  memory entry): {", ".join(f"{name} {value:.0e}" if value else f"{name} 0" for name, value in same.items())}.
- A run alone and the same run in a pack of 16 have the same accuracy matrix: \
{"yes" if numbers["alone as in the pack"] else "no"}.
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

With Triton, convolution, BatchNorm, shortcut and ReLU are computed by kernels of this library. A pack of 16,
milliseconds for a step of one run; all are measured in turn, four times: median (least to most).

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

CIFAR-10, one class at a time, M = 100, joint pass, tuned options: final accuracy in per cent
(`benchmarks/precision.py`). `precision=bf16` is not used for the paper's tables.

{render(Table("", [""], {"": ["mean", "standard deviation", "seeds 0 to 4"]}, rows), "markdown")}
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


def lines(title: str, name: str, note: str) -> str:
    """What a program printed: sentences as prose, and columns as they are."""
    blocks = (NUMBERS / f"{name}.txt").read_text().strip().split("\n\n")
    shown = [f"```\n{block}\n```" if COLUMNS.search(block) else MARKUP.sub(r"\\\1", block) for block in blocks]
    return "\n\n".join([f"## {title}", note, *shown]) + "\n"


def main() -> None:
    numbers = read("gpu")
    parts = [
        "# Benchmarks\n\nWritten by `python benchmarks/report.py` from `results/benchmarks/`, which the programs in "
        "`benchmarks/` fill.\n",
        gpu(numbers),
        ways(numbers),
        precision(read("precision")),
        lines("What was tried", "engine", "To make a step in a pack cheaper."),
        lines("What the library costs on a CPU", "step", "`benchmarks/step.py`, 2 cores."),
        lines("Against Avalanche 0.6.0 on a CPU", "avalanche", "`benchmarks/against_avalanche.py`, 2 cores."),
        lines("How a step grows", "growth", "`benchmarks/growth.py`, 2 cores."),
    ]
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join(parts))
    picture(numbers, ROOT / "docs" / "speed.png")
    print("docs/benchmarks.md, docs/speed.png")


if __name__ == "__main__":
    main()
