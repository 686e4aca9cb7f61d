"""No change moves the result of a method unnoticed."""

import json
from pathlib import Path

import pytest

from golden import FILE, accuracy, line
from onebyone import methods

GOLDEN = json.loads(FILE.read_text())
CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


@pytest.mark.parametrize("name", methods())
def test_results_are_as_they_were(name: str) -> None:
    now = accuracy(name)
    assert now == pytest.approx(GOLDEN[name], abs=2), (
        f"{name} had {GOLDEN[name]} % and has {now:.2f} %; if that is meant, run: python tests/golden.py"
    )


def test_the_changelog_knows_them() -> None:
    assert line(GOLDEN) in CHANGELOG.read_text(), f'say in CHANGELOG.md why, with the words "{line(GOLDEN)}"'
    assert line(GOLDEN | {"er": GOLDEN["er"] + 3}) not in CHANGELOG.read_text()
