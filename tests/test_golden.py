"""No change alters the result of a method unnoticed."""

import json
from pathlib import Path

import pytest

from golden import FILE, SAME, accuracy, line
from onebyone import methods

GOLDEN = json.loads(FILE.read_text())
CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


@pytest.mark.parametrize("name", methods())
def test_results_equal_the_golden_ones(name: str) -> None:
    now = accuracy(name)
    golden = GOLDEN[SAME.get(name, name)]
    assert now == pytest.approx(golden, abs=2), (
        f"{name} had {golden} % and has {now:.2f} %; if that is meant, run: python tests/golden.py"
    )


def test_the_changelog_names_the_golden_results() -> None:
    assert line(GOLDEN) in CHANGELOG.read_text(), f'say in CHANGELOG.md why, with the words "{line(GOLDEN)}"'
    assert line(GOLDEN | {"er": GOLDEN["er"] + 3}) not in CHANGELOG.read_text()
