"""Tables from hand-made result folders."""

import csv
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from onebyone.engine import Cost
from onebyone.evaluation import Result, metrics
from onebyone.runs.results import METRICS, Results, read_results
from onebyone.runs.table import Summary
from onebyone.runs.table import tabulate as tabulate_results

Call = Callable[..., tuple[int, str, str]]
USUAL = "class-incremental:imbalance=1.0"


def make(method: str, seed: int, accuracy: float, *, options: dict[str, Any] | None = None, **config: Any) -> Result:
    """A result with this accuracy; fields that tables do not use are arbitrary."""
    matrix = ((1.0, 0.0), (accuracy - 0.1, accuracy + 0.1))
    fields = {"method": method, "dataset": "digits", "classes_per_task": 5, "memory_per_class": 20, "seed": seed}
    return Result(
        **vars(metrics(matrix)),
        accuracy_matrix=matrix,
        class_accuracy=(accuracy, None),
        prequential=None,
        tasks=((0,), (1,)),
        disjoint=True,
        samples=100,
        updates=10,
        cost=Cost(3.0, 2.0, 123456789.0, 1000, 2000),
        config=fields
        | {"device": "cpu", "held_out": False}
        | config
        | {"options": {"augment": True} | (options or {})},
        seconds={"training": 1.5 + seed, "evaluation": 0.25},
    )


def tabulate(runs: Sequence[Result] | Results, *fields: Any) -> Summary:
    return tabulate_results(runs if isinstance(runs, Results) else Results.from_runs(runs), *fields)


