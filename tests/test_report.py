"""The page, the figures and the text, from made-up records."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from made_up import results
from onebyone import UsageError
from onebyone.paper.figures import COLOURS, KINDS, MARKS, Heat, Panel, Scenario, against_bytes, scenarios
from onebyone.paper.interactive import SYMBOLS, chart
from onebyone.paper.pictures import save
from onebyone.paper.printed import PARTS, TITLES, methods_of, quick
from onebyone.paper.records import Records, from_results, read, write
from onebyone.paper.report import SECTIONS, html, markdown, publish
from onebyone.paper.study import FIGURES, Study, read_tried

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def study() -> Study:
    """The paper's own numbers but for CCP, which misses; joint has no run of MIR; CIFAR-100 at M = 100 only."""
    made = results(PARTS[:3], ccp=-9)
    some = [r for r in made if (r.config["method"], r.config["options"].get("passes")) != ("mir", "joint")]
    tried = [
        {"method": "ccp", "memory_per_class": [50, 100], "protocol": "paper", "tried": "a longer <sweep> & more"},
        {"method": "ccp", "tried": "the whole table"},
    ]
    return Study(from_results(some, PARTS), PARTS, ("paper", "joint"), "onebyone reproduce all --seeds 2", tried)


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps what tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] == "script":
            self.scripts.append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        names = {name.replace("_", "-"): value for name, value in attributes.items()}
        return [found for kind, found in self.found if kind == tag and names.items() <= found.items()]


def test_the_page_holds_everything(study: Study) -> None:
    text = html(study)
    page = Page(text)
    assert len(page.all("table", data_part="table1")) == len(page.all("table", data_part="table2")) == 4
    figures = [(f["data-section"], f["data-dataset"]) for f in page.all("figure")]
    assert figures == [(section, dataset) for section in SECTIONS for dataset in ("cifar10", "cifar100")]
    assert {link["href"] for link in page.all("a")} <= {f"#{found['id']}" for _, found in page.found if "id" in found}
    shown = text.split('<script type="application/json"')[0]
    assert study.command in shown
    assert "a made-up machine" in shown
    assert "learning_rate = " in shown
    assert "Quick try" not in shown
    for tag in ("img", "iframe", "object", "base"):
        assert not page.all(tag)
    assert [link["href"] for link in page.all("link")] == ["data:,"]  # nothing is fetched, not even an icon
    assert not any("src" in script for script in page.all("script"))


def test_cells_are_coloured_by_what_they_are(study: Study) -> None:
    page = Page(html(study))
    cells = [str(cell["class"]) for cell in page.all("td") if cell.get("class")]
    counted = {verdict: cells.count(verdict) for verdict in ("better", "reproduced", "missed", "hole")}
    ours = {v: sum(counts[v] for counts in study.tally.values()) for v in counted}
    at_the_end = sum(cell.verdict == "hole" for table in study.ends for row in table.rows.values() for cell in row)
    # And the forgetting of MIR at M = 5, which is not printed.
    assert counted == ours | {"hole": ours["hole"] + 2 + at_the_end}
    assert ours == {"better": 0, "reproduced": 2 * 120 - 16 - 14, "missed": 16, "hole": 14}


def test_what_people_wrote_is_escaped(study: Study) -> None:
    assert "a longer &lt;sweep&gt; &amp; more" in html(study)
    assert "a longer <sweep> & more" in markdown(study)


def test_the_charts_in_the_page(study: Study) -> None:
    (charts,) = (json.loads(text) for text in Page(html(study)).scripts if text.startswith("{"))
    assert charts.keys() == SECTIONS.keys() == set(FIGURES)
    assert charts["anytime"]["cifar10"].keys() == {"paper", "joint"}
    assert charts["anytime"]["cifar10"]["paper"].keys() == {"M = 5", "M = 20", "M = 50", "M = 100"}
    assert charts["anytime"]["cifar100"]["paper"].keys() == {"M = 20", "M = 50", "M = 100"}
    left, right = charts["anytime"]["cifar10"]["paper"]["M = 20"]
    assert [trace["meta"] for trace in left["data"] if "fill" not in trace] == list(methods_of(1))
    assert len(right["data"]) == 2 * 10  # a band and a line for each
    joint = charts["anytime"]["cifar10"]["joint"]["M = 20"][0]["data"]
    assert "mir" not in {trace["meta"] for trace in joint}
    hollow = [t for t in charts["tradeoff"]["cifar10"]["paper"]["M = 20"][0]["data"] if "paper" in t["hovertemplate"]]
    assert len(hollow) == 7  # all but iid


