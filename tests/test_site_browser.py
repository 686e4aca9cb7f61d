"""The built site: no warning, no dead link, no page wider than the screen, and a search that works from disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from browsing import BROWSER

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
WIDTHS = (390, 1280)
WAIT = 120_000  # ms, the longest wait for a condition; several tests share two cores
pytestmark = pytest.mark.slow
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
# Elements that are wider than the screen and do not scroll in a box of their own, to be named if a page is too wide.
WIDEST = """(width) => [...document.querySelectorAll("article *")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.right > width + 1;
}).slice(0, 3).map((element) => element.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


class Links(HTMLParser):
    """What a page refers to, and the places in it that others can refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def test_no_link_is_dead(site: Path) -> None:
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 40
    dead = []
    for path, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or path.name == "404.html":  # served from any folder
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not file.is_file() or (place and file in pages and place not in pages[file].places):
                dead.append(f"{path.relative_to(site)}: {target}")
    assert not dead


def test_the_reference_shows_each_parameter_with_its_own_type(site: Path) -> None:
    """Some are described together; the docstring's tool would show all of them with the type of the first."""
    text = re.sub(r"<[^>]+>", "", (site / "reference" / "streams.html").read_text())
    assert re.search(r"\by\s+\(Tensor\)\s+–", text)
    assert re.search(r"\bnum_classes\s+\(int\)\s+–", text)
    assert "Raises:" in text


def opened(chromium: Browser, address: str, width: int) -> Page:
    context = chromium.new_context(viewport={"width": width, "height": 844}, has_touch=width < 500)
    page = context.new_page()
    page.set_default_timeout(WAIT)
    page.goto(address)
    return page


@needs_browser
def test_no_page_is_wider_than_the_screen(site: Path, chromium: Browser) -> None:
    page = opened(chromium, "about:blank", WIDTHS[0])
    wide = []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 844})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wide.append((path.relative_to(site).as_posix(), width, page.evaluate(WIDEST, width)))
    assert not wide
    page.context.close()


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("keys", [True, False], ids=["typed", "pasted"])
def test_the_search_works_from_disk(width: int, keys: bool, site: Path, chromium: Browser) -> None:
    page = opened(chromium, (site / "index.html").as_uri(), width)
    if width < 960:
        page.locator("label[for=__search]").first.click()  # on a phone, the field is behind an icon
    field = page.locator(".md-search__input")
    field.click()
    # Once the index is read, the message of an empty field is replaced.
    page.wait_for_function("document.querySelector('.md-search-result__meta').textContent.includes('Type')")
    if keys:
        field.press_sequentially("reservoir")
    else:
        field.fill("reservoir")
    page.wait_for_selector(".md-search-result__item")
    assert "eservoir" in page.locator(".md-search-result__list").inner_text()
    page.context.close()


@needs_browser
def test_a_page_that_is_too_wide_is_found(tmp_path: Path, chromium: Browser) -> None:
    (tmp_path / "wide.html").write_text("<article><div style='width: 900px'>wide</div></article>")
    page = opened(chromium, (tmp_path / "wide.html").as_uri(), 390)
    assert page.evaluate("document.documentElement.scrollWidth") > 390
    assert "wide" in page.evaluate(WIDEST, 390)[0]
    page.context.close()
