"""The live table of a sweep."""

from io import StringIO

import pytest
from rich.console import Console

from onebyone import Dataset
from onebyone.cli.sweep_view import LiveTable
from onebyone.evaluation import Result
from onebyone.executors import Failed, Status
from onebyone.runs import RunConfig, run


@pytest.fixture(scope="module")
def result(few: Dataset) -> Result:
    return run(RunConfig(method="finetune", classes_per_task=10), data=few)


@pytest.mark.parametrize("ended", [0, 3, 40])
def test_the_live_table_fits_the_screen(ended: int, result: Result) -> None:
    now = 0.0
    view = LiveTable(clock=lambda: now)
    screen = Console(file=StringIO(), width=80, height=24)

    def lines() -> list[str]:
        with screen.capture() as shown:
            screen.print(view)
        return shown.get().splitlines()

    assert lines() == ["reading the data"]
    done = [f"er-cifar100-s1-m20-seed{n}-01234567" for n in range(ended)]
    view.planned(["supbyol-cifar100-s10-m100-seed11-76543210", "ccp", "er", "wild"], dict.fromkeys(done, result))
    assert lines()[-1] == f"{ended} of {ended + 4} finished"
    view.progressed("supbyol-cifar100-s10-m100-seed11-76543210", Status(1000, 100))
    view.progressed("ccp", Status(1000, 0))
    view.ended("wild", Failed("too fast"))
    now = 10.0
    view.progressed("ccp", Status(1000, 400, 0.25))
    shown = lines()
    assert len(shown) == min(ended, 18) + 5
    assert max(map(len, shown)) <= 80
    assert [line.split() for line in shown[-4:-1]] == [
        ["wild", "failed", "–", "–"],
        ["supbyol-cifar100-s10-m100-seed11-76543210", "running", "10", "%", "–"],
        ["ccp", "running", "40", "%", "25.0", "%"],
    ]
    known = 2000 + ended * result.samples
    left = 900 + 600 + known / (2 + ended)  # and one that waits
    seconds = round(left / 40)
    footer = f"{ended} of {ended + 4} finished, 1 failed, 40 samples/s, 0:{seconds // 60:02}:{seconds % 60:02} left"
    assert shown[-1] == footer
    view.ended("ccp", result)
    assert ["ccp", "finished", "100", "%"] in [line.split()[:4] for line in lines()]
