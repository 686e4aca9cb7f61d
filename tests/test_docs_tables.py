"""Tables on pages, cell by cell: each number is that of its method, memory, stream and protocol."""

import pytest

from onebyone.paper.printed import TITLES, printed
from onebyone.paper.records import CellKey
from page_numbers import ROOT, Column, operations, records

MEMORIES = (5, 20, 50, 100)
SIZES = "M = 5 | 20 | 50 | 100"
ABLATION = "removed | filters | accuracy | loss in points"
METHODS = {title: name for name, title in TITLES.items()}
PAGE = (ROOT / "docs" / "results.md").read_text().replace("**", "").replace("`", "")


def rows(heading: str, page: str = PAGE) -> list[list[str]]:
    """The cells of a table below its heading."""
    (table,) = [part for part in page.split("\n\n") if part.startswith(f"| {heading} |")]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def ours(protocol: str, dataset: str, method: str, classes_per_task: int, memory: int) -> str:
    value = records().value(CellKey(protocol, dataset, method, classes_per_task, memory), "accuracy")
    return str(value or "only on held-out data")


def in_print(classes_per_task: int, method: str, memory: int) -> str:
    value = printed(f"table{classes_per_task}", method, memory, "accuracy")
    assert value
    return f" ({value.mean:.1f})"


@pytest.mark.parametrize(
    ("heading", "classes", "protocol"),
    [
        ("one class per task, as printed", 1, "printed"),
        ("two classes per task, as printed", 2, "printed"),
        ("one class per task, separate passes", 1, "separate"),
        ("one class per task, joint passes", 1, "joint"),
    ],
)
def test_the_tables_of_cifar10(heading: str, classes: int, protocol: str) -> None:
    found = rows(f"{heading} | {SIZES}")
    assert len(found) >= 2
    for title, *cells in found:
        name = METHODS[title]
        wanted = [ours(protocol, "cifar10", name, classes, memory) for memory in MEMORIES]
        if protocol != "joint":
            wanted = [text + in_print(classes, name, memory) for text, memory in zip(wanted, MEMORIES, strict=True)]
        assert cells == wanted, title


def test_the_table_of_cifar100() -> None:
    columns = {
        "one class per task, separate passes": (1, "separate"),
        "one class per task, joint passes": (1, "joint"),
        "five classes per task, separate passes": (5, "separate"),
    }
    for title, *cells in rows(f"Split CIFAR-100, M = 100 | {' | '.join(columns)}"):
        name = METHODS[title]
        assert cells == [ours(protocol, "cifar100", name, classes, 100) for classes, protocol in columns.values()]


def test_the_table_beyond_the_paper() -> None:
    dataset, seen = "", set()
    for title, cost, *cells in rows(f"one class per task, joint passes | FLOPs, ER = 1 | {SIZES}"):
        if ": " in title:
            dataset = {"Split CIFAR-10": "cifar10", "Split CIFAR-100": "cifar100"}[title.split(": ")[0]]
        name = METHODS[title.split(": ")[-1]]
        assert cells == [ours("joint", dataset, name, 1, memory) for memory in MEMORIES], (dataset, name)
        costs = operations(dataset, name).values()
        for text, value in zip((cost.split(" to ") * 2)[:2], (min(costs), max(costs)), strict=True):
            assert float(text) == round(value, len(text.partition(".")[2])), (dataset, name)
        seen.add(dataset)
    assert len(seen) == 2


def test_the_accuracy_of_the_present_version_on_cifar100() -> None:
    found = Column("few/many.csv", "accuracy", ("dataset", "memory_per_class")).groups()
    first, *others, last = (f"{100 * found['cifar100', str(memory)]:.1f}" for memory in MEMORIES)
    assert f"{', '.join([first, *others])} and {last} %" in " ".join(PAGE.split())


def test_the_table_of_the_ablation_of_patch_lda() -> None:
    page = (ROOT / "docs" / "methods" / "patch-lda.md").read_text()
    found = {name: Column("statistics/ablation.csv", name, ("removed",)).groups() for name in ("accuracy", "filters")}
    whole = found["accuracy"]["nothing",]
    for (removed, mean), row in zip(found["accuracy"].items(), rows(ABLATION, page), strict=True):
        assert row[1:3] == [f"{found['filters'][removed]:.0f}", f"{mean:.1f}"], removed
        assert float(row[3]) == round(whole - mean, 1), removed


def test_the_table_of_hybrid() -> None:
    page = (ROOT / "docs" / "methods" / "hybrid.md").read_text().replace("`", "").replace("*", "")
    found = rows(f"CIFAR-100, one class per task, test set | {SIZES}", page)
    for name, (_, *cells) in zip(("hybrid", "patch-lda"), found, strict=True):
        assert cells == [ours("joint", "cifar100", name, 1, memory).split(" ±")[0] for memory in MEMORIES]


def test_numbers_in_the_wrong_row_are_found() -> None:
    page = PAGE.replace("| CCP | 26.0 ± 2.0 (24.2)", "| CCP | 25.2 ± 3.1 (24.4)")  # those of SupBYOL
    heading = f"one class per task, separate passes | {SIZES}"
    wrong, right = ({title: cells[0] for title, *cells in rows(heading, text)} for text in (page, PAGE))
    wanted = ours("separate", "cifar10", "ccp", 1, 5) + in_print(1, "ccp", 5)
    assert wrong["CCP"] != right["CCP"] == wanted
