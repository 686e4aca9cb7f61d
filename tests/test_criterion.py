"""The criterion against literal transcriptions: samples are removed, sums computed again, and matrices inverted."""

import pytest
import torch

from made_statistics import statistics
from onebyone.statistics import criterion
from onebyone.statistics.criterion import choose


def test_sets_of_features_are_added_class_by_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """One set tells the rows of a square of classes apart, the other set the columns, so the nearest differ."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(64).repeat(5)
    centres = 3 * torch.randn(8, 6, generator=generator, dtype=torch.float64)
    rows = centres[y // 8] + torch.randn(len(y), 6, generator=generator, dtype=torch.float64)
    columns = rows.view(5, 8, 8, 6).transpose(1, 2).flatten(0, 2)
    summaries = [statistics(part, y) for part in (rows, columns)]
    found = choose(summaries, [rows, columns], y)
    monkeypatch.setattr(criterion, "RIVALS", 64)
    for one, other in zip(found, choose(summaries, [rows, columns], y), strict=True):
        assert one.share == pytest.approx(other.share, abs=0.02)
        assert one.gain == pytest.approx(other.gain, rel=0.3)
