"""The page in a real browser, with a made-up camera, at the width of a phone and of a laptop."""

import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browsing import AXE, BROWSER, browser, circle, counts, draw, eventually, record, shown, violations
from onebyone import OnlineClassifier
from serving import Process, png

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here; test_serve_api.py tests what the page calls"),
]
WIDTHS = (390, 1280)
SCREENSHOTS = os.environ.get("SCREENSHOTS")  # for the documentation: SCREENSHOTS=docs
FOCUSED = "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim()"
DROP = """([target, content, name]) => {
  const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/png" }));
  const event = new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
  document.querySelector(target).dispatchEvent(event);
}"""


def stopped(process: Process) -> None:
    code, errors = process.stop()
    assert code == 0, errors
    assert "Traceback" not in errors


def screenshot(page: Any, name: str, when: Callable[[], bool]) -> None:
    """A picture for the documentation, without the note at the bottom, which goes after some seconds."""
    if SCREENSHOTS is not None:
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(4500)
        eventually(page, when)
        page.screenshot(path=Path(SCREENSHOTS) / name)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "state")
    yield process
    stopped(process)


@pytest.fixture
def digits_server(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path / "state", "--samples", "digits", "--size", "8", "--gray")
    yield process
    stopped(process)


@pytest.mark.parametrize("width", WIDTHS)
def test_teach_with_a_camera(server: Process, width: int, tmp_path: Path) -> None:
    """Two classes, answers, none of these, undo, rename, files, delete; and all is there after a reload."""
    with browser(server.address, tmp_path, width) as page:
        page.check("input[value=camera]", force=True)
        page.click("#start")
        eventually(page, lambda: page.evaluate("document.getElementById('video').videoWidth") > 0)
        for name in ("cup", "pen"):
            page.fill("#name", name)
            page.press("#name", "Enter")
            page.wait_for_selector(f"li[data-label={name}]")
        for name, scene in (("cup", "red"), ("pen", "blue"), ("cup", "red"), ("pen", "blue")):
            record(page, name, scene)
        page.locator("#verdict").scroll_into_view_if_needed()
        for scene, verdict in (("red", "cup"), ("blue", "pen"), ("green", "None of these")):
            eventually(
                page,
                lambda scene=scene, verdict=verdict: (  # type: ignore[misc]
                    shown(page) == scene and page.inner_text("#verdict").startswith(verdict)
                ),
            )
        assert "per second" in page.inner_text("#rate")
        screenshot(page, f"teach-{width}.png", lambda: page.inner_text("#verdict").startswith("cup"))

        before = counts(page)
        page.click("#undo")
        eventually(page, lambda: counts(page)["pen"] < before["pen"])
        assert counts(page)["cup"] == before["cup"]
        page.click("li[data-label=pen] .rename")
        page.fill("#ask-value", "stylo ✏️")
        page.press("#ask-value", "Enter")
        eventually(page, lambda: "stylo ✏️" in counts(page))

        image = png(np.full((20, 20, 3), 99, np.uint8))
        page.evaluate(DROP, ["li[data-label=cup]", base64.b64encode(image).decode(), "x.png"])
        eventually(page, lambda: counts(page)["cup"] == before["cup"] + 1)
        page.evaluate(DROP, ["#view", base64.b64encode(image).decode(), "y.png"])
        eventually(page, lambda: page.is_visible("#picture"))
        eventually(page, lambda: page.locator("#bars li").count() == 2)

        after = counts(page)
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert counts(page) == after
        assert page.locator("li[data-label=cup] .pictures img").count() == 6

        page.click("li[data-label=cup] .delete")
        page.click("#ask-yes")
        eventually(page, lambda: list(counts(page)) == ["stylo ✏️"])


