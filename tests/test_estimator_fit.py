"""``OnlineClassifier.fit``: what several epochs, and one task, mean for each method."""

from typing import Any

import numpy as np
import pytest
import torch

from onebyone import OnlineClassifier, methods
from onebyone.methods import ReplayOptions, method

NAMES = list(methods())
REPLAY = [name for name in NAMES if issubclass(method(name).options, ReplayOptions)]
KEPT = ("memory.", "counts", "moments.", "extractor.")  # what is stored or counted per sample


def kept(clf: OnlineClassifier) -> dict[str, Any]:
    assert clf._state is not None
    state = clf._state.learner.state_dict()
    return {name: tensor.tolist() for name, tensor in state.items() if any(part in name for part in KEPT)}


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, None) for name in NAMES] + [(name, {"memory_policy": "balanced"}) for name in REPLAY],
    ids=str,
)
@pytest.mark.parametrize("memory", ["6KB", "60KB"])
def test_later_epochs_store_and_count_nothing(name: str, options: Any, memory: str) -> None:
    """Memory and statistics are those of the first epoch, bit for bit; every sample is in them at most once."""
    x, y = np.random.default_rng(0).normal(size=(60, 4)), [0, 1, 2] * 20
    one, three = (OnlineClassifier(name, memory=memory, options=options, epochs=epochs).fit(x, y) for epochs in (1, 3))
    assert kept(three) == kept(one)
    assert three.n_samples_seen_ == 60
    assert three._state is not None
    for part in three._state.learner.modules():
        if hasattr(part, "memory"):
            rows = part.memory.x[:-1][part.memory.filled]
            assert len(torch.unique(rows, dim=0)) == len(rows) == min(60, part.memory.capacity)
