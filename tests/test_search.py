"""The search of a protocol, and what its record chooses."""

import json
from pathlib import Path
from runpy import run_path
from statistics import fmean
from typing import Any

import pytest
import yaml

from onebyone import UsageError
from onebyone.paper import search
from onebyone.paper.protocols import choice, choices, fixed, protocols, settings

ROOT = Path(__file__).parents[1]
PROGRAM = run_path(str(ROOT / "benchmarks" / "search.py"))
FOLDER = ROOT / "results" / "search"
AGAIN = "write it again: python benchmarks/search.py printed --choose"


def row(method: str, stage: int, options: dict[str, Any], readout: str, accuracy: float, **cell: int) -> search.Row:
    named = {"classes_per_task": 1, "memory_per_class": 20, "seed": 0} | cell
    text = {name: str(value) for name, value in (named | {"stage": stage, "accuracy": accuracy}).items()}
    return text | {
        "method": method,
        "options": json.dumps(options),
        "readout": readout,
        "seconds": "2",
        "forgetting": "0",
    }


def test_what_is_chosen_is_what_the_record_says() -> None:
    rows = search.read(FOLDER / "printed.csv")
    assert search.choose("printed", rows) == choices()["printed"], AGAIN
    assert PROGRAM["page"]("printed", rows) == (FOLDER / "printed.md").read_text(), AGAIN
    assert yaml.safe_load(PROGRAM["as_yaml"](choices())) == choices()


def test_the_readme_says_what_is_on_record() -> None:
    rows, text = search.read(FOLDER / "printed.csv"), " ".join((FOLDER / "README.md").read_text().split())
    trainings = {tuple(row[name] for name in search.COLUMNS[:6]) for row in rows}
    assert f"in {len(trainings)} trainings and {len(rows):,} rows" in text
    methods = protocols()["printed"]["open"]
    assert not any(search.missing("printed", name, search.groups("printed", name)[0], rows) for name in methods)
    assert "The search of `printed` is complete" in text
    planned = [search.planned("separate", name, 0, []) for name in protocols()["separate"]["open"]]
    assert max(map(len, planned)) == 64  # 32 settings for each number of classes per task
    found = {
        name: search.cells(rows, name, [1, 2], 1)[bare(name), readout][1, 20]
        for name, readout in {"er": "ncm", "ccp": "encoder"}.items()
    }
    assert f"{100 * fmean(found['er']):.1f} by class means" in text
    assert f"CCP ({100 * fmean(found['ccp']):.1f}) would not" in text
    head = fmean(search.cells(rows, "er", [1, 2], 1)[bare("er"), "head"][1, 20])
    assert f"give {100 * head:.1f} by the head" in text
    rule = (ROOT / "src/onebyone/paper/protocols.yaml").read_text()
    assert f"ER goes from {100 * head:.1f} to {100 * fmean(found['er']):.1f}" in rule


def test_the_read_outs_on_the_page_of_results_are_those_of_the_record() -> None:
    rows = search.read(FOLDER / "printed.csv")
    page = (ROOT / "docs" / "results.md").read_text()
    for name, title, trained, means in (
        ("er", "ER", "head", "ncm"),
        ("der++", "DER++", "head", "ncm"),
        ("supbyol", "SupBYOL", "prototypes", "encoder"),
        ("ccp", "CCP", "prototypes", "encoder"),
    ):
        found = search.cells(rows, name, [1, 2], 1)
        first, second = (fmean(found[bare(name), readout][1, 20]) for readout in (trained, means))
        assert f"| {title} | {100 * first:.1f} | {100 * second:.1f} |\n" in page
        if name == "ccp":
            text = (ROOT / "docs" / "methods" / "ccp.md").read_text()
            assert f"{100 * second:.1f} % instead of {100 * first:.1f} %" in text


def bare(method: str) -> str:
    found = choice("printed", method, 1)
    assert found is not None
    return json.dumps({name: value for name, value in found["options"].items() if name != "readout"})


