"""Every page of the documentation exists, its numbers come from the results, and its examples run."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from runpy import run_path
from typing import Any

import pytest
import yaml

from made_up import result
from onebyone.methods import methods
from onebyone.nets import encoder
from onebyone.paper import printed
from onebyone.paper.records import from_results, read, write
from onebyone.paper.report import Study
from onebyone.paper.reproduce import EVERYTHING, collect, parts_of, protocols_of
from onebyone.runs import RunConfig
from onebyone.runs.results import Value
from onebyone.runs.tune import write_record

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
OUTPUT = re.compile(r"```text\n(.*?)```", re.DOTALL)  # test_examples.py compares it with what is printed
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
METHOD_PAGES: dict[str, Any] = run_path(str(DOCS / "hooks" / "method_pages.py"))


def pages_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_of(item)


NAV = list(pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))


def test_navigation_names_every_page_once() -> None:
    assert sorted(NAV) == PAGES


@pytest.mark.parametrize("name", methods())
def test_every_method_has_a_page_with_all_its_parts(name: str) -> None:
    page = f"methods/{name}.md"
    assert page in NAV, f"write docs/{page} (another method's page shows how) and name it in mkdocs.yml"
    text = (DOCS / page).read_text()
    for part in ("summary", "options", "numbers", "code"):
        assert text.count(f"<!-- {part} -->") == 1, f"{page} has no comment for {part}"
    for title in ("Idea", "Equations", "Options", "Numbers", "In code", "Reference"):
        assert f"\n## {title}\n" in text, f"{page} has no part {title}"
    assert "```math\n" in text


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_has_a_tutorial_that_shows_it(path: Path) -> None:
    page = f"tutorials/{path.stem}.md"
    assert page in NAV
    assert f'--8<-- "examples/{path.name}"' in (DOCS / page).read_text()


def test_names_in_the_reference_exist() -> None:
    names = [name for page in PAGES for name in re.findall(r"^::: (\S+)$", (DOCS / page).read_text(), re.MULTILINE)]
    assert len(names) > 40
    for name in names:
        assert (resolve_name(name).__doc__ or "").strip(), f"{name} has no docstring"


@pytest.mark.parametrize("page", [page for page in PAGES if PYTHON.search((DOCS / page).read_text())])
def test_python_on_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(encoder.ENCODERS, "entries", dict(encoder.ENCODERS.entries))  # a page registers one of its own
    found: dict[str, Any] = {"__name__": page}
    for block in PYTHON.findall((DOCS / page).read_text()):
        exec(block, found)


@pytest.mark.slow
def test_pictures_can_be_drawn(tmp_path: Path) -> None:
    pictures = run_path(str(DOCS / "pictures.py"))
    pictures["draw_memory"](tmp_path / "memory.png")
    pictures["draw_batchnorm"](tmp_path / "batchnorm.png", seeds=range(1))
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert (DOCS / path.name).exists()


def filled(name: str, results: Path) -> str:
    text: str = METHOD_PAGES["complete"]("<!-- numbers -->", f"methods/{name}.md", results)
    return text


def put(folder: Path, *runs: tuple[str, dict[str, Any], float]) -> None:
    """Records of some runs: the method, other fields of its configuration, and its accuracy."""
    made = [
        result(RunConfig(method=name, **({"dataset": "cifar10", "protocol": "separate"} | fields)), value)
        for name, fields, value in runs
    ]
    write(from_results(made, EVERYTHING), folder, EVERYTHING)


def test_missing_numbers_are_marked(tmp_path: Path) -> None:
    text = filled("replay", tmp_path)
    assert text.count("not measured yet") == 4 + 2  # tables, and the tuning on two data sets
    assert "|" not in text
    assert "passes 2 forward and 2 backward" in text  # counted, not measured


def test_numbers_come_from_the_results(tmp_path: Path) -> None:
    joint = {"protocol": "joint", "memory_per_class": 100}
    put(tmp_path, ("ccp", {}, 0.3), ("ccp", {"seed": 1}, 0.4), ("ccp", joint, 0.5), ("er", {}, 0.9))
    hole = "not measured yet"
    first = filled("ccp", tmp_path).split("**Two classes")[0].splitlines()
    assert first[-4:-1] == [
        f"| here, protocol `separate` | {hole} | 35.0 ± 7.1 (2 runs) | {hole} | {hole} |",
        f"| here, protocol `joint` | {hole} | {hole} | {hole} | 50.0 (one run) |",
        "| printed in the paper | 24.2 ± 0.9 | 34.3 ± 1.1 | 36.0 ± 1.3 | 39.1 ± 1.1 |",
    ]


def test_a_run_without_a_memory_stands_for_every_memory(tmp_path: Path) -> None:
    put(tmp_path, ("iid", {"classes_per_task": 2, "protocol": "both"}, 0.62))
    assert filled("iid", tmp_path).count("62.0 (one run)") == 4


def test_a_method_beyond_the_paper_has_a_table_of_its_own(tmp_path: Path) -> None:
    five = {"classes_per_task": 5, "dataset": "cifar100"}
    made = (({}, 0.68), ({"classes_per_task": 2}, 0.7), (five, 0.47))
    put(tmp_path, *(("patch-lda", fields | {"protocol": "both"}, value) for fields, value in made))
    text = filled("patch-lda", tmp_path)
    one, two, hundred, fifth = re.split(r"\*\*(?:Two|One|Five) classe?s?", text)[1:]
    assert "68.0 (one run)" in one
    assert "70.0 (one run)" in two
    assert "Split CIFAR-100, accuracy on the test set in per cent: not measured yet" in hundred
    assert "47.0 (one run)" in fifth
    assert "printed" not in text


def recorded() -> set[str]:
    """Every mean with its standard deviation, as text: of the records, of the ablations and of the paper."""
    found = {str(value) for value in printed._numbers().values()}
    for folder in (ROOT / "results", ROOT / "results" / "equations"):
        records = read(folder, EVERYTHING)
        for cell in records.cells:
            found |= {str(records.value(cell, metric)) for metric in ("accuracy", "forgetting")}
    for path in (ROOT / "results" / "replay").glob("*.csv"):
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row.get("std")]
        found |= {str(Value(float(row["mean"]), float(row["std"]), int(row["n"])).percent) for row in rows}
    return found


def test_means_on_pages_come_from_the_records() -> None:
    known = recorded()
    pages = {
        path: path.read_text() for path in (ROOT / "README.md", *DOCS.rglob("*.md"), *ROOT.glob("results/**/*.md"))
    }
    unknown = [
        f"{path.relative_to(ROOT)}: {number}"
        for path, text in pages.items()
        for number in re.findall(r"\d+\.\d ± \d+\.\d", OUTPUT.sub("", text))
        if number not in known
    ]
    assert not unknown, "put the runs on record in results/, and let recorded() read them"
    assert sum(len(re.findall("±", text)) for text in pages.values()) > 1000


def test_the_reproduction_is_what_the_command_writes(onebyone: Callable[..., tuple[int, str, str]]) -> None:
    assert onebyone("report", ROOT / "results", "--markdown", "again")[0] == 0
    advice = "write it again: onebyone report results --records results --markdown docs/reproduction"
    there, again = ({p.name: p.read_text() for p in f.iterdir()} for f in (DOCS / "reproduction", Path("again")))
    assert there.keys() == again.keys(), advice
    assert not [name for name in again if again[name] != there[name]], advice
    shown = set(re.findall(r"(?m)\| `([0-9a-f]{8})` \|$", there["settings.md"]))
    assert shown
    assert shown <= json.loads((ROOT / "results" / "settings.json").read_text()).keys(), advice


def test_every_picture_is_shown() -> None:
    text = "".join(path.read_text() for path in (ROOT / "README.md", *DOCS.rglob("*.md")))
    pictures = [path for kind in ("png", "svg") for path in DOCS.rglob(f"*.{kind}")]
    assert not [path.name for path in pictures if f"{path.name})" not in text]


def test_counts_in_readme_and_site_come_from_the_records() -> None:
    parts = parts_of("all")
    study = Study(collect([ROOT / "results"]).of(parts), parts, protocols_of("all"), "")
    for page in ("README.md", "docs/index.md", "docs/results.md"):
        text = " ".join((ROOT / page).read_text().split("![")[0].split())  # before the first picture
        assert study.headline in text, page
    assert study.numbers in " ".join((DOCS / "results.md").read_text().split())
    assert (DOCS / "reproduction" / "claims.md").read_text().splitlines()[2] == f"**{study.headline}** {study.numbers}"


@pytest.mark.slow
@pytest.mark.parametrize("name", methods())
def test_every_page_can_be_filled_from_the_results_there_are(name: str) -> None:
    text = filled(name, ROOT / "results")
    assert "**One class per task" in text
    assert name not in ("er", "ccp", "iid", "patch-lda") or "(5 runs)" in text


def test_the_best_setting_of_the_tuning_is_shown(tmp_path: Path) -> None:
    (tmp_path / "tuning").mkdir()
    rows = [
        {"dataset": "cifar10", "classes_per_task": 1, "method": "er", "options": {"learning_rate": rate}}
        | {"memory_per_class": memory, "seed": 0, "held_out": True, "accuracy": accuracy, "forgetting": 0.1}
        for rate, memory, accuracy in ((0.1, 20, 0.6), (0.1, 100, 0.2), (0.01, 20, 0.4), (0.01, 100, 0.5))
    ]
    write_record(tmp_path / "tuning" / "cifar10.csv", rows)
    text = filled("er", tmp_path)
    assert "the best of 2 settings" in text
    assert "| 1 | `learning_rate=0.01` | 40.0 (one run) | 50.0 (one run) |" in text


def test_options_on_a_page_are_those_of_the_code() -> None:
    text = METHOD_PAGES["complete"]("<!-- options -->", "methods/ccp.md")
    line = "- `prototype_momentum` (a number; default `0.999`) – alpha: old prototypes follow the replayed features."
    assert line in text.splitlines()
    assert "separate | joint" in text
