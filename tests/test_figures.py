"""Figures, as SVG and as PNG, from made-up records."""

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from made_up import made_study
from onebyone.paper.figures import (
    FIRST,
    KINDS,
    OWN_STYLES,
    STYLES,
    Heat,
    Line,
    Panel,
    against_bytes,
    bright,
    scenarios,
)
from onebyone.paper.pictures import save
from onebyone.paper.printed import PARTS, TITLES, methods_of
from onebyone.paper.study import Study
from onebyone.paper.svg import MARKS, standalone, svg


@pytest.fixture(scope="module")
def study() -> Study:
    return made_study()


def test_a_figure_has_four_methods_in_colour(study: Study) -> None:
    (row,) = (row for row in scenarios(PARTS, "cifar10", "separate") if row[0].memory_per_class == 20)
    for scenario, first in zip(
        row, (["ccp", "supbyol", "er", "iid"], ["ccp", "er-ace", "er-aml", "supbyol"]), strict=True
    ):
        drawn = ElementTree.fromstring(standalone(KINDS["anytime"](study.records, scenario), "A title"))
        groups = [group for group in drawn.iter() if group.get("data-method")]
        assert {group.get("data-method") for group in groups} == set(methods_of(scenario.classes_per_task))
        on = [group for group in groups if "data-on" in group.attrib]
        assert {group.get("data-method") for group in on} == set(first)
        assert on == groups[-4:]  # on top
        for group in groups:
            assert [element.text for element in group.iter() if element.tag.endswith("text")] == [
                TITLES[str(group.get("data-method"))]
            ]
    assert bright(["means", "er", "ccp"]) == ["means", "ccp", "er"]  # the method of a user comes first
    assert set(FIRST) <= set(STYLES)


def test_names_at_the_ends_of_lines_do_not_overlap() -> None:
    same = tuple(Line(name, "curve", (1.0, 2.0), (50.0, 0.2), (1.0, 1.0)) for name in STYLES)
    drawn = ElementTree.fromstring(standalone(Panel("", "x", "y", same), "A title"))
    groups = [group for group in drawn.iter() if group.get("data-method")]
    names = [element for group in groups for element in group.iter() if element.tag.endswith("text")]
    heights = sorted(float(name.attrib["y"]) for name in names)
    assert len(heights) == len(STYLES)
    assert min(high - low for low, high in pairwise(heights)) > 11.5  # the size of the font
    assert heights[-1] < 300


def test_the_paper_is_hollow_in_a_figure(study: Study) -> None:
    (row,) = (row for row in scenarios(PARTS, "cifar10", "separate") if row[0].memory_per_class == 20)
    drawn = svg(KINDS["tradeoff"](study.records, row[0]))
    assert drawn.count('class="hollow"') == 7  # all but iid
    assert "CCP 25.3, paper 34.3" in drawn


def test_a_curve_is_the_mean_with_its_standard_deviation(study: Study) -> None:
    (row,) = (row for row in scenarios(PARTS, "cifar10", "separate") if row[0].memory_per_class == 20)
    panel = KINDS["anytime"](study.records, row[1])
    assert isinstance(panel, Panel)
    line = next(line for line in panel.lines if line.method == "er")
    assert line.x == (2, 4, 6, 8, 10)
    assert line.y[-1] == pytest.approx(40.3)
    assert line.std[-1] == pytest.approx(0.1)
    memory = against_bytes(study.records, [row[0] for row in scenarios(PARTS, "cifar10", "separate")])
    kinds = {line.method: (line.kind, len(line.x)) for line in memory.lines}
    assert kinds["iid"][0] == kinds["finetune"][0] == "level"
    assert kinds["ccp"] == ("points", 4)
    heat = KINDS["classes"](study.records, row[0])
    assert isinstance(heat, Heat)
    assert heat.columns[0] == "airplane"
    assert len(heat.values) == len(heat.rows) == 8


def test_each_method_looks_the_same_everywhere_and_unlike_the_others() -> None:
    assert set(STYLES) == set(TITLES)
    colours, marks = zip(*STYLES.values(), *OWN_STYLES, strict=True)
    assert len(set(colours)) == len(set(marks)) == len(STYLES) + len(OWN_STYLES)
    assert set(MARKS) == set(marks)


def test_figures_as_png_and_svg(study: Study, tmp_path: Path) -> None:
    rows = scenarios(PARTS, "cifar10", "separate")[1:2]
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
