"""The report as one page in a browser, on a phone and a laptop: nothing overflows, and all pictures are shown."""

from dataclasses import replace
from pathlib import Path

import pytest

from browsing import BROWSER
from made_up import made_study
from onebyone.paper.printed import PARTS
from onebyone.paper.report import publish

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here; test_report.py checks the content of the page"),
]
MEASURE = """() => ({
  scrolls: document.documentElement.scrollWidth,
  images: [...document.querySelectorAll("img")]
    .map((image) => [image.naturalWidth, image.getBoundingClientRect().width]),
  tables: [...document.querySelectorAll("div.scroll")].map((box) => box.scrollWidth - box.clientWidth),
})"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    publish(replace(made_study(), parts=PARTS[:1]), path)
    return path


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_overflows(page_file: Path, width: int) -> None:
    """And the page writes nothing to the console and asks for no other file."""
    from playwright.sync_api import sync_playwright  # the fast tests do without it

    said: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"], timeout=120_000)
        page = chromium.new_page(viewport={"width": width, "height": 844})
        page.set_default_timeout(120_000)  # ms; several tests share two cores
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url))
        page.goto(page_file.as_uri())
        size = page.evaluate(MEASURE)
        chromium.close()
    assert not [text for text in said if text != page_file.as_uri() and not text.startswith("data:")]
    assert size["scrolls"] <= width
    assert len(size["images"]) == 4
    assert all(natural > 0 and shown > 250 for natural, shown in size["images"])
    assert width < 1000 or max(size["tables"]) == 0  # on a phone, a table may scroll in its own box
