"""The pages, and the report as one page, from made-up records."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from made_up import made_study, results
from onebyone import UsageError
from onebyone.paper.figures import KINDS
from onebyone.paper.printed import PARTS, quick
from onebyone.paper.records import Records, from_results, read, write
from onebyone.paper.report import Study, html, pages, publish, publish_markdown, read_tried


@pytest.fixture(scope="module")
def study() -> Study:
    return made_study()


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps them."""

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

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [found for kind, found in self.found if kind == tag]


def test_the_report_is_the_pages_in_one_that_needs_no_other_file(study: Study, tmp_path: Path) -> None:
    few = replace(study, parts=PARTS[:1])
    publish(few, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert all(str(image["src"]).startswith("data:image/svg+xml;base64,") for image in page.all("img"))
    assert len(page.all("img")) == len(KINDS)
    names = {str(found["id"]) for _, found in page.found if "id" in found}
    assert {str(link["href"]) for link in page.all("a")} <= {f"#{name}" for name in names}
    assert few.headline.replace("`printed`", "<code>printed</code>").split("`")[0] in text
    assert not {"script", "iframe", "object", "base"} & {tag for tag, _ in page.found}
    assert [link["href"] for link in page.all("link")] == ["data:,"]  # nothing is fetched, not even an icon
    files = {path.name for path in (tmp_path / "report").iterdir()}
    curves = {f"{kind}-cifar10-1-M{m}.svg" for kind in ("anytime", "tradeoff") for m in (5, 20, 50)}
    assert files >= curves | {"table1-accuracy.tex", "table1-forgetting.tex", "anytime-cifar10-1.svg"}


def test_tables_as_latex(study: Study, tmp_path: Path) -> None:
    few = Study(study.records, PARTS[:1], ("separate",), "")
    publish(few, tmp_path / "report.html")
    text = (tmp_path / "report" / "table1-accuracy.tex").read_text()
    assert r"CCP & 20 & 34.3 $\pm$ 1.1 & 25.3 $\pm$ 0.1 \textsuperscript{m}\textsuperscript{o} \\" in text
    assert text.count(r"\begin") == text.count(r"\end") == 2
    assert not set("±✓✗▲°–…") & set(text)


def test_the_number_of_cells_by_verdict(study: Study) -> None:
    """In two tables, both methods at four sizes in accuracy and at three in forgetting. CCP misses every accuracy."""
    for protocol in study.protocols:
        ours = study.tally(protocol, ("supbyol", "ccp"))
        assert (ours.total(), ours["missed"]) == (2 * 2 * (4 + 3), 2 * 4)
        assert (
            study.tally(protocol).total() == 2 + 4 * 6 + 1 + 3 * 6 + 2 + 4 * 8 + 1 + 3 * 8
        )  # iid and fine-tuning once
        assert study.tally(protocol)["no runs yet"] == (14 if protocol == "joint" else 0)  # MIR
        line = f"| `{protocol}`, SupBYOL and CCP | {ours['reproduced']} | 0 | 8 | {ours['undecided']} | 0 |"
        assert line in pages(study)["claims"]
    assert study.numbers.startswith("Of the 28 numbers that it prints for SupBYOL and CCP, in `separate` ")
    assert "8 missed" in study.numbers


def test_every_missed_cell_has_a_line_that_says_what_was_tried(study: Study) -> None:
    lines = pages(study)["settings"].split("## Missed cells")[1].split("\n## ")[0].splitlines()
    found = [line for line in lines if "| CCP |" in line]
    assert len(found) == len(study.misses) == 2 * 2 * 4
    assert sum("a longer &lt;sweep&gt; &amp; more" in line for line in found) == 2 * 2  # it is shown as it was written
    assert sum("the complete table" in line for line in found) == 12
    assert "| table 1, `separate`, accuracy, M = 20 | CCP | 25.3 ± 0.1 (34.3 ± 1.1) | the complete table |" in found
    untried = replace(study, tried=())
    assert {row[-1] for row in untried.misses} == {"nothing yet"}


def test_a_study_without_records(tmp_path: Path) -> None:
    empty = Study(Records(), PARTS, ("printed", "separate", "joint"), "onebyone reproduce all")
    found = pages(empty)
    assert "0 of 0 in `printed`" in found["claims"]
    assert "in `printed` 28 no runs yet" in found["claims"]
    assert "| CCP | 100 | 39.1 ± 1.1 | … | … | … |" in found["tables"]
    Page(html(empty, tmp_path))


def test_a_quick_study_is_marked(tmp_path: Path) -> None:
    parts = [replace(part, memories=(20,)) for part in quick(PARTS[:1])]
    made = from_results(results(parts, seeds=1), parts)
    small = Study(made, parts, ("separate",), "onebyone reproduce table1 --quick")
    assert "QUICK" in pages(small)["claims"].splitlines()[2]
    publish(small, tmp_path / "report.html")
    assert all("QUICK" in path.read_text() for path in tmp_path.glob("report/*.tex"))
    drawn = list(tmp_path.glob("report/*.svg"))
    assert drawn
    assert all("quick: few images" in path.read_text() for path in drawn)


def test_the_first_page_has_the_claims(study: Study) -> None:
    text = pages(study)["claims"]
    held, measured = study.outcomes("separate")["holds"], 17 - study.outcomes("separate")["not measured"]
    assert f"{held} of {measured} in `separate`" in study.headline
    assert text.splitlines()[2] == f"**{study.headline}** {study.numbers}"
    assert 0 < study.outcomes("joint")["holds"] <= held < measured == 17
    (line,) = (line for line in text.splitlines() if line.startswith("| 3 | With one class per task, CCP is the most"))
    assert line.endswith("| undecided | fails | fails |")  # in print, and in both protocols
    (why,) = (line for line in text.splitlines() if line.startswith("3. Section 3"))
    assert "Read as: highest mean at every M. *in print*: 23 of 24 comparisons hold, 1 undecided. *separate*: " in why
    assert "CCP and SupBYOL at M = 5, 20, 50, 100" in why
    assert sum(bool(re.match(r"\d+\. ", line)) for line in text.splitlines()) == len(study.claims) == 17
    counts = [line for line in text.splitlines() if line.startswith("| in print | ")]
    assert counts == ["| in print | 2 | 1 | 7 | 7 |"]


def test_only_the_claims_of_the_parts_are_checked(study: Study) -> None:
    alone = Study(study.records, PARTS[:2], ("separate",), "")
    assert len(alone.claims) == 11
    assert "Where the curves end" not in pages(alone)["tables"]


def test_end_points_of_the_curves_are_in_one_table(study: Study) -> None:
    """All M in one table for each S and metric, though they are two figures; what is missing is marked."""
    section = pages(study)["tables"].split("## Where the curves end")[1].split("\n## ")[0]
    assert section.count("\n### Split CIFAR-100, at the end of the stream, one class per task: ") == 2
    assert section.count("\n### ") == 4
    found = [line.split(" | ")[1:] for line in section.splitlines() if line.startswith("| CCP |")][:3]
    assert [cells[0] for cells in found] == ["100", "20", "50"]
    assert ["…" in cells for cells in found] == [False, True, True] or found[1][1].startswith("…")


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_the_number_of_seeds_is_above_the_tables(seeds: int) -> None:
    made = from_results(results(PARTS[:1], seeds=seeds) if seeds else [], PARTS)
    words = ["per cent. Signs", "per cent, of one seed.", "per cent, mean ± sample standard deviation over 2 seeds."]
    assert f"Numbers are in {words[seeds]}" in pages(Study(made, PARTS, ("separate", "joint"), ""))["tables"]


def test_older_settings_are_explained_where_they_are(study: Study) -> None:
    assert "° marks older runs" in pages(study)["tables"]
    assert "° marks" not in "".join(pages(Study(Records(), PARTS, ("separate",), "")).values())


def test_the_text_is_the_same_before_and_after_the_records_are_written(study: Study, tmp_path: Path) -> None:
    write(study.records, tmp_path, PARTS)
    assert pages(replace(study, records=read(tmp_path, PARTS))) == pages(study)


def test_the_pages_and_their_figures_are_files(study: Study, tmp_path: Path) -> None:
    publish_markdown(study, tmp_path / "found")
    files = {path.name for path in (tmp_path / "found").iterdir()}
    text = "".join(pages(study).values())
    assert files == {f"{page}.md" for page in pages(study)} | set(re.findall(r"\]\(([^)#]*)", text))
    assert not re.search(r"\n{3,}", text)
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|"), line
    (tmp_path / "found" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt is there; choose another folder"):
        publish_markdown(study, tmp_path / "found")


@pytest.mark.parametrize("text", ["- {method: ccp}", "- {tried: a, methods: ccp}", "- text", "{"])
def test_a_wrong_tried_yaml_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tried.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"tried\.yaml"):
        read_tried(tmp_path / "tried.yaml")


def test_tried_yaml_of_this_repository_can_be_read(tmp_path: Path) -> None:
    assert isinstance(read_tried(Path(__file__).parent.parent / "results" / "tried.yaml"), list)
    assert read_tried(tmp_path / "none.yaml") == []


def test_commands_on_the_page_of_settings_are_wrapped(study: Study) -> None:
    long = "onebyone reproduce beyond" + 8 * " --method patch-lda"
    code = pages(replace(study, command=long))["settings"].split("```sh\n")[1].split("```")[0]
    assert max(map(len, code.splitlines())) <= 88
    assert " ".join(code.replace("\\\n", "").split()) == long