def test_a_curve_is_the_mean_with_its_standard_deviation(study: Study) -> None:
    (row,) = (row for row in scenarios(PARTS, "cifar10", "paper") if row[0].memory_per_class == 20)
    panel = KINDS["anytime"](study.records, row[1])
    assert isinstance(panel, Panel)
    line = next(line for line in panel.lines if line.method == "er")
    assert line.x == (2, 4, 6, 8, 10)
    assert line.y[-1] == pytest.approx(40.3)
    assert line.std[-1] == pytest.approx(0.1)
    memory = against_bytes(study.records, [row[0] for row in scenarios(PARTS, "cifar10", "paper")])
    kinds = {line.method: (line.kind, len(line.x)) for line in memory.lines}
    assert kinds["iid"][0] == kinds["finetune"][0] == "level"
    assert kinds["ccp"] == ("points", 4)
    heat = KINDS["classes"](study.records, row[0])
    assert isinstance(heat, Heat)
    assert heat.columns[0] == "airplane"
    assert len(heat.values) == len(heat.rows) == 8


def test_each_method_looks_the_same_everywhere_and_unlike_the_others() -> None:
    assert set(COLOURS) == set(MARKS) == set(TITLES)
    assert len(set(COLOURS.values())) == len(set(MARKS.values())) == len(TITLES)
    assert set(SYMBOLS) == {*MARKS.values(), *MARKS.own}  # and those of a user


def test_records_with_nothing_in_them_make_a_page_of_holes() -> None:
    empty = Study(Records(), PARTS, ("paper", "joint"), "onebyone reproduce all")
    page = Page(html(empty))
    assert {str(cell["class"]) for cell in page.all("td") if cell.get("class")} == {"hole", "not-printed"}
    assert "not measured" in markdown(empty)
    for kind, make in KINDS.items():
        scenario = Scenario("paper", PARTS[0], 1, 20)
        assert chart(make(Records(), scenario))["layout"]["title"]["text"], kind


def test_a_quick_try_says_so_everywhere(tmp_path: Path) -> None:
    parts = [replace(part, memories=(20,)) for part in quick(PARTS[:1])]
    small = Study(from_results(results(parts, seeds=1), parts), parts, ("paper",), "onebyone reproduce table1 --quick")
    assert "<strong>Quick try.</strong>" in html(small)
    assert "QUICK" in markdown(small)
    assert all("QUICK" in table.title for table in small.tables)
    publish(small, tmp_path / "report.html")
    tables = list(tmp_path.glob("report/*.tex"))
    assert len(tables) == 2
    assert all("QUICK" in path.read_text() for path in tables)
    drawn = sorted(tmp_path.glob("report/*.svg"))
    assert len(drawn) == len(SECTIONS)
    assert all("quick: few images" in path.read_text() for path in drawn)


def test_figures_as_png_and_svg(study: Study, tmp_path: Path) -> None:
    rows = scenarios(PARTS, "cifar10", "paper")[1:2]
    for name, make in KINDS.items():
        stem = tmp_path / name
        save("A title", [[make(study.records, scenario) for scenario in row] for row in rows], stem)
        with Image.open(f"{stem}.png") as image:
            assert image.width > 1000
        first = Path(f"{stem}.svg").read_text()
        ElementTree.fromstring(first)
        assert "A title" in first
    save("A title", [[make(study.records, scenario) for scenario in row] for row in rows], stem)
    assert Path(f"{stem}.svg").read_text() == first  # the same figure, the same bytes


