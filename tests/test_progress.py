"""The bars of a sweep on a terminal."""

from io import StringIO

import pytest
from rich.console import Console

from onebyone import Dataset
from onebyone.cli.progress import SweepBars
from onebyone.executors import Failed, Status
from onebyone.runs import RunConfig, run

LONG = "supbyol-cifar100-s10-m100-seed11-76543210"


def test_a_sweep_has_a_line_of_its_own_and_one_for_each_run_in_progress(
    few: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    result = run(RunConfig(method="finetune", classes_per_task=10), data=few)
    screen = Console(file=StringIO(), width=100, force_terminal=True)
    bars = SweepBars(screen)

    def lines() -> list[list[str]]:
        """The words on the screen, without spinners and bars."""
        plain = Console(file=StringIO(), width=100)
        with plain.capture() as shown:
            plain.print(bars.progress.get_renderable())
        assert max(map(len, shown.get().splitlines())) <= 100
        return [[word for word in line.split() if word[0].isalnum()] for line in shown.get().splitlines()]

    with bars:  # a thread draws them all the time
        assert lines()[0][:3] == ["reading", "the", "data"]
        bars.planned([LONG, "ccp", "er", "wild"], dict.fromkeys(["one", "two"], result))
        assert lines()[0][:4] == ["2", "of", "6", "finished"]
        bars.progressed(LONG, Status(1000, 100))
        bars.progressed("ccp", Status(1000, 0, node="a/1"))
        bars.ended("wild", Failed("too fast"))
        bars.progressed("ccp", Status(1000, 400, 0.25, node="a/1"))
        bars.progressed(LONG, Status(1000, 200, node="b/2"))
        total, first, second = lines()
        assert total[:6] == ["2", "of", "6", "finished,", "1", "failed"]
        assert total[6:8] == ["2", "nodes"]
        assert first[0] == LONG
        assert second[:2] == ["ccp", "a/1"]
        assert second[-2:] == ["accuracy", "25.0"]
        assert bars.progress.tasks[0].completed == pytest.approx(1.6)  # of four that waited
        bars.ended("ccp", result)
        assert len(lines()) == 2
        bars.stopping()
        assert lines()[0][0] == "stopping"
    said = capsys.readouterr().out.splitlines()
    assert said == ["[3/6] wild  failed: too fast", f"[4/6] ccp  accuracy {100 * result.accuracy:.1f} %"]