def put(folder: Path, *results: Result) -> Path:
    for number, result in enumerate(results):
        run_folder = folder / f"{result.config['method']}-{number}"
        run_folder.mkdir(parents=True)
        (run_folder / "result.json").write_text(result.to_json())
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two methods at two sizes of memory with two seeds each, and one without a memory."""
    return put(
        tmp_path / "results",
        make("ccp", 0, 0.80),
        make("ccp", 1, 0.84),
        make("er", 0, 0.50, memory_per_class=5),
        make("er", 1, 0.60, memory_per_class=5),
        make("er", 0, 0.70),
        make("er", 1, 0.72),
        make("finetune", 0, 0.20, memory_per_class=None),
        make("finetune", 1, 0.20, memory_per_class=None),
    )


def test_on_a_terminal(folder: Path, onebyone: Call) -> None:
    assert onebyone("table", folder) == (
        0,
        "accuracy in per cent, mean ± standard deviation, 2 runs per cell\n"
        "classes_per_task           5           5           5\n"
        "memory_per_class           –           5          20\n"
        "method\n"
        "finetune          20.0 ± 0.0           –           –\n"
        "er                         –  55.0 ± 7.1  71.0 ± 1.4\n"
        "ccp                        –           –  82.0 ± 2.8\n",
        "",
    )


def test_columns_that_do_not_fit_go_below(folder: Path) -> None:
    table = tabulate(read_results(folder), ["method"], ["memory_per_class"])
    for width in (20, 45, 50, 80):
        lines = table.render(width=width).splitlines()[1:]
        assert max(map(len, lines)) <= max(width, 30)
        assert lines.count("method") == {20: 3, 45: 2, 50: 2, 80: 1}[width]
        assert sorted(re.findall(r"\d+\.\d ± \d\.\d", " ".join(lines))) == [
            "20.0 ± 0.0",
            "55.0 ± 7.1",
            "71.0 ± 1.4",
            "82.0 ± 2.8",
        ]


def test_markdown(folder: Path, onebyone: Call) -> None:
    assert onebyone("table", folder, "--format", "markdown") == (
        0,
        "| method | classes_per_task=5, memory_per_class=– | classes_per_task=5, memory_per_class=5 "
        "| classes_per_task=5, memory_per_class=20 |\n"
        "| --- | --: | --: | --: |\n"
        "| finetune | 20.0 ± 0.0 | – | – |\n"
        "| er | – | 55.0 ± 7.1 | 71.0 ± 1.4 |\n"
        "| ccp | – | – | 82.0 ± 2.8 |\n",
        "",
    )


def test_csv_has_plain_numbers(folder: Path, onebyone: Call) -> None:
    code, out, err = onebyone("table", folder, "--format", "csv", "--columns", "memory_per_class")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(StringIO(out)))
    assert list(rows[0]) == ["method", "memory_per_class", "mean", "std", "n"]
    cells = {(row["method"], row["memory_per_class"]): (row["mean"], row["std"], row["n"]) for row in rows}
    assert len(rows) == len(cells) == 9
    assert float(cells["er", "5"][0]) == pytest.approx(0.55)
    assert float(cells["er", "5"][1]) == pytest.approx(0.005**0.5)
    assert cells["er", "5"][2] == "2"
    assert cells["er", ""] == ("", "", "0")


def test_latex(folder: Path, onebyone: Call) -> None:
    put(folder / "more", make("my_er & co", 0, 0.5), make("my_er & co", 1, 0.5))
    assert onebyone("table", folder, "--format", "latex") == (
        0,
        "% accuracy in per cent, mean ± standard deviation, 2 runs per cell\n"
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "classes\\_per\\_task & 5 & 5 & 5 \\\\\n"
        "memory\\_per\\_class & -- & 5 & 20 \\\\\n"
        "method &  &  &  \\\\\n"
        "\\midrule\n"
        "finetune & 20.0 $\\pm$ 0.0 & -- & -- \\\\\n"
        "er & -- & 55.0 $\\pm$ 7.1 & 71.0 $\\pm$ 1.4 \\\\\n"
        "ccp & -- & -- & 82.0 $\\pm$ 2.8 \\\\\n"
        "my\\_er \\& co & -- & -- & 50.0 $\\pm$ 0.0 \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n",
        "",
    )


@pytest.mark.parametrize("format", ["terminal", "markdown", "csv", "latex"])
def test_to_a_file(format: str, folder: Path, onebyone: Call, tmp_path: Path) -> None:
    code, printed, _ = onebyone("table", folder, "--format", format)
    path = tmp_path / "new" / "table.txt"
    assert onebyone("table", folder, "--format", format, "--out", path) == (0, "", "")
    assert code == 0
    assert path.read_text() == printed


def test_a_warning_names_what_is_averaged(folder: Path, onebyone: Call) -> None:
    code, out, err = onebyone("table", folder, "--columns", "classes_per_task")
    assert code == 0
    sentence = "averaged over runs that differ in memory_per_class; name these in rows or columns"
    assert err == f"onebyone: {sentence}\n"
    assert "63.0 ± 10.1 (n=4)" in out
    assert "82.0 ± 2.8 (n=2)" in out  # the counts differ
    put(
        folder / "more",
        make("ccp", 2, 0.5, options={"temperature": 0.1}, device="cuda", memory_per_class=7),
        make("ccp", 3, 0.5, options={"temperature": 0.2}, memory_per_class=7),
    )
    assert onebyone("table", folder)[2].startswith("onebyone: averaged over runs that differ in device, temperature;")
    assert onebyone("table", folder, "--rows", "method,temperature,device")[2] == ""


def test_averaging_over_streams_gives_a_warning(folder: Path, onebyone: Call) -> None:
    put(folder / "more", make("ccp", 0, 0.6, stream="blurry:imbalance=1.0,share=0.1"))
    assert "averaged over runs that differ in stream; " in onebyone("table", folder)[2]
    code, out, err = onebyone("table", folder, "--columns", "stream,memory_per_class")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["stream", "blurry:imbalance=1.0,share=0.1", *[USUAL] * 3]
    results = read_results(put(folder / "iid", replace(make("iid", 0, 0.9), disjoint=False)))
    assert list(tabulate(results, ["stream"], []).numbers.index) == ["iid:imbalance=1.0"]


def test_options_of_a_method_can_be_rows(folder: Path) -> None:
    more = [make("ccp", 5, accuracy, options={"temperature": t}) for accuracy, t in ((0.5, 0.2), (0.6, 0.1))]
    put(folder / "more", *more)
    lines = tabulate(read_results(folder), ["method", "temperature"], ["memory_per_class"]).render().splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [
        ["method", "temperature"],
        ["finetune", "–"],
        ["er", "–"],
        ["ccp", "0.1"],  # the default, whether it was recorded or not
        ["ccp", "0.2"],
    ]
    assert lines[-1].endswith("  50.0 (n=1)")


def test_one_run_has_no_standard_deviation_and_a_copy_counts_once(tmp_path: Path) -> None:
    only = make("er", 0, 0.5)
    put(tmp_path / "a", only)
    put(tmp_path / "b", only)
    assert tabulate(read_results(tmp_path), ["method"], []).render() == (
        "accuracy in per cent, mean ± standard deviation, 1 run per cell\nmethod  accuracy\ner          50.0"
    )
    assert tabulate([only], ["method"], []).render("markdown") == "| method | accuracy |\n| --- | --: |\n| er | 50.0 |"


def test_rows_are_sorted_by_value() -> None:
    runs = [make("er", 0, 0.5, batch_size=size, held_out=held) for size in (10, 9, 100) for held in (True, False)]
    table = tabulate(runs, ["held_out"], ["batch_size"])
    assert list(table.pivot.columns) == [9, 10, 100]
    assert [line.split()[0] for line in table.render().splitlines()[3:]] == ["no", "yes"]


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric(metric: str) -> None:
    runs = [make("er", seed, 0.5 + seed / 10) for seed in range(3)]

    def value(result: Result) -> float | None:
        found: Any = result
        for part in metric.split("."):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        return found  # type: ignore[no-any-return]

    values = [value(result) for result in runs]
    text = tabulate(runs, ["method"], [], metric).render().splitlines()[-1].removeprefix("er").strip()
    plain = tabulate(runs, ["method"], [], metric).render("csv").splitlines()[1]
    if metric == "prequential":
        assert (text, plain) == ("n/a", "er,,,3")
        return
    numbers = [number for number in values if number is not None]
    mean, std = fmean(numbers), stdev(numbers)
    percent = "." not in metric
    scale, form = (100, ".1f") if percent else (1, ".4g")
    assert text == f"{scale * mean:{form}} ± {scale * std:{form}}"
    assert plain == f"er,{mean},{std},3"


def test_a_number_that_one_run_lacks_is_not_averaged() -> None:
    runs = [make("er", 0, 0.5), replace(make("er", 1, 0.5), forgetting=None)]
    assert tabulate(runs, ["method"], [], "forgetting").render().endswith("n/a")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--rows", "methot"), "unknown field 'methot'; did you mean 'method'? Known: augment, "),
        (("--columns", "method,sead"), "unknown field 'sead'; did you mean 'seed'? Known: "),
        (("--rows", "options"), "unknown field 'options'; "),
        (("--rows", ","), "rows names no field; name at least one, for example method"),
        (("--metric", "acuracy"), "unknown metric 'acuracy'; did you mean 'accuracy'? Known: accuracy, "),
        (("--metric", "flops"), "unknown metric 'flops'; did you mean 'cost.flops'? Known: accuracy, "),
        (("--format", "tex"), "unknown format 'tex'; did you mean 'latex'? Known: csv, latex, markdown, terminal"),
    ],
)
def test_wrong_arguments_are_refused(words: Sequence[str], sentence: str, folder: Path, onebyone: Call) -> None:
    code, out, err = onebyone("table", folder, *words)
    assert (code, out) == (2, "")
    assert re.fullmatch(r"onebyone: [^\n]+\n", err)
    assert err.startswith(f"onebyone: {sentence}")


def test_folders_without_results_are_refused(tmp_path: Path, onebyone: Call) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        sentence = f"there is no readable result.json below {folder}, and no CSV file of results; give a folder of runs"
        assert onebyone("table", folder) == (2, "", f"onebyone: {sentence}\n")
    (tmp_path / "result.json").write_text("{}")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, error = onebyone("table", tmp_path)
    assert (code, out) == (2, "")
    first, second = error.splitlines()
    assert first.startswith(f"onebyone: 1 damaged result.json skipped: {tmp_path}/result.json: this is not a result")
    assert second.startswith("onebyone: there is no readable result.json")
