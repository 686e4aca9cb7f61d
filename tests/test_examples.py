"""The examples and the Python code of the README run."""

import ast
import json
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onebyone import Dataset

ROOT = Path(__file__).parent.parent


SLOW = {"export", "live", "own_images", "own_method", "resume"}  # several classifiers, lite0, a complete contract
EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
]
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TOLERANCE = 1.0  # another processor rounds differently; of 359 test digits, one is 0.28 %


def shown_output(page: Path) -> str:
    """The output that a tutorial says its example prints."""
    _, shown = page.read_text().split("## What you should see")
    (block,) = re.findall(r"```text\n(.*?)```", shown, re.DOTALL)
    return str(block)


def check_output(shown: str, printed: str) -> None:
    """Every line shown was printed, with the same words and nearly the same numbers; ``...`` stands for other lines."""

    def alike(line: str, other: str) -> bool:
        if NUMBER.sub("#", line) != NUMBER.sub("#", other):
            return False
        pairs = zip(NUMBER.findall(line), NUMBER.findall(other), strict=True)
        return all(abs(float(number) - float(found)) <= TOLERANCE for number, found in pairs)

    for line in shown.splitlines():
        found = line == "..." or any(alike(line, other) for other in printed.splitlines())
        assert found, f"the page shows {line!r}; printed was {printed!r}"


@pytest.mark.parametrize("path", EXAMPLES)
def test_an_example_prints_what_its_tutorial_shows(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])  # as if the script itself had been started
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert "%" in printed
    assert "False" not in printed  # some print whether a promise holds
    check_output(shown_output(ROOT / "docs" / "tutorials" / f"{path.stem}.md"), printed)


@pytest.mark.slow
def test_the_table_of_an_own_method_is_that_of_its_tutorial(onebyone: Callable[..., tuple[int, str, str]]) -> None:
    """By the command that the README gives, too."""
    page = (ROOT / "docs" / "tutorials" / "own_method.md").read_text()
    (command,) = re.findall(r"(?m)^onebyone (demo .*(?:\\\n.*)*)$", page)
    words = command.replace("\\\n", " ").split()
    assert f"\nonebyone {' '.join(words)}\n" in (ROOT / "README.md").read_text()
    code, out, err = onebyone(*(word.replace("examples/", f"{ROOT}/examples/") for word in words))
    assert (code, err) == (0, "")
    (shown,) = re.findall(r"```text\n(digits, .*?)```", page, re.DOTALL)
    check_output(shown, out)


@pytest.mark.slow
def test_the_readme_shows_what_demo_prints(onebyone: Callable[..., tuple[int, str, str]]) -> None:
    """Which is what `make demo` runs."""
    assert "\ndemo: $(DEMO_STAMP)\n\t$(BIN)/onebyone demo\n" in (ROOT / "Makefile").read_text()
    shown = (ROOT / "README.md").read_text().split("make demo ")[1].split("```text\n")[1].split("```")[0]
    assert len(shown.splitlines()) > 2
    check_output(shown, onebyone("demo")[1])


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code cells, one after another, in its own folder as Jupyter does; the last line of each is an expression."""
    monkeypatch.chdir(path.parent)
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    for cell in cells:
        *statements, shown = ast.parse("".join(cell["source"])).body
        assert isinstance(shown, ast.Expr)
        exec(compile(ast.Module(statements, []), path.name, "exec"), names)
        assert eval(compile(ast.Expression(shown.value), path.name, "eval"), names) is not None
        assert cell["outputs"] == []  # numbers that nobody compares would grow old
    assert len(cells) >= 4


def test_wrong_numbers_in_a_tutorial_are_found() -> None:
    check_output("...\ner  80.7 %\n", "finetune 1.0 %\ner  80.9 %\n")
    for printed in ("er  84.7 %", "ers  80.7 %", "er  80.7 % of 2", ""):
        with pytest.raises(AssertionError, match=r"the page shows 'er  80\.7 %'"):
            check_output("er  80.7 %", printed)


def test_the_python_code_of_the_readme_runs(digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # one of them saves its state
    live, learning = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found: dict[str, object] = {"images": digits.train_x, "labels": [f"digit {y}" for y in digits.train_y.tolist()]}
    exec(learning, found)
    assert 0.3 < float(found["accuracy"]) <= 1  # type: ignore[arg-type]
    exec(live, found)
    assert (tmp_path / "state").is_dir()