def test_the_text_begins_with_what_holds(study: Study) -> None:
    text = markdown(study)
    top, tables = text.split("## Tables")
    assert top.index("## Which of the paper's claims hold") < top.index("| claim |")
    neither = top.split("**Hold in neither** (")[1].split("**")[0]
    assert "- With one class per task, CCP is the most accurate method at every memory size.\n" in neither
    assert "- With one class per task, CCP forgets least" not in neither
    assert "**`paper`: fails; `joint`: partly measured**" not in top  # a failure decides
    assert "partly measured" in top
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.endswith("|"), line
    misses = tables.split("## Cells that miss")[1].split("## How it was made")[0]
    assert misses.count("a longer <sweep> & more") == 4
    assert misses.count("the whole table") == 12
    assert "\n\n\n" not in text


def test_where_the_curves_end(study: Study) -> None:
    """All M in one table for each S, protocol and metric, though they are two figures; what is missing is marked."""
    assert len(study.ends) == 2 * 2 * 2
    assert all(table.columns == ["M = 20", "M = 50", "M = 100"] for table in study.ends)
    assert study.ends[0].name == "Figure 1: Split CIFAR-100, at the end of the stream, one class per task"
    (small, _, large) = study.ends[0].rows["CCP"]
    assert (small.verdict, large.verdict) == ("hole", "not printed")
    assert large.ours == study.records.value("paper", "cifar100", "ccp", 1, 100, "accuracy")
    section = markdown(study).split("## Where the curves end")[1].split("\n## ")[0]
    assert section.count(f"| … | … | {large.ours} |") >= 1
    assert html(study).count("at the end of the stream, one class per task") == 2 * 2
    only_tables = Study(study.records, PARTS[:2], ("paper",), "")
    assert not only_tables.ends
    assert "Where the curves end" not in markdown(only_tables) + html(only_tables)


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_how_many_seeds_there_are_is_said_above_the_tally(seeds: int) -> None:
    made = from_results(results(PARTS[:1], seeds=seeds) if seeds else [], PARTS)
    study = Study(made, PARTS, ("paper", "joint"), "")
    words = [
        "In per cent",
        "In per cent, of one seed",
        "In per cent, mean ± standard deviation (with the number of runs as divisor) over 2 seeds",
    ]
    text, page = markdown(study), html(study)
    assert f"\n{words[seeds]}; in brackets" in text.split("| protocol |")[0]
    assert f"{words[seeds]}. A cell is" in page.split('class="tiles"')[0]
    for found in (text, page):
        assert ("has no standard deviation" in found) == (seeds == 1)
        assert "In per cent. The paper shows these" in " ".join(found.split())  # there are no curves
        assert "0 seeds" not in found.split("<script")[0]


def test_a_single_run_among_others_is_reported(study: Study) -> None:
    first = [run for run in results(PARTS[:1]) if (run.config["method"], run.config["seed"]) != ("er", 1)]
    assert Study(from_results(first, PARTS), PARTS, ("paper",), "").has_single_runs
    assert not study.has_single_runs


def test_the_text_is_the_same_before_and_after_the_records_are_written(study: Study, tmp_path: Path) -> None:
    write(study.records, tmp_path, PARTS)
    again = replace(study, records=read(tmp_path, PARTS))
    assert markdown(again) == markdown(study)


def test_the_claims_by_where_they_hold() -> None:
    alone = results(PARTS[:2], ("paper",))
    apart = Study(from_results(alone, PARTS), PARTS[:2], ("paper", "joint"), "")
    groups = apart.claims_in_groups
    assert list(groups) == ["`paper`: holds; `joint`: not measured", "`paper`: fails; `joint`: not measured"]
    only = Study(from_results(alone, PARTS), PARTS[:2], ("paper",), "")
    assert list(only.claims_in_groups) == ["Hold in `paper`", "Do not hold"]  # what holds comes first
    assert sum(map(len, groups.values())) == len(apart.claims) == 11


