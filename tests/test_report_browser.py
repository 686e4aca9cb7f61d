"""The report page in a browser: nothing overflows or overlaps."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from made_up import made_study
from onebyone.paper.report import html

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
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
    """Measurements by the page itself, without a network, in frames of several widths."""
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


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here; test_report.py checks the content of the page")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """At every width, each chart fills its panel, stays inside its figure and covers no other; nothing scrolls."""
    study = made_study()
    sizes = in_a_browser(html(replace(study, without=study.records)), tmp_path)
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
