from dataclasses import replace

import pytest

from made_up import results
from onebyone.paper.comparison import Cell, PaperTable, tables
from onebyone.paper.printed import FURTHER, PARTS
from onebyone.paper.records import Records, from_results
from onebyone.runs.results import Value
from onebyone.runs.table import render


def text(table: PaperTable) -> str:
    return render(table.table())


def markdown(table: PaperTable) -> str:
    return render(table.table("full"), "markdown")


def latex(table: PaperTable) -> str:
    return render(table.table("numbers"), "latex")


def cell(paper: tuple[float, float], ours: tuple[float, float], metric: str = "accuracy") -> Cell:
    return Cell("ccp", 20, metric, Value(*paper, runs=5), Value(*ours, runs=5))


@pytest.mark.parametrize(
    ("paper", "ours", "more", "less"),
    [
        ((30.0, 1.0), (30.0, 0.0), "reproduced", "reproduced"),
        ((30.0, 1.0), (29.0, 0.5), "reproduced", "reproduced"),  # two standard errors are 1.02
        ((30.0, 1.0), (28.9, 0.5), "missed", "better"),
        ((30.0, 1.0), (28.96, 0.5), "reproduced", "reproduced"),  # 29.0 in the paper's digits
        ((30.0, 1.0), (28.9, 1.7), "reproduced", "reproduced"),  # two standard errors are 1.92
        ((30.0, 1.0), (28.9, 2.0), "undecided", "undecided"),  # two standard errors are 2.19
        ((30.0, 1.0), (30.0, 2.0), "undecided", "undecided"),
        ((30.0, 1.0), (31.1, 0.5), "better", "missed"),
        ((49.3, 0.6), (39.0, 5.4), "missed", "better"),  # our large standard deviation does not excuse it
        ((10.0, 0.0), (10.0, 0.0), "reproduced", "reproduced"),
        ((10.0, 0.0), (9.9, 0.0), "missed", "better"),
    ],
)
def test_verdicts(paper: tuple[float, float], ours: tuple[float, float], more: str, less: str) -> None:
    assert cell(paper, ours).verdict == more
    assert cell(paper, ours, "forgetting").verdict == less


def test_a_single_run_is_compared_by_the_printed_standard_deviation() -> None:
    for mean, verdict in ((29.2, "reproduced"), (29.0, "missed")):  # two standard errors are 0.89
        assert Cell("ccp", 20, "accuracy", Value(30, 1, 5), Value(mean, 0, 1)).verdict == verdict


def test_cells_that_repeat_one_run_count_once() -> None:
    accuracy, forgetting = tables(from_results(results(PARTS[:1]), PARTS), PARTS[0], "separate")
    sizes = {cells[0].method: len(cells) for cells in accuracy.distinct}
    assert sizes["iid"] == sizes["finetune"] == 4
    assert {sizes[name] for name in ("er", "ccp")} == {1}
    assert len(accuracy.distinct) == 2 + 4 * 6
    assert len(forgetting.distinct) == 1 + 3 * 6 + 0  # not printed at M = 5, and not for iid
    empty, _ = tables(Records(), PARTS[0], "separate")
    assert len(empty.distinct) == 4 * 8


def test_cells_without_a_printed_number_have_no_verdict() -> None:
    assert Cell("ccp", 20, "accuracy", Value(30, 1, 5), None).verdict == "hole"
    assert Cell("ccp", 5, "forgetting", None, Value(30, 1, 5)).verdict == "not printed"
    assert Cell("ccp", 5, "forgetting", None, None).verdict == "hole"
    assert Cell("iid", 5, "forgetting", None, None, means_something=False).verdict == "not printed"
    assert Cell("ccp", 20, "accuracy", Value(30, 1, 5), None).difference is None


def test_a_table_without_runs_has_no_numbers() -> None:
    accuracy, forgetting = tables(Records(), PARTS[0], "separate")
    assert list(accuracy.rows) == ["iid online", "fine-tuning", "ER", "iCaRL", "MIR", "DER++", "SupBYOL", "CCP"]
    assert {cell.verdict for row in accuracy.rows.values() for cell in row} == {"hole"}
    assert {cell.verdict for cell in forgetting.rows["iid online"]} == {"not printed"}
    assert text(accuracy).splitlines()[2].split() == ["iid", "online", "…", "…", "…", "…"]
    assert accuracy.seeds == 0


