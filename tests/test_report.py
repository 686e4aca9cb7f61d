"""The page, the figures and the text, from made-up records."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from made_up import made_study, result, results
from onebyone import UsageError
from onebyone.paper import ablation
from onebyone.paper.figures import KINDS, Panel, Scenario
from onebyone.paper.printed import PARTS, TITLES, methods_of, quick
from onebyone.paper.records import CellKey, Records, from_results, read, write
from onebyone.paper.report import PAGES, SECTIONS, html, markdown, publish, publish_markdown
from onebyone.paper.study import FIGURES, Study, read_tried
from onebyone.paper.svg import svg
from onebyone.runs import RunConfig


@pytest.fixture(scope="module")
def study() -> Study:
    return made_study()


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps what tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        names = {name.replace("_", "-"): value for name, value in attributes.items()}
        return [found for kind, found in self.found if kind == tag and names.items() <= found.items()]


def test_the_page_has_all_parts(study: Study) -> None:
    text = html(study)
    page = Page(text)
    assert len(page.all("table", data_part="table1")) == len(page.all("table", data_part="table2")) == 4
    figures = [(f["data-section"], f["data-dataset"]) for f in page.all("figure")]
    assert figures == [(section, dataset) for section in SECTIONS for dataset in ("cifar10", "cifar100")]
    assert {link["href"] for link in page.all("a")} <= {f"#{found['id']}" for _, found in page.found if "id" in found}
    assert study.command in text
    assert "a made-up machine" in text
    assert "learning_rate = " in text
    assert "Quick try" not in text
    assert len(text.encode()) < 3_000_000
    for tag in ("img", "iframe", "object", "base"):
        assert not page.all(tag)
    assert [link["href"] for link in page.all("link")] == ["data:,"]  # nothing is fetched, not even an icon
    assert not any("src" in script for script in page.all("script"))


def test_cells_are_coloured_by_their_verdict(study: Study) -> None:
    page = Page(html(study))
    cells = [str(cell["class"]) for cell in page.all("td") if cell.get("class")]
    counted = {verdict: cells.count(verdict) for verdict in ("better", "reproduced", "missed", "undecided", "hole")}
    groups = [cells for table in study.tables for cells in table.distinct]
    ours = {v: sum(len(cells) for cells in groups if cells[0].verdict == v) for v in counted}
    at_the_end = sum(cell.verdict == "hole" for table in study.ends for row in table.rows.values() for cell in row)
    # And the forgetting of MIR at M = 5, which is not printed.
    assert counted == ours | {"hole": ours["hole"] + 2 + at_the_end}
    wide = 25  # cells whose printed standard deviation is too large to decide
    assert ours == {"better": 0, "reproduced": 2 * 120 - 16 - 14 - wide, "missed": 16, "undecided": wide, "hole": 14}
    repeated = 2 * 2 * (3 + 3 + 2)  # accuracy of iid and fine-tuning, forgetting of fine-tuning
    assert sum(counts["reproduced"] for counts in study.tally.values()) == ours["reproduced"] - repeated


def test_the_papers_methods_are_counted_on_their_own(study: Study) -> None:
    """In two tables, both methods at four sizes in accuracy and at three in forgetting. CCP misses every accuracy."""
    for protocol, counts in study.tally_of_ours.items():
        assert (counts.total(), counts["missed"]) == (2 * 2 * (4 + 3), 2 * 4)
        line = f"| `{protocol}`, SupBYOL and CCP | {counts['reproduced']} | 0 | 8 | {counts['undecided']} | 0 |"
        assert line in markdown(study)["index"]


def test_text_of_users_is_escaped(study: Study) -> None:
    assert "a longer &lt;sweep&gt; &amp; more" in html(study)
    assert "a longer <sweep> & more" in markdown(study)["misses"]


def test_the_figures_in_the_page(study: Study) -> None:
    page = Page(html(study))
    assert list(SECTIONS) == list(FIGURES)
    shown = page.all("div", **{"class": "panels"})
    choices = {(panels["data-protocol"], panels["data-memory"]) for panels in shown}
    assert choices == {(p, m) for p in ("separate", "joint") for m in ("", "M = 5", "M = 20", "M = 50", "M = 100")}
    assert sum("hidden" not in panels for panels in shown) == len(page.all("figure"))  # one of each figure is shown
    labels = [str(drawn["aria-label"]) for drawn in page.all("svg", role="img")]
    assert len(labels) == 2 * len(shown)
    assert any(label.startswith("one class per task, M = 100. ") and "CCP 30.1" in label for label in labels)
    used = {str(use["href"]) for use in page.all("use")}
    assert used <= {f"#{path['id']}" for path in page.all("path") if "id" in path}
    assert {f"#mark-{name}" for name in methods_of(2)} <= used  # the legend has the marks of all methods


def test_a_page_without_records() -> None:
    empty = Study(Records(), PARTS, ("separate", "joint"), "onebyone reproduce all")
    page = Page(html(empty))
    assert {str(cell["class"]) for cell in page.all("td") if cell.get("class")} == {"hole", "not-printed"}
    assert "not measured" in markdown(empty)["index"]
    for kind, make in KINDS.items():
        scenario = Scenario("separate", PARTS[0], 1, 20)
        drawn = svg(make(Records(), scenario))
        assert ("CCP paper 34.3" if kind == "tradeoff" else "Not yet run.") in drawn, kind


def test_a_quick_study_is_marked_everywhere(tmp_path: Path) -> None:
    parts = [replace(part, memories=(20,)) for part in quick(PARTS[:1])]
    small = Study(
        from_results(results(parts, seeds=1), parts), parts, ("separate",), "onebyone reproduce table1 --quick"
    )
    assert "<strong>Quick try.</strong>" in html(small)
    assert "QUICK" in markdown(small)["index"]
    assert all("QUICK" in table.title for table in small.tables)
    publish(small, tmp_path / "report.html")
    tables = list(tmp_path.glob("report/*.tex"))
    assert len(tables) == 2
    assert all("QUICK" in path.read_text() for path in tables)
    drawn = sorted(tmp_path.glob("report/*.svg"))
    assert len(drawn) == len(SECTIONS)
    assert all("quick: few images" in path.read_text() for path in drawn)


def test_the_text_begins_with_the_claims_that_hold(study: Study) -> None:
    pages = markdown(study)
    assert list(pages) == list(PAGES)
    count, top = study.holding, pages["index"]
    assert study.headline == (
        f"Of 17 claims of the paper, {count['separate']} hold with separate passes "
        f"and {count['joint']} with joint passes."
    )
    assert top.splitlines()[2].startswith(
        f"**{study.headline}** 3 of them are the paper's reasons for SupBYOL and CCP. "
    )
    assert 0 < count["joint"] <= count["separate"] < 17
    assert f"<b>{study.headline}</b>" in html(study).split("<h1>")[1].split("<ul")[0]
    neither = top.split("### `separate`: fails; `joint`: fails (")[1].split("###")[0]
    assert "- **With one class per task, CCP is the most accurate method at every memory size.** Source: " in neither
    assert "- **With one class per task, CCP forgets least" not in neither
    assert "fails (24 comparisons: " in neither
    assert "### `separate`: fails; `joint`: partly measured" not in top  # a failure decides
    assert "partly measured" in top
    for line in "\n".join(pages.values()).splitlines():
        if line.startswith("|"):
            assert line.endswith("|"), line
    assert not [text for text in pages.values() if "\n\n\n" in text]


def test_cells_that_miss_are_grouped_by_what_was_tried(study: Study) -> None:
    groups = markdown(study)["misses"].split("\n## ")[1:]
    counts = {text.split("What was tried: ")[1].split("\n")[0]: text.count("| CCP |") for text in groups}
    assert counts == {"a longer <sweep> & more.": 4, "the complete table.": 12}
    assert html(study).count("a longer &lt;sweep&gt; &amp; more") == 1


def test_how_methods_were_tuned_is_above_the_tables(study: Study) -> None:
    for text in (markdown(study)["tables"], html(study).split('id="tables"')[1]):
        assert "not tuned again with joint passes" in text.split("CCP")[0]


def test_the_pages_and_their_figures_are_files(study: Study, tmp_path: Path) -> None:
    publish_markdown(study, tmp_path / "found")
    files = {path.name for path in (tmp_path / "found").iterdir()}
    shown = set(re.findall(r"\]\(([^)#]*)", "".join(markdown(study).values())))
    assert files == {f"{page}.md" for page in PAGES} | shown
    assert len(files) == len(PAGES) + 2 * 2 * len(SECTIONS)
    (tmp_path / "found" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt is there; choose another folder"):
        publish_markdown(study, tmp_path / "found")


def test_methods_without_their_incoming_losses(study: Study, tmp_path: Path) -> None:
    assert "Without the losses" not in markdown(study)["tables"] + html(study)
    runs = [
        RunConfig(
            method=method,
            dataset="cifar10",
            memory_per_class=memory,
            seed=seed,
            protocol="separate",
            options={"incoming_weight": 0.0},
        )
        for method in ("ccp", "er")  # ER has no equation of the paper to leave out
        for memory in (20, 100)
        for seed in range(2)
    ]
    accuracy = {20: 0.35, 100: 0.301}  # with the loss 25.3 and 30.1, and two standard errors of 0.2
    write(from_results([result(c, accuracy[c.memory_per_class]) for c in runs], PARTS), tmp_path / "equations", PARTS)
    ablated = replace(study, without=ablation.read([tmp_path, tmp_path / "nothing"], PARTS))
    assert {(cell.method, cell.memory_per_class): a.matters for cell, a in ablated.ablation.items()} == {
        ("ccp", 20): True,
        ("ccp", 100): False,
    }
    assert "in 1 of 2 cells" in markdown(ablated)["index"]
    section = markdown(ablated)["tables"].split("## Without the losses on incoming samples")[1].split("\n## ")[0]
    assert "1 of 2 cells" in section
    assert section.strip().splitlines()[-1] == (
        "| Split CIFAR-10 | 1 | without equation 3 | 35.0 ± 0.0 (+9.7 *) | 30.1 ± 0.0 (+0.0) |"
    )
    assert "35.0 ± 0.0 (+9.7 *)" in html(ablated)


def test_end_points_of_the_curves(study: Study) -> None:
    """All M in one table for each S, protocol and metric, though they are two figures; what is missing is marked."""
    assert len(study.ends) == 2 * 2 * 2
    assert all(table.columns == ["M = 20", "M = 50", "M = 100"] for table in study.ends)
    assert study.ends[0].name == "Figure 1: Split CIFAR-100, at the end of the stream, one class per task"
    (small, _, large) = study.ends[0].rows["CCP"]
    assert (small.verdict, large.verdict) == ("hole", "not printed")
    assert large.ours == study.records.value(CellKey("separate", "cifar100", "ccp", 1, 100), "accuracy")
    section = markdown(study)["figures"].split("## Where the curves end")[1].split("\n## ")[0]
    assert section.count(f"| … | … | {large.ours} |") >= 1
    assert html(study).count("at the end of the stream, one class per task") == 2 * 2
    only_tables = Study(study.records, PARTS[:2], ("separate",), "")
    assert not only_tables.ends
    assert "Where the curves end" not in markdown(only_tables)["figures"] + html(only_tables)


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_the_number_of_seeds_is_above_the_counts(seeds: int) -> None:
    made = from_results(results(PARTS[:1], seeds=seeds) if seeds else [], PARTS)
    study = Study(made, PARTS, ("separate", "joint"), "")
    words = [
        "Numbers are in per cent",
        "Numbers are in per cent, of one seed",
        "Numbers are in per cent, mean ± standard deviation (with the number of runs as divisor) over 2 seeds",
    ]
    pages, page = markdown(study), html(study)
    assert f"\n{words[seeds]}. The paper's numbers are in brackets" in pages["tables"].split("\n## ")[0]
    assert f"{words[seeds]}. A cell is" in page.split("</header>")[0]
    for found in ("".join(pages.values()), page):
        assert ("has no standard deviation" in found) == (seeds == 1)
        assert "Numbers are in per cent. The paper shows these" in " ".join(found.split())  # there are no curves
        assert "0 seeds" not in found


def test_a_single_run_among_others_is_reported(study: Study) -> None:
    first = [run for run in results(PARTS[:1]) if (run.config["method"], run.config["seed"]) != ("er", 1)]
    assert Study(from_results(first, PARTS), PARTS, ("separate",), "").has_single_runs
    assert not study.has_single_runs


def test_the_text_is_the_same_before_and_after_the_records_are_written(study: Study, tmp_path: Path) -> None:
    write(study.records, tmp_path, PARTS)
    again = replace(study, records=read(tmp_path, PARTS))
    assert markdown(again) == markdown(study)


def test_claims_are_grouped_by_protocol() -> None:
    alone = results(PARTS[:2], ("separate",))
    separate = Study(from_results(alone, PARTS), PARTS[:2], ("separate", "joint"), "")
    groups = separate.claims_in_groups
    verdicts = ("holds", "undecided", "fails")  # what holds comes first
    assert list(groups) == [f"`separate`: {verdict}; `joint`: not measured" for verdict in verdicts]
    only = Study(from_results(alone, PARTS), PARTS[:2], ("separate",), "")
    assert list(only.claims_in_groups) == [f"`separate`: {verdict}" for verdict in verdicts]
    assert sum(map(len, groups.values())) == len(separate.claims) == 11


@pytest.mark.parametrize("text", ["- {method: ccp}", "- {tried: a, methods: ccp}", "- text", "{"])
def test_a_wrong_tried_yaml_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tried.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"tried\.yaml"):
        read_tried(tmp_path / "tried.yaml")


def test_tried_yaml_of_this_repository_can_be_read(tmp_path: Path) -> None:
    assert isinstance(read_tried(Path(__file__).parent.parent / "results" / "tried.yaml"), list)
    assert read_tried(tmp_path / "none.yaml") == []


def test_every_point_of_a_figure_has_its_name(study: Study) -> None:
    points = [drawn for kind, _, _, found in study.figures if kind in ("tradeoff", "flops") for drawn in found.values()]
    for drawing in (each for drawings in points for each in drawings):
        assert isinstance(drawing, Panel)
        drawn = svg(drawing)
        for line in drawing.lines:
            assert line.kind == "paper" or f">{TITLES[line.method]}</text>" in drawn


def test_commands_on_the_page_of_settings_are_wrapped(study: Study) -> None:
    long = "onebyone reproduce beyond" + 8 * " --method patch-lda"
    code = markdown(replace(study, command=long))["settings"].split("```sh\n")[1].split("```")[0]
    assert max(map(len, code.splitlines())) <= 88
    assert " ".join(code.replace("\\\n", "").split()) == long
