"""sample_weight: exact for statistics, in the loss for networks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from classifiers import NETWORKS, learner_of, state_of, units_of, vectors
from onebyone import Dataset, OnlineClassifier, UsageError, create
from onebyone.data import Spec
from onebyone.methods import ReplayOptions, method
from summing import registered

STATISTICS = ["sums", "patch-lda"]
X, Y = vectors(60)
few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True, scope="module")
def sums() -> Iterator[None]:
    with registered():
        yield


def weights_are_copies(name: str, seed: int) -> None:
    """A whole number is that many copies; 0 is none."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 4, len(X))
    weight[:3] = 1
    copies = np.repeat(np.arange(len(X)), weight)
    clf, expected = (OnlineClassifier(name, memory="20KB") for _ in range(2))
    with units_of(X):
        for part in np.array_split(np.arange(len(X)), rng.integers(1, 5)):
            clf.partial_fit(X[part], [Y[position] for position in part], sample_weight=weight[part])
        expected.partial_fit(X[copies], [Y[position] for position in copies])
    learner_of(clf).refresh()  # after calls of few samples, settings are those of fewer samples
    assert clf.classes_.tolist() == expected.classes_.tolist()
    assert clf.n_samples_seen_ == (weight > 0).sum()
    np.testing.assert_allclose(clf.decision_function(X), expected.decision_function(X), rtol=1e-6, atol=1e-6)
    assert (clf.predict(X) == expected.predict(X)).all()


@few
@given(st.sampled_from(STATISTICS), st.integers(0, 2**32 - 1))
def test_weights_are_copies(name: str, seed: int) -> None:
    weights_are_copies(name, seed)


@pytest.mark.slow
@many
@given(st.sampled_from(STATISTICS), st.integers(0, 2**32 - 1))
def test_weights_are_copies_200_times(name: str, seed: int) -> None:
    weights_are_copies(name, seed)


@pytest.mark.parametrize("name", ["sums", "er", "ccp"])
def test_weights_of_one_are_no_weights_and_zero_is_no_sample(name: str) -> None:
    """Bit for bit, in fit and partial_fit."""
    for verb in ("fit", "partial_fit"):
        plain, ones, zeros = (OnlineClassifier(name, memory=30) for _ in range(3))
        getattr(plain, verb)(X[:40], Y[:40])
        getattr(ones, verb)(X[:40], Y[:40], sample_weight=np.ones(40))
        getattr(zeros, verb)(X, [*Y[:40], *["other"] * 20], sample_weight=[1] * 40 + [0] * 20)
        assert state_of(plain) == state_of(ones) == state_of(zeros)
    zeros.partial_fit(X, Y, sample_weight=0)
    assert state_of(plain) == state_of(zeros)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_weight_multiplies_the_share_of_the_loss(digits: Dataset, name: str) -> None:
    """Gradients are linear in the weights: as the step is, for a loss on incoming samples alone."""
    options: dict[str, Any] = {"augment": False, "learning_rate": 1e-3, "encoder": "mlp"}
    if issubclass(method(name).options, ReplayOptions):
        options |= {"replay_weight": 0.0, "memory_samples": 20}
    x, y = digits.train_x[:8].float().flatten(1) / 255, digits.train_y[:8]
    spec = Spec((64,), 10, torch.float32)

    def moved(weight: Any) -> torch.Tensor:
        learner = create(name, spec, **options)
        learner.observe(x, y)  # a memory for methods that draw partners from it
        weights = [value for key, value in learner.named_parameters() if value.requires_grad]
        before = [value.detach().clone() for value in weights]
        learner.observe(x, y, None if weight is None else torch.tensor(weight, dtype=torch.float64))
        return torch.cat([(now.detach() - then).flatten() for now, then in zip(weights, before, strict=True)])

    plain = moved(None)
    torch.testing.assert_close(moved([2.0] * 8), 2 * plain, rtol=1e-2, atol=1e-6)
    if name == "er-aml":  # its mean is over the samples that found partners
        return
    first, second = moved([1.0] * 4 + [0.0] * 4), moved([0.0] * 4 + [1.0] * 4)
    if name != "ccp":  # half of its repulsion, which belongs to no sample, is in each
        torch.testing.assert_close(first + second, plain, rtol=1e-2, atol=1e-6)
    assert not torch.allclose(first, second, rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1.0] * 59, r"has shape \(59,\); give one number per sample"),
        (np.ones((60, 1)), "has shape"),
        ([-1.0] * 60, "below 0"),
        ([float("nan")] * 60, "not finite"),
        ("many", "must be numbers"),
        ([0] * 60, "zero for all samples"),
    ],
)
def test_bad_weights_are_refused(weight: Any, message: str) -> None:
    clf = OnlineClassifier("sums")
    with pytest.raises(UsageError, match=message):
        clf.partial_fit(X, Y, sample_weight=weight)
    assert not hasattr(clf, "classes_")


@pytest.mark.parametrize("name", ["patch-lda", "er"])
def test_weights_too_large_for_a_file_are_refused(name: str) -> None:
    clf = OnlineClassifier(name).partial_fit(X, Y)
    before = state_of(clf)
    with pytest.raises(UsageError, match=r"sample_weight has 1e\+15, and the largest allowed is 1e\+06"):
        clf.partial_fit(X, Y, sample_weight=np.full(60, 1e15))
    assert state_of(clf) == before


def test_a_report_that_small_weights_prevent_says_so() -> None:
    clf = OnlineClassifier().partial_fit(X, Y, sample_weight=np.full(60, 1 / 60))
    with pytest.raises(UsageError, match=r"total sample_weight of 2 or more \(the largest is 0\.\d+\); .* about 1$"):
        clf.report()
    with pytest.raises(UsageError, match="learn more samples"):
        OnlineClassifier().partial_fit(X[:1], Y[:1]).report()
    assert clf.partial_fit(X, Y).report().samples > 0


def test_small_weights_do_not_prevent_answers() -> None:
    clf = OnlineClassifier().partial_fit(X, Y, sample_weight=np.full(60, 1 / 60))
    assert (clf.predict(X) == Y).mean() > 0.8
    assert np.isfinite(clf.predict_proba(X)).all()
    assert np.isfinite(clf.typicality(X)).all()