@pytest.mark.parametrize("text", ["- {method: ccp}", "- {tried: a, methods: ccp}", "- text", "{"])
def test_a_wrong_file_of_what_was_tried_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tried.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"tried\.yaml"):
        read_tried(tmp_path / "tried.yaml")


def test_what_was_tried_in_this_repository_can_be_read(tmp_path: Path) -> None:
    assert isinstance(read_tried(Path(__file__).parent.parent / "results" / "tried.yaml"), list)
    assert read_tried(tmp_path / "none.yaml") == []


WIDTHS = (390, 1024, 1440)
MEASURE = """<script>addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => {
  const box = (element) => { const r = element.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const panels = [...document.querySelectorAll(".panel")].map((panel) => ({
    figure: box(panel.closest("figure")), panel: box(panel), drawn: panel.dataset.drawn,
    chart: box(panel.querySelector(".main-svg") || panel),
  }));
  const tables = [...document.querySelectorAll(".scroll")].map((box) => box.scrollWidth - box.clientWidth);
  const size = { width: innerWidth, scrolls: document.documentElement.scrollWidth, panels, tables };
  parent.postMessage(JSON.stringify(size), "*");
})));</script>"""
COLLECT = """<script>addEventListener("message", (event) => {
  document.body.appendChild(document.createElement("pre")).textContent = event.data;
});</script>"""
FRAME = "iframe { position: absolute; top: 0; left: 0; border: 0 }"  # in view: hidden frames are not animated
Box = list[float]


def in_a_browser(page: str, folder: Path) -> list[dict[str, Any]]:
    """What a page without a network measures of itself, in frames of several widths."""
    (folder / "report.html").write_text(page.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    frames = "".join(f'<iframe src="report.html" width="{width}" height="900"></iframe>' for width in WIDTHS)
    (folder / "frames.html").write_text(f"<body>{COLLECT}<style>{FRAME}</style>{frames}</body>")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    quiet = "--disable-component-update --proxy-server=127.0.0.1:9 --window-size=1500,1000 --enable-logging=stderr"
    words = [str(BROWSER), *flags.split(), *quiet.split(), f"--user-data-dir={folder / 'profile'}"]
    found: list[dict[str, Any]] = []
    # In ms of virtual time: on a busy machine they can be over before all plots are drawn.
    for budget in (20_000, 60_000, 120_000, 240_000):
        done = subprocess.run(
            [*words, f"--virtual-time-budget={budget}", "--dump-dom", (folder / "frames.html").as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "CONSOLE" not in done.stderr, done.stderr
        found = [json.loads(text) for text in re.findall(r"<pre>(.*?)</pre>", done.stdout)]
        if len(found) == len(WIDTHS):
            break
    return found


def overlap(one: Box, other: Box) -> bool:
    return all(min(one[i + 2], other[i + 2]) - max(one[i], other[i]) > 1 for i in (0, 1))


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; what the page holds is checked above")
def test_the_page_in_a_browser(study: Study, tmp_path: Path) -> None:
    """At every width, each chart fills its panel, stays inside its figure and covers no other; nothing scrolls."""
    sizes = in_a_browser(html(study), tmp_path)
    assert sorted(size["width"] for size in sizes) == list(WIDTHS)
    for size in sizes:
        panels = size["panels"]
        assert [panel["drawn"] for panel in panels] == ["yes"] * (5 * 2 * 2)  # sections, data sets, panels in each
        assert size["scrolls"] <= size["width"]
        assert size["width"] < 1024 or max(size["tables"]) == 0  # on a phone, a table may scroll in its own box
        for panel in panels:
            (left, _, right, _), (chart_left, _, chart_right, _) = panel["panel"], panel["chart"]
            assert chart_right - chart_left == pytest.approx(right - left, abs=1), size["width"]
            assert panel["figure"][0] <= chart_left < chart_right <= panel["figure"][2], size["width"]
        assert not [pair for pair in combinations((panel["chart"] for panel in panels), 2) if overlap(*pair)]
