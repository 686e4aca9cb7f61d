"""``OnlineClassifier.fit``: what several epochs, and one task, mean for each method."""

from typing import Any

import numpy as np
import pytest
import torch

from classifiers import NAMES, REPLAY
from onebyone import OnlineClassifier
from onebyone.methods.icarl import ICaRL

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
    learnt = 60 - len(three._state.held_back)
    for part in three._state.learner.modules():
        if hasattr(part, "memory"):
            rows = part.memory.x[:-1][part.memory.filled]
            assert len(torch.unique(rows, dim=0)) == len(rows) == min(learnt, part.memory.capacity)


def icarl(clf: OnlineClassifier) -> ICaRL:
    assert clf._state is not None
    assert isinstance(clf._state.learner, ICaRL)
    return clf._state.learner


def test_all_classes_of_a_fit_are_one_task() -> None:
    """Shuffled samples of many classes contain no task boundary, so iCaRL has no teacher before a later class."""
    x, y = np.random.default_rng(0).normal(size=(300, 4)), [label % 6 for label in range(300)]
    clf = OnlineClassifier("icarl", memory=60, batch_size=2).fit(x, y)
    assert not icarl(clf).old.any()
    fitted = {name: tensor.clone() for name, tensor in icarl(clf).state_dict().items()}
    clf.partial_fit(x[:2], [6, 6])  # a new class begins the second task
    assert icarl(clf).old.nonzero().flatten().tolist() == list(range(6))
    taught = icarl(clf).teacher.state_dict()
    network = [name for name in fitted if name.startswith(("encoder.", "head."))]
    assert len(network) == len(taught)
    for name, tensor in zip(network, taught.values(), strict=True):
        assert torch.equal(fitted[name], tensor), f"{name} of the teacher is not that of the fitted network"


def test_a_fit_starts_without_the_boundaries_of_earlier_calls() -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 4)), [label // 10 for label in range(40)]
    clf = OnlineClassifier("icarl", memory=60).partial_fit(x, y)  # sorted: three boundaries
    assert icarl(clf).old.sum() == 3
    assert not icarl(clf.fit(x, y)).old.any()
