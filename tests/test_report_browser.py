"""The report page in a browser, on a phone and a laptop, in light and dark: nothing overflows or overlaps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browsing import BROWSER
from made_up import made_study
from onebyone.paper.report import html

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here; test_report.py checks the content of the page"),
]
MEASURE = """() => {
  const all = (query) => [...document.querySelectorAll(query)];
  const box = (element) => { const r = element.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const shown = (element) => element.getClientRects().length > 0;
  return {
    scrolls: document.documentElement.scrollWidth,
    tables: all(".scroll").map((box) => box.scrollWidth - box.clientWidth),
    figures: all(".panels svg").filter(shown).map((svg) => [box(svg), box(svg.closest("figure"))]),
    outside: all(".panels svg text").filter(shown)
      .map((text) => [text.textContent, box(text), box(text.closest("svg"))])
      .filter(([, inner, outer]) => inner[0] < outer[0] - 1 || inner[2] > outer[2] + 1 || inner[3] > outer[3] + 1)
      .map(([text]) => text),
    background: getComputedStyle(document.body).backgroundColor,
  };
}"""
IN_COLOUR = "[...document.querySelectorAll('.m.on')].map((line) => line.dataset.method)"
Box = list[float]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = made_study()
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html(replace(study, without=study.records)), encoding="utf-8")
    return path


@contextmanager
def opened(file: Path, width: int, dark: bool = False) -> Iterator["Page"]:
    """The page. At the end, it has written nothing to the console and asked for no other file."""
    from playwright.sync_api import sync_playwright  # the fast tests do without it

    said: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=120_000)
        scheme: Any = "dark" if dark else "light"
        page = chromium.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.set_default_timeout(120_000)  # ms; several tests share two cores
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        yield page
        chromium.close()
    assert not [text for text in said if text != "data:,"], said


def overlap(one: Box, other: Box) -> bool:
    return all(min(one[i + 2], other[i + 2]) - max(one[i], other[i]) > 1 for i in (0, 1))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overflows(page_file: Path, width: int, dark: bool) -> None:
    with opened(page_file, width, dark) as page:
        sections = page.locator("details.section")
        unfolded = page.locator("details.section[open]").count()
        assert unfolded == (0 if width < 700 else sections.count())  # folded on a phone
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        size = page.evaluate(MEASURE)
    assert size["scrolls"] <= width
    assert width < 1000 or max(size["tables"]) == 0  # on a phone, a table may scroll in its own box
    assert len(size["figures"]) == 5 * 2 * 2  # sections, data sets, panels in each
    assert not size["outside"]
    for drawn, figure in size["figures"]:
        assert drawn[2] - drawn[0] > 300
        assert figure[0] <= drawn[0] < drawn[2] <= figure[2]
    assert not [pair for pair in combinations((drawn for drawn, _ in size["figures"]), 2) if overlap(*pair)]
    assert size["background"] == ("rgb(23, 25, 29)" if dark else "rgb(251, 250, 247)")


def test_what_a_reader_can_choose(page_file: Path) -> None:
    with opened(page_file, 390) as page:
        page.click("nav a[href='#anytime']")
        page.wait_for_selector("#anytime[open]")
        figure = page.locator("figure[data-section=anytime][data-dataset=cifar10]")
        for name, value in (("protocol", "joint"), ("memory", "M = 20")):
            figure.locator(f"[data-choice={name}] [data-value='{value}']").click()
        shown = [panels for panels in figure.locator(".panels").all() if panels.is_visible()]
        assert [(p.get_attribute("data-protocol"), p.get_attribute("data-memory")) for p in shown] == [
            ("joint", "M = 20")
        ]
        in_colour = (
            "() => [...new Set([...document.querySelectorAll('.m.on')].map((line) => line.dataset.method))].sort()"
        )
        first = page.evaluate(in_colour)
        page.click(".legend [data-method=icarl]")
        assert page.evaluate(in_colour) == ["icarl"]
        page.click(".legend [data-method=icarl]")
        assert page.evaluate(in_colour) == first