@pytest.mark.parametrize("width", WIDTHS)
def test_draw_digits(digits_server: Process, width: int, tmp_path: Path) -> None:
    """Built-in digits, drawn digits, teaching by key, undo by key, download and merge."""
    with browser(digits_server.address, tmp_path, width, dark=True) as page:
        page.click("#try")
        eventually(page, lambda: counts(page) == {str(digit): 12 for digit in range(10)})
        drawings = {
            "0": [circle(wide=0.15)],
            "1": [[(0.42, 0.35), (0.52, 0.22), (0.52, 0.8)]],
            "7": [[(0.3, 0.25), (0.65, 0.25), (0.45, 0.8)]],
        }
        for _ in range(3):  # a person draws differently, and it learns that
            for digit, strokes in drawings.items():
                draw(page, *strokes)
                before = counts(page)[digit]
                page.keyboard.press(digit)
                eventually(page, lambda digit=digit, before=before: counts(page)[digit] == before + 1)  # type: ignore[misc]
        for digit, strokes in drawings.items():
            draw(page, *strokes)
            eventually(page, lambda digit=digit: page.inner_text("#verdict").startswith(digit))  # type: ignore[misc]
            page.click("#clear")
        draw(page, circle(0.35, 0.3, 0.09, 0.12), circle(0.7, 0.6, 0.12, 0.1))
        eventually(page, lambda: page.inner_text("#verdict").startswith("None of these"))
        screenshot(page, f"teach-digits-{width}.png", lambda: True)

        before = counts(page)
        page.keyboard.press("Control+z")
        eventually(page, lambda: sum(counts(page).values()) == sum(before.values()) - 1)
        page.click(".menu summary")
        with page.expect_download() as download:
            page.click("#download")
        download.value.save_as(tmp_path / "model")
        assert OnlineClassifier.load(tmp_path / "model").n_samples_seen_ == sum(counts(page).values())
        page.set_input_files("#model-file", tmp_path / "model")
        eventually(page, lambda: sum(counts(page).values()) == 2 * (sum(before.values()) - 1))
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_server_with_a_token_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-of-enough-letters")
    process = Process(tmp_path / "state", "--token-file", str(tmp_path / "token"))
    try:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
            page = chromium.new_page()
            page.goto(process.address)
            page.set_default_timeout(120_000)
            page.fill("#token", "wrong")
            with page.expect_response(lambda answer: answer.status == 401):
                page.click("#token-form button")
            page.wait_for_selector("#token-dialog[open]")
            page.fill("#token", "a-token-of-enough-letters")
            page.click("#token-form button")
            page.wait_for_selector("html[data-ready]")
            assert page.is_visible("#welcome")
            assert "token" not in page.url
            chromium.close()
    finally:
        stopped(process)


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core here; make test-slow installs it by npm")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing(server: Process, width: int, dark: bool, tmp_path: Path) -> None:
    with browser(server.address, tmp_path, width, dark) as page:
        assert violations(page) == []
        page.check("input[value=draw]", force=True)
        page.click("#try")
        eventually(page, lambda: len(counts(page)) == 3 and sum(counts(page).values()) == 36)
        draw(page, circle())
        eventually(page, lambda: page.locator("#bars li").count() == 3)
        assert violations(page) == []
        page.click("li[data-label=circle] .rename")
        assert violations(page) == []
        page.keyboard.press("Escape")
        page.click(".menu summary")
        assert violations(page) == []
        page.goto(f"{server.address}docs")
        page.wait_for_selector("article")
        described = json.loads(page.request.get(f"{server.address}openapi.json").text())
        assert page.locator("article").count() == len(described["paths"])
        assert violations(page) == []


def test_everything_can_be_done_by_keyboard(server: Process, tmp_path: Path) -> None:
    """Tab reaches every control, in the order of the page, and Enter and Space work."""
    with browser(server.address, tmp_path, 1280) as page:
        page.focus("#try")
        page.keyboard.press("Enter")
        eventually(page, lambda: len(counts(page)) == 3 and sum(counts(page).values()) == 36)
        reached = set()
        for _ in range(40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate(FOCUSED))
        wanted = {"Rename square", "Delete triangle", "Add files to circle"}
        assert wanted <= reached, reached
        assert any(each.startswith("Teach circle") for each in reached)
        draw(page, circle())
        page.focus("li[data-label=circle] .teach")
        page.keyboard.press("Space")
        eventually(page, lambda: counts(page)["circle"] == 13)