def test_the_rule_by_hand() -> None:
    """ER has four settings, all of which go on. Class means are better, but the head is what it may choose."""
    one, two, three, four = settings("printed", "er", 32)
    rows = [
        row("er", 0, options, readout, accuracy, classes_per_task=classes)
        for options, head in ((one, 0.3), (two, 0.2), (three, 0.1), (four, 0.05))
        for readout, accuracy in (("head", head), ("ncm", 0.5 - head))
        for classes in (1, 2)
    ]
    fewer = [item for item in rows if item["options"] != json.dumps(four) or item["classes_per_task"] == "1"]
    assert search.missing("printed", "er", [1, 2], fewer) == {0: 1}
    assert search.missing("printed", "er", [1, 2], rows) == {1: 4 * 2 * 2 * 2}
    assert search.best(rows, "printed", "er", [1, 2], 0) == [one, two, three, four]
    assert [search.choose("printed", rows)["er"][0][name] for name in ("stage", "complete")] == [0, False]
    second = [
        row("er", 1, options, readout, accuracy, classes_per_task=classes, memory_per_class=memory, seed=seed)
        for options in (one, two, three, four)
        # Setting two has the best mean over the cells, and setting one the best over M = 20.
        for readout, accuracy in (("head", 0.4 if options == two else 0.3), ("ncm", 0.6 if options == one else 0.5))
        for classes in (1, 2)
        for memory in (20, 100)
        for seed in (1, 2)
    ]
    chosen = search.choose("printed", rows + second)["er"]
    accuracy = {"head": 40.0, "ncm": 50.0}
    options = two | {"readout": "head"}
    assert chosen == [
        {"classes_per_task": [1, 2], "complete": True, "stage": 1, "options": options, "accuracy": accuracy}
    ]
    fewer = [item for item in second if (item["classes_per_task"], item["seed"]) != ("2", "2")]
    assert search.missing("printed", "er", [1, 2], rows + fewer) == {1: 4 * 2}


def test_a_setting_that_went_on_by_another_read_out_is_not_chosen() -> None:
    tried = settings("printed", "der++", 32)
    rows = [
        row("der++", 0, options, readout, accuracy, classes_per_task=classes)
        for number, options in enumerate(tried)
        for readout, accuracy in (("head", 0.3 + number / 1000), ("ncm", 0.9 - number / 1000))
        for classes in (1, 2)
    ]
    assert search.best(rows, "printed", "der++", [1, 2], 0)[:4] == tried[:-5:-1]
    rows += [row("der++", 1, options, "head", accuracy) for options, accuracy in ((tried[0], 0.8), (tried[-1], 0.4))]
    rows += [row("der++", 1, options, "ncm", 0.9) for options in (tried[0], tried[-1])]
    (chosen,) = search.choose("printed", rows)["der++"]
    assert chosen["options"] == tried[-1] | {"readout": "head"}


def test_a_choice_for_each_group() -> None:
    """In ``separate``, one class per task and several get settings of their own, and a shuffled stream one."""
    tried = settings("separate", "er", 32)
    rows = [
        row("er", 0, options, "head", accuracy, classes_per_task=classes)
        for classes, best in ((1, tried[3]), (2, tried[5]))
        for options in tried
        for accuracy in [0.5 if options == best else 0.4]
    ]
    rows += [item | {"readout": "ncm"} for item in rows]
    found = {tuple(one["classes_per_task"]): one["options"] for one in search.choose("separate", rows)["er"]}
    assert {key: {name: options[name] for name in tried[0]} for key, options in found.items()} == {
        (1,): tried[3],
        (2,): tried[5],
    }
    assert search.groups("separate", "iid") == [[1]]
    assert [(c.classes_per_task, c.memory_per_class) for c, *_ in search.planned("separate", "iid", 0, [])] == 5 * [
        (1, 20)
    ]


@pytest.mark.parametrize("protocol", ["printed", "separate"])
def test_every_setting_of_a_space_is_one_of_the_method(protocol: str) -> None:
    for method in protocols()[protocol]["open"]:
        chosen = settings(protocol, method, 32)
        assert len({json.dumps(options) for options in chosen}) == len(chosen)
        assert not chosen[0].keys() & fixed(protocol, method).keys()
        for config, *_ in search.planned(protocol, method, 0, []):
            config.method_options()
        for readout in search.allowed(protocol, method):
            assert readout in search.readouts_of(method)


def test_the_settings_are_those_of_the_record() -> None:
    """A space is drawn by numbers, because one of ``separate`` has more than a million settings."""
    rows = search.read(FOLDER / "printed.csv")
    for method in protocols()["printed"]["open"]:
        tried = {row["options"] for row in rows if row["method"] == method and row["stage"] == "0"}
        assert tried == {json.dumps(options) for options in settings("printed", method, 32)}


def test_a_record_has_a_row_once_and_a_torn_line_is_named(tmp_path: Path) -> None:
    """As after two processes that did the same trainings, and after one that was killed."""
    whole = (FOLDER / "printed.csv").read_text()
    path = tmp_path / "printed.csv"
    path.write_text(whole + "".join(whole.splitlines(keepends=True)[-4:]))
    assert search.read(path) == search.read(FOLDER / "printed.csv")
    for missing in (10, 1):  # a column, and only the end of the line
        path.write_text(whole[:-missing])
        last = whole.count("\n")
        with pytest.raises(UsageError, match=rf"printed\.csv is damaged in line {last}; delete this line"):
            search.read(path)
