"""Helpers of the tests of the page: a browser with a made-up camera, and what it must never do."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from playwright.sync_api import Page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ROOT = Path(__file__).parent.parent
AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
SCENES = ("red", "blue", "green")
HEIGHT, WIDTH, SECONDS, RATE = 240, 320, 5, 10  # of the video; each scene lasts some seconds


def scene(name: str, step: int) -> Any:
    """[height, width, 3] a picture that moves a little: a red disc, blue stripes, or green noise."""
    random = np.random.default_rng(step)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    shift = 6 * np.sin(step / 3), 6 * np.cos(step / 4)
    image = np.full((HEIGHT, WIDTH, 3), 200.0)
    if name == "red":
        inside = np.hypot(x - 160 - shift[0], y - 120 - shift[1]) < 70
        image[inside] = (210, 40, 40)
    elif name == "blue":
        image[((x + y + 4 * shift[0]) // 30) % 2 < 1] = (40, 60, 210)
        image[100:140, 140:180] = (40, 60, 210)
    else:
        image = np.kron(random.uniform(0, 255, (HEIGHT // 8, WIDTH // 8, 1)), np.ones((8, 8, 1))) * (0.3, 1, 0.3)
        image[100:140, 140:180] = (40, 220, 40)
    return np.clip(image + random.normal(0, 4, image.shape), 0, 255)


def write_video(path: Path) -> None:
    """A video in Y4M with the scenes one after the other, for the camera of the browser."""
    with path.open("wb") as file:
        file.write(b"YUV4MPEG2 W%d H%d F%d:1 Ip A1:1 C420\n" % (WIDTH, HEIGHT, RATE))
        for name in SCENES:
            for step in range(SECONDS * RATE):
                red, green, blue = np.moveaxis(scene(name, step), 2, 0)
                luma = 16 + 0.257 * red + 0.504 * green + 0.098 * blue
                first = 128 - 0.148 * red - 0.291 * green + 0.439 * blue
                second = 128 + 0.439 * red - 0.368 * green - 0.071 * blue
                file.write(
                    b"FRAME\n"
                    + b"".join(p.round().astype(np.uint8).tobytes() for p in (luma, first[::2, ::2], second[::2, ::2]))
                )


LOOK = """() => {
  const video = document.getElementById("video");
  const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  const context = canvas.getContext("2d");
  context.drawImage(video, video.videoWidth / 2 - 4, video.videoHeight / 2 - 4, 8, 8, 0, 0, 8, 8);
  return [...context.getImageData(4, 4, 1, 1).data];
}"""


def shown(page: Page) -> str:
    """The scene that the camera shows."""
    return ("red", "green", "blue")[int(np.argmax(page.evaluate(LOOK)[:3]))]


def wait_for_scene(page: Page, name: str) -> None:
    """Wait until the camera begins to show a scene."""
    eventually(page, lambda: shown(page) != name)
    eventually(page, lambda: shown(page) == name)


def record(page: Page, label: str, scene: str) -> None:
    """Hold the button of a class while the camera shows a scene, again until there are a few more samples."""
    page.locator(f"li[data-label={label}] .teach").scroll_into_view_if_needed()
    enough = counts(page)[label] + 4
    while (before := counts(page)[label]) < enough:
        wait_for_scene(page, scene)
        page.locator(f"li[data-label={label}] .teach").hover()
        page.mouse.down()
        page.wait_for_timeout(1500)  # as a person holds it; a busy machine records fewer pictures
        page.mouse.up()
        eventually(page, lambda before=before: counts(page)[label] > before)  # type: ignore[misc]


@contextmanager
def browser(address: str, folder: Path, width: int, dark: bool = False) -> Iterator[Page]:
    """A page of the browser. At the end, it has written nothing to the console and asked no other host."""
    from playwright.sync_api import sync_playwright  # the fast tests do without it

    video = folder / "camera.y4m"
    if not video.exists():
        write_video(video)
    flags = ["--no-sandbox", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    flags.append(f"--use-file-for-fake-video-capture={video}")
    said: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=flags)
        context = chromium.new_context(
            viewport={"width": width, "height": 900 if width > 500 else 844},
            color_scheme="dark" if dark else "light",
            has_touch=width < 500,
        )
        page = context.new_page()
        page.set_default_timeout(120_000)  # ms; several tests share two cores
        page.on("console", lambda message: said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: said.append(f"request: {request.url}") if foreign(request.url) else None)

        def foreign(url: str) -> bool:
            return not url.startswith((address, "data:", f"blob:{address}"))

        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        yield page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        chromium.close()
    assert not said, said


def draw(page: Page, *strokes: list[tuple[float, float]]) -> None:
    """Draw strokes on the pad; points are shares of its side."""
    page.locator("#pad").scroll_into_view_if_needed()
    box = page.locator("#pad").bounding_box()
    assert box is not None
    for stroke in strokes:
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place)
        page.mouse.up()


def circle(x: float = 0.5, y: float = 0.5, wide: float = 0.25, high: float = 0.25) -> list[tuple[float, float]]:
    angles = [2 * math.pi * step / 30 for step in range(31)]
    return [(x + wide * math.sin(angle), y - high * math.cos(angle)) for angle in angles]


CARDS = """() => Object.fromEntries([...document.querySelectorAll("#cards > li")].map(
  (card) => [card.querySelector("h3").textContent, card.querySelector(".count").textContent]))"""


def counts(page: Page) -> dict[str, int]:
    """The numbers of samples on the cards."""
    found: dict[str, str] = page.evaluate(CARDS)
    return {label: int(text.split()[0].replace(",", "")) for label, text in found.items()}


def eventually(page: Page, what: Callable[[], bool], seconds: float = 60.0) -> None:
    for _ in range(int(seconds * 10)):
        if what():
            return
        page.wait_for_timeout(100)
    assert what()


def violations(page: Page) -> list[str]:
    """What axe-core finds that is serious or critical."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run()")["violations"]
    return [
        f"{each['id']}: {[node['html'][:120] for node in each['nodes']]}"
        for each in found
        if each["impact"] in ("serious", "critical", "moderate")
    ]
