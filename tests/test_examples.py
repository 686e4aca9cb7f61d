"""What people copy first has to run: the examples, and the Python in the README."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from onebyone import Dataset
from onebyone.methods import registry

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _same_methods_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))  # an example registers one of its own


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_example_runs(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])  # as if it were called, and not pytest
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert "%" in said
    assert "False" not in said  # some say whether what they promise holds
    _, shown = (ROOT / "docs" / "tutorials" / f"{path.stem}.md").read_text().split("## What you should see")
    (block,) = re.findall(r"```text\n(.*?)```", shown, re.DOTALL)
    for line in block.splitlines():
        assert line == "..." or but_for_digits(line) in but_for_digits(said)


def but_for_digits(text: str) -> str:
    """Another machine may round otherwise."""
    return re.sub(r"\d+", "0", text)


def test_readme_runs(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # one of them saves what it learns
    learning, live = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found: dict[str, object] = {"images": digits.train_x, "labels": [f"digit {y}" for y in digits.train_y.tolist()]}
    exec(learning, found)
    assert 0.3 < float(found["accuracy"]) <= 1  # type: ignore[arg-type]
    exec(live, found)
    assert (tmp_path / "state").is_dir()
