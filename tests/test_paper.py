import csv
from collections import Counter

import pytest

from onebyone.methods import methods
from onebyone.paper.printed import FILE, PARTS, methods_of, printed, quick
from onebyone.runs.results import Value

TABLES = {part.name: part for part in PARTS if part.is_table}


def test_every_cell_of_both_tables_is_there_once() -> None:
    for name, part in TABLES.items():
        (classes,) = part.classes_per_task
        for method in methods_of(classes):
            assert all(printed(name, method, memory, "accuracy") for memory in part.memories)
            there = [memory for memory in part.memories if printed(name, method, memory, "forgetting")]
            assert there == ([] if method == "iid" else [20, 50, 100])
    with FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert Counter(row["table"] for row in rows) == {"table1": 8 * 4 + 7 * 3, "table2": 10 * 4 + 9 * 3}
    assert len({tuple(row.values())[:4] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("cell", "mean", "std"),
    [
        (("table1", "iid", 5, "accuracy"), 63.4, 0.6),
        (("table1", "er", 5, "accuracy"), 15.7, 1.7),
        (("table1", "der++", 20, "forgetting"), 58.9, 2.2),
        (("table1", "supbyol", 5, "accuracy"), 24.4, 1.2),
        (("table1", "ccp", 100, "forgetting"), 21.9, 1.0),
        (("table2", "finetune", 50, "forgetting"), 80.9, 0.1),
        (("table2", "mir", 20, "forgetting"), 38.2, 1.2),
        (("table2", "er-aml", 20, "accuracy"), 47.7, 0.7),
        (("table2", "er-ace", 20, "accuracy"), 43.4, 1.6),
        (("table2", "icarl", 100, "accuracy"), 42.3, 0.8),
        (("table2", "ccp", 50, "accuracy"), 47.6, 1.0),
    ],
)
def test_cells_as_printed(cell: tuple[str, str, int, str], mean: float, std: float) -> None:
    assert printed(*cell) == Value(mean, std, 5)


def test_numbers_that_the_paper_does_not_print() -> None:
    assert printed("table1", "er-aml", 20, "accuracy") is None
    assert printed("table1", "ccp", 5, "forgetting") is None
    assert printed("figure1", "ccp", 100, "accuracy") is None


def test_methods_of_the_tables_are_registered_and_quick_parts_have_their_own_names() -> None:
    assert set(methods_of(2)) == set(methods()) - {"replay", "patch-lda", "lda", "hybrid"}  # which are not in the paper
    assert set(methods_of(2)) - set(methods_of(1)) == {"er-aml", "er-ace"}
    for part, small in zip(PARTS, quick(PARTS), strict=True):
        assert small.is_quick
        assert not part.is_quick
        assert small.in_print == part.name != small.name
        assert "QUICK" in small.title
        assert small.dataset == f"{part.dataset}-quick"