def test_a_cell_with_fewer_seeds_shows_their_number() -> None:
    made = [run for run in results(PARTS[:1]) if (run.config["method"], run.config["seed"]) != ("ccp", 1)]
    accuracy, _ = tables(from_results(made, PARTS), PARTS[0], "separate")
    assert text(accuracy).count(", 1 of 2 seeds") == markdown(accuracy).count(", 1 of 2 seeds (") == 4
    assert latex(accuracy).count(", 1 of 2 seeds") == 4


def test_a_table_shows_the_printed_numbers() -> None:
    made = [run for run in results(PARTS[:1], ccp=-9, er=9) if run.config["method"] != "mir"]
    accuracy, forgetting = tables(from_results(made, PARTS), PARTS[0], "separate")
    verdicts = {title: {cell.verdict for cell in row} for title, row in accuracy.rows.items()}
    assert verdicts == {title: {"reproduced"} for title in verdicts} | {
        "ER": {"better"},
        "MIR": {"hole"},
        "CCP": {"missed"},
        "DER++": {"reproduced", "undecided"},  # what the paper prints for M = 100 varies too much
        "SupBYOL": {"reproduced", "undecided"},
    }
    assert [cell.verdict for cell in forgetting.rows["CCP"]] == ["not printed", *["reproduced"] * 3]
    assert accuracy.seeds == 2
    lines = text(accuracy).splitlines()
    assert lines[0] == "Table 1: Split CIFAR-10, one class per task, accuracy in per cent, protocol “separate”"
    assert lines[-1].startswith("CCP  ")
    assert "25.3 ± 0.1 (-9.0 ✗)" in lines[-1]
    assert "| CCP | 15.2 ± 0.1 (24.2 ± 0.9) ✗ |" in markdown(accuracy)
    assert "| MIR | … (17.8 ± 1.8) |" in markdown(accuracy)


def test_latex_is_balanced() -> None:
    (accuracy, _) = tables(from_results(results(PARTS[1:2]), PARTS), PARTS[1], "joint")
    found = latex(accuracy)
    rows = [line for line in found.splitlines() if line.endswith("\\\\")]
    assert len(rows) == 1 + 2 * 10
    assert {line.count("&") for line in rows} == {4}
    assert "CCP & 34.2 $\\pm$ 0.1 &" in found
    assert found.count("\\begin") == found.count("\\end") == 1
    assert "±" not in found


def test_tables_beyond_the_paper_are_sorted_by_cost() -> None:
    beyond, factor = FURTHER[0], {"er": 1.0, "patch-lda": 0.04, "ccp": 1.004, "replay": 2.0}
    made = [run for run in results([beyond], ["joint"]) if run.config["method"] in factor]
    cheaper = {"method": "patch-lda", "memory_per_class": 5}
    made = [
        replace(run, cost=replace(run.cost, flops=3e8 * factor[run.config["method"]] * (0.7 if small else 1)))
        for run in made
        for small in [cheaper.items() <= run.config.items()]
    ]
    accuracy, *_ = tables(from_results(made, [beyond]), beyond, "joint")
    assert accuracy.costs == {"patch-lda": "0.03 to 0.04", "ER": "1.00", "CCP": "1.00", "replay": "2.00"}
    assert list(accuracy.rows) == list(accuracy.costs)
    assert text(accuracy).splitlines()[1].startswith("method     FLOPs, ER = 1  M = 5, 154 KB")
    assert "| patch-lda | 0.03 to 0.04 | 20.0 ± 0.1 |" in markdown(accuracy)
    rows = [line for line in latex(accuracy).splitlines() if line.endswith("\\\\")]
    assert {line.count("&") for line in rows} == {5}


def test_without_er_there_are_no_relative_costs() -> None:
    made = [run for run in results([FURTHER[0]], ["joint"]) if run.config["method"] in ("ccp", "replay")]
    accuracy, *_ = tables(from_results(made, [FURTHER[0]]), FURTHER[0], "joint")
    assert accuracy.costs == {}
    assert list(accuracy.rows) == ["CCP", "replay"]
    assert accuracy.table().columns == ["method", *accuracy.columns]
