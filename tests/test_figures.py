"""The figures, from made-up records."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from made_up import made_study, results
from onebyone.paper.figures import (
    FIRST,
    KINDS,
    OWN_STYLES,
    STYLES,
    Scenario,
    bright,
    figures,
    save,
    title,
)
from onebyone.paper.printed import PARTS, TITLES, methods_of, quick
from onebyone.paper.records import Records, from_results
from onebyone.paper.report import Study


@pytest.fixture(scope="module")
def study() -> Study:
    return made_study()


def drawn(kind: str, records: Records, classes_per_task: int = 1) -> Any:
    axes = Figure().add_subplot()
    KINDS[kind](axes, records, Scenario("separate", PARTS[classes_per_task - 1], classes_per_task, 20))
    return axes


def test_there_is_a_panel_for_every_protocol_with_runs(study: Study) -> None:
    found = {name: panels for _, name, panels in figures(study.records, PARTS, ("printed", "separate", "joint"), True)}
    assert found.keys() == {
        f"{kind}-{where}" for kind in KINDS for where in ("cifar10-1", "cifar10-2", "cifar100-1", "cifar100-5")
    }
    panels = found["anytime-cifar10-1"]
    assert [panel.protocol for panel in panels] == ["separate", "joint"]  # none of printed
    assert {panel.memory_per_class for panel in panels} == {100}
    tables = {name: {panel.part.in_print for panel in panels} for name, panels in found.items()}
    assert (tables["tradeoff-cifar10-1"], tables["tradeoff-cifar10-2"]) == ({"table1"}, {"table2"})
    assert title("anytime", panels) == "Split CIFAR-10, one class per task, M = 100"
    others = {name for _, name, _ in figures(study.records, PARTS[:1], ("separate",), False)}
    assert others == {f"{kind}-cifar10-1-M{m}" for kind in ("anytime", "tradeoff") for m in (5, 20, 50)}
    assert not list(figures(Records(), PARTS, ("separate",), True))
    small = quick(PARTS[:1])[0]
    assert title("anytime", [Scenario("separate", small, 1, 20)]).endswith("M = 20 (quick: few images)")


def test_a_curve_is_the_mean_with_its_standard_deviation(study: Study) -> None:
    axes = drawn("anytime", study.records, 2)
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert lines.keys() == methods_of(2).keys()
    x, y = lines["er"].get_data()
    assert list(x) == [2, 4, 6, 8, 10]
    assert y[-1] == pytest.approx(40.3, abs=0.01)
    assert len(axes.collections) == 4  # bands
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert max(heights) <= 100.2


def test_four_methods_have_thick_lines() -> None:
    assert bright(["means", "er", "ccp"]) == ["means", "ccp", "er"]  # the method of a user comes first
    assert bright(methods_of(2)) == ["ccp", "er-ace", "er-aml", "supbyol"]
    assert set(FIRST) <= set(STYLES)


def test_the_paper_is_hollow(study: Study) -> None:
    lines = drawn("tradeoff", study.records).get_lines()
    hollow = [line for line in lines if line.get_fillstyle() == "none"]
    assert len(hollow) == 7  # all but iid
    assert [float(line.get_ydata()[0]) for line in hollow][-1] == 34.3


def test_a_method_without_a_memory_is_a_level(study: Study) -> None:
    axes = drawn("memory", study.records)
    points = {str(label): handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    assert points.keys() == methods_of(1).keys()
    assert points["iid"].get_ydata() == [63.4, 63.4]
    x, y = points["ccp"][0].get_data()
    assert list(x) == [0.154, 0.614, 1.536, 3.072]
    assert np.allclose(y, [15.2, 25.3, 27.0, 30.1])


def test_costs_are_relative_to_er(study: Study) -> None:
    axes = drawn("flops", study.records)
    assert {float(line.get_xdata()[0]) for line in axes.get_lines()} == {1.0}
    assert axes.get_xlabel().endswith("ER = 1")


def test_each_method_looks_the_same_everywhere_and_unlike_the_others() -> None:
    assert set(STYLES) == set(TITLES)
    colours, marks = zip(*STYLES.values(), *OWN_STYLES, strict=True)
    assert len(set(colours)) == len(set(marks)) == len(STYLES) + len(OWN_STYLES)


def test_the_same_records_give_the_same_bytes(study: Study, tmp_path: Path) -> None:
    for kind, name, panels in figures(study.records, PARTS[1:2], study.protocols, True):
        for folder in ("first", "second"):
            (tmp_path / folder).mkdir(exist_ok=True)
            save(kind, panels, study.records, tmp_path / folder / f"{name}.svg")
        first, second = ((tmp_path / folder / f"{name}.svg").read_text() for folder in ("first", "second"))
        assert first == second, kind
        ElementTree.fromstring(first)
        assert "Split CIFAR-10, 2 classes per task" in first
        assert not re.search(r"20\d\d-\d\d-\d\d", first)  # no date
        assert "SupBYOL" in first  # in the legend


def test_all_panels_have_the_scale_of_the_whole_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first panel has less to show than the others, and cuts nothing off."""
    made = results(PARTS[:1], ("separate",), ccp=-20) + results(PARTS[:1], ("joint",), ccp=40)
    found: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **_: (found.append(figure), path.touch()))
    ((kind, _, panels),) = (
        each
        for each in figures(from_results(made, PARTS), PARTS[:1], ("separate", "joint"), True)
        if each[0] == "tradeoff"
    )
    save(kind, panels, from_results(made, PARTS), tmp_path / "drawn.svg")
    first, second = found[0].axes
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] == 0
    assert first.get_ylim()[1] > 39.1 + 40
