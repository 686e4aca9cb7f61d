from dataclasses import replace
from typing import Any

import pytest

from made_up import results
from onebyone.paper.comparison import COSTS, cells, is_old, table, verdict
from onebyone.paper.printed import FURTHER, PARTS
from onebyone.paper.records import CellKey, Records, from_results
from onebyone.runs.results import Value


def rows(records: Records, part: Any = PARTS[0], metric: str = "accuracy", protocols: Any = ("separate",)) -> Any:
    found = cells(records, [part], protocols)
    return found[found["metric"] == metric]


@pytest.mark.parametrize(
    ("paper", "ours", "more", "less"),
    [
        ((30.0, 1.0), (30.0, 0.0), "reproduced", "reproduced"),
        ((30.0, 1.0), (29.0, 0.5), "reproduced", "reproduced"),  # two standard errors are 1.00
        ((30.0, 1.0), (28.9, 0.5), "missed", "better"),
        ((30.0, 1.0), (28.96, 0.5), "reproduced", "reproduced"),  # 29.0 in the paper's digits
        ((30.0, 1.0), (28.9, 1.7), "reproduced", "reproduced"),  # two standard errors are 1.76
        ((30.0, 1.0), (28.9, 2.3), "undecided", "undecided"),  # two standard errors are 2.24
        ((30.0, 1.0), (30.0, 2.3), "undecided", "undecided"),
        ((30.0, 1.0), (31.1, 0.5), "better", "missed"),
        ((49.3, 0.6), (39.0, 5.4), "missed", "better"),  # our large standard deviation does not excuse it
        ((10.0, 0.0), (10.0, 0.0), "reproduced", "reproduced"),
        ((10.0, 0.0), (9.9, 0.0), "missed", "better"),
    ],
)
def test_verdicts(paper: tuple[float, float], ours: tuple[float, float], more: str, less: str) -> None:
    values = Value(*paper, runs=5), Value(*ours, runs=5)
    assert verdict("accuracy", *values) == more
    assert verdict("forgetting", *values) == less


def test_a_single_run_is_compared_by_the_printed_standard_deviation() -> None:
    for mean, found in ((29.2, "reproduced"), (29.0, "missed")):  # two standard errors are 0.89
        assert verdict("accuracy", Value(30, 1, 5), Value(mean, 0, 1)) == found


def test_cells_without_a_number_have_no_verdict() -> None:
    assert verdict("accuracy", Value(30, 1, 5), None) == "no runs yet"
    assert verdict("forgetting", None, Value(30, 1, 5)) == "not printed"
    assert verdict("forgetting", None, None) == "no runs yet"


def test_a_method_without_a_memory_has_one_cell_for_all_sizes() -> None:
    """Its number is compared once. Forgetting has no meaning for a stream without tasks."""
    made = from_results(results(PARTS[:1]), PARTS)
    for records in (made, Records()):
        found = rows(records)["cell"].map(lambda cell: cell.method).value_counts()
        assert found["iid"] == found["finetune"] == 1
        assert {found[name] for name in ("er", "ccp")} == {4}
        forgetting = rows(records, metric="forgetting")
        assert len(forgetting) == 1 + 4 * 6
        assert sum(value is not None for value in forgetting["paper"]) == 1 + 3 * 6  # not printed at M = 5


def test_a_table_without_runs_has_the_papers_numbers() -> None:
    found = table(rows(Records()))
    assert list(found) == ["method", "M", "paper", "separate"]
    assert list(dict.fromkeys(found["method"])) == [
        *("iid online", "fine-tuning", "iCaRL", "ER", "MIR", "DER++", "SupBYOL", "CCP")
    ]
    assert set(found["separate"]) == {"…"}
    assert found[(found.method == "CCP") & (found.M == "100")]["paper"].item() == "39.1 ± 1.1"


def test_a_table_shows_the_verdicts_of_every_protocol() -> None:
    made = [run for run in results(PARTS[:1], ccp=-9, er=9) if run.config["method"] != "mir"]
    some = [
        run for run in made if (run.config["method"], run.config["seed"], run.config["protocol"]) != ("ccp", 1, "joint")
    ]
    records = from_results(some, PARTS)
    found = rows(records, protocols=("printed", "separate", "joint"))
    verdicts = found[found["protocol"] == "separate"].groupby("method")["verdict"].agg(set).to_dict()
    assert verdicts == {title: {"reproduced"} for title in verdicts} | {
        "ER": {"better"},
        "MIR": {"no runs yet"},
        "CCP": {"missed"},
        "DER++": {"reproduced", "undecided"},  # what the paper prints for M = 100 varies too much
        "SupBYOL": {"reproduced", "undecided"},
    }
    texts = table(found)
    assert list(texts) == ["method", "M", "paper", "printed", "separate", "joint"]
    ccp = texts[(texts.method == "CCP") & (texts.M == "20")].iloc[0]
    # Older settings are marked, and a cell with fewer runs than others of the table says so.
    assert list(ccp[2:]) == ["34.3 ± 1.1", "…", "25.3 ± 0.1 ✗°", "25.2 (n = 1) ✗°"]


def test_settings_are_old_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_old(CellKey("separate", "cifar10", "ccp", 1, 20))
    assert is_old(CellKey("joint", "cifar10", "iid", 1, None))
    assert not is_old(CellKey("printed", "cifar10", "ccp", 1, 20))
    assert not is_old(CellKey("joint", "cifar10", "replay", 1, 20))  # the search is about the paper's methods
    chosen = [{"classes_per_task": [1], "complete": True, "options": {}}]
    monkeypatch.setattr("onebyone.paper.protocols.choices", lambda: {"separate": {"ccp": chosen}})
    assert not is_old(CellKey("joint", "cifar10", "ccp", 1, 20))


def test_tables_beyond_the_paper_are_sorted_by_cost() -> None:
    beyond, factor = FURTHER[0], {"er": 1.0, "patch-lda": 0.04, "ccp": 1.004, "replay": 2.0, "finetune": 0.5}
    made = [run for run in results([beyond], ["joint"]) if run.config["method"] in factor]
    cheaper = {"method": "patch-lda", "memory_per_class": 5}
    made = [
        replace(run, cost=replace(run.cost, flops=3e8 * factor[run.config["method"]] * (0.7 if small else 1)))
        for run in made
        for small in [cheaper.items() <= run.config.items()]
    ]
    found = rows(from_results(made, [beyond]), beyond, protocols=("printed", "joint"))
    one = table(found[found["table"].str.contains("one class")])
    assert list(one) == ["method", COSTS, "M = 5, 154 KB", "M = 20, 614 KB", "M = 50, 1.54 MB", "M = 100, 3.07 MB"]
    costs = {"patch-lda": "0.03 to 0.04", "fine-tuning": "0.50", "ER": "1.00", "CCP": "1.00", "replay": "2.00"}
    assert dict(zip(one["method"], one[COSTS], strict=True)) == costs
    assert list(one["method"]) == list(costs)
    assert one.iloc[1, 2:].nunique() == 1  # without a memory, one number for all M


def test_without_er_there_are_no_relative_costs() -> None:
    made = [run for run in results([FURTHER[0]], ["joint"]) if run.config["method"] in ("ccp", "replay")]
    found = rows(from_results(made, [FURTHER[0]]), FURTHER[0], protocols=("joint",))
    one = table(found[found["table"].str.contains("one class")])
    assert COSTS not in one
    assert list(one["method"]) == ["CCP", "replay"]
