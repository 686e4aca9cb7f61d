"""Partners for the incoming samples, from the memory and the batch. The value of a sample is its number."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onebyone.memory import Reservoir, Rows
from onebyone.methods.partners import draw_partners

CAPACITY = 4


def setting(stored: list[int], incoming: list[int]) -> tuple[Reservoir, Rows]:
    """A memory with samples 0, 1, ... and a batch with samples 100, 101, ... of these classes."""
    memory = Reservoir(CAPACITY, (1,), torch.int64)
    if stored:
        memory.add(torch.arange(len(stored))[:, None], torch.tensor(stored), torch.Generator())
    x, y = 100 + torch.arange(len(incoming))[:, None], torch.tensor(incoming)
    return memory, Rows(x, y, torch.ones(len(y)))


@given(
    st.lists(st.integers(0, 2), max_size=CAPACITY),
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_a_partner_is_allowed_and_is_never_the_sample_itself(
    stored: list[int], incoming: list[int], same: bool, seed: int
) -> None:
    """Without a candidate the weight is zero. Empty rows of the memory are never partners."""
    memory, batch = setting(stored, incoming)
    labels = torch.cat([memory.y[:-1], batch.y])  # empty rows have label 0
    allowed = (batch.y[:, None] == labels) == same
    rows = draw_partners(memory, batch, allowed, torch.Generator().manual_seed(seed))
    for i, label in enumerate(incoming):
        possible = {n: c for n, c in enumerate(stored) if (c == label) == same}
        possible |= {100 + p: c for p, c in enumerate(incoming) if p != i and (c == label) == same}
        assert bool(rows.weight[i]) == bool(possible)
        if possible:
            assert rows.weight[i] == 1
            assert rows.y[i] == possible[int(rows.x[i])]


@pytest.mark.parametrize(("stored", "expected"), [([1, 0, 1], {0, 2, 101, 103}), ([], {101, 103})])
def test_all_candidates_are_equally_likely(stored: list[int], expected: set[int]) -> None:
    memory, batch = setting(stored, [1, 1, 0, 1])
    generator, runs = torch.Generator().manual_seed(0), 1000
    allowed = batch.y[:, None] == torch.cat([memory.y[:-1], batch.y])
    drawn = Counter(int(draw_partners(memory, batch, allowed, generator).x[0]) for _ in range(runs))
    assert set(drawn) == expected
    share = runs / len(expected)
    assert all(abs(times - share) < 4 * share**0.5 for times in drawn.values())
