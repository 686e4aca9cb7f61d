"""Statistics and a network under one budget: each part is what it would be alone, and they answer together."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from classifiers import learner_of
from onebyone import Dataset, OnlineClassifier, Spec, UsageError, create
from onebyone.engine.static import blank_batch, shapes_only
from onebyone.methods import grown
from onebyone.methods.replay_learner import COSINES
from onebyone.methods.temperature import fitted_temperature, probabilities
from onebyone.runs import RunConfig, run
from onebyone.statistics.hybrid import Hybrid
from onebyone.testing.watch import NoValueReads

DIGITS, VECTORS = Spec((1, 8, 8), 10), Spec((20,), 4, torch.float32)


def make(spec: Spec, seed: int = 0, **options: Any) -> Hybrid:
    learner = create("hybrid", spec, seed=seed, **{"budget": 20_000} | options)
    assert isinstance(learner, Hybrid)
    return learner


def learn(learner: Any, x: Tensor, y: Tensor, size: int = 10) -> Any:
    for part, labels in zip(x.split(size), y.split(size), strict=True):
        assert learner.observe(part, labels).isfinite()
    return learner


def state(learner: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


# Bytes


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "reservoir"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("spec", [DIGITS, VECTORS, Spec((3, 20, 20), 100)], ids=str)
def test_a_budget_is_used_and_never_exceeded(spec: Spec, share: float, policy: str) -> None:
    for memory in (20, 117):
        budget = memory * spec.num_classes * spec.sample_bytes
        learner = make(spec, budget=budget, statistics_share=share, memory_policy=policy)
        assert learner.memory_bytes <= budget
        # The rest is less than a filter, or than a sample. Small budgets for vectors have no room for projections.
        assert learner.memory_bytes > (0.5 if spec is VECTORS else 0.8) * budget
        assert abs(learner.network.memory_bytes - (1 - share) * budget) < 0.05 * budget + 8 * spec.num_classes


def test_samples_of_each_class_stand_for_their_bytes(digits: Dataset) -> None:
    learner = create("hybrid", digits.spec, memory_per_class=30)
    assert learner.options.budget == 30 * 10 * 64 >= learner.memory_bytes
    assert create("hybrid", digits.spec, budget=30_000, memory_per_class=1).options.budget == 30_000
    for name in ("hybrid", "patch-lda"):
        result = run(RunConfig(method=name, memory_per_class=30, classes_per_task=5), data=digits)
        assert result.config["memory_per_class"] == 30
        assert 15_000 < result.cost.memory_bytes <= 30 * 10 * 64


def test_samples_may_be_given_as_a_number() -> None:
    learner = make(DIGITS, memory_samples=50, statistics_share=0.9)
    assert learner.network.memory.capacity == 50
    assert 0.85 * 20_000 < learner.memory_bytes <= 20_000


@pytest.mark.slow
@pytest.mark.parametrize("spec", [DIGITS, VECTORS], ids=str)
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_too_small_a_budget_is_refused_and_the_least_is_named(spec: Spec, share: float) -> None:
    said = []
    for budget in range(1, 15_000, 397):
        try:
            assert make(spec, budget=budget, statistics_share=share).memory_bytes <= budget
        except UsageError as error:
            said.append(str(error))
            pattern = rf"budget is {budget} bytes, .*(at least \d+|cannot store a first vector .*)"
            assert re.fullmatch(pattern, said[-1])
    assert 1 <= len(said) < 38  # and what is large enough was made


def test_the_least_number_of_bytes_for_a_sample_is_enough_for_one() -> None:
    with pytest.raises(UsageError, match=r"with statistics_share 0\.875 it must be at least 1216") as error:
        make(DIGITS, budget=1000, statistics_share=0.875)
    least = int(str(error.value).split()[-1])
    assert make(DIGITS, budget=least, statistics_share=0.875).network.memory.capacity == 1
    with pytest.raises(UsageError, match="holds none"):
        make(DIGITS, budget=least - 1, statistics_share=0.875)
    with pytest.raises(UsageError, match=r"samples take 2\d\d\d, and the rest is too little .* must be at least \d+"):
        make(DIGITS, budget=2500, memory_samples=30)


# Its parts


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_each_part_is_what_it_would_be_alone(digits: Dataset, kind: str) -> None:
    spec = digits.spec if kind == "images" else replace(digits.spec, shape=(64,))
    x, y = digits.train_x[:400].reshape(-1, *spec.shape), digits.train_y[:400]
    learner = learn(make(spec, seed=3), x, y)
    network = create("replay", spec, seed=3, memory_samples=learner.network.memory.capacity)
    rest = 20_000 - network.memory_bytes
    statistics = create("patch-lda", spec, seed=3, budget=rest)
    same(state(learner.network), state(learn(network, x, y)))
    same(state(learner.statistics), state(learn(statistics, x, y)))
    assert torch.equal(learner.counts, network.counts)
    assert torch.equal(learner.steps, network.steps)


@pytest.mark.slow
@pytest.mark.parametrize("samples", [0, 1, 30, 400])
def test_with_no_weight_the_statistics_answer_and_with_all_of_it_the_network(digits: Dataset, samples: int) -> None:
    x, y = digits.train_x[:samples], digits.train_y[:samples]
    alone = make(digits.spec, network_weight=0, statistics_share=0.95)
    if samples:
        learn(alone, x, y)
    assert torch.equal(alone.scores(digits.test_x), alone.statistics.scores(digits.test_x))
    for readout in ("ncm", "head", "adjusted"):
        network = make(digits.spec, network_weight=1e9, readout=readout)
        if samples:
            learn(network, x, y)
        assert torch.equal(network.predict(digits.test_x), network.network.predict(digits.test_x))


@pytest.mark.parametrize(("readout", "temperature"), [("ncm", COSINES), ("head", 1.0), ("adjusted", 1.0)])
def test_probabilities_are_multiplied(digits: Dataset, readout: str, temperature: float) -> None:
    """Those of the statistics, and those of the network to the power of its weight."""
    learner = learn(make(digits.spec, readout=readout, network_weight=0.7), digits.train_x[:400], digits.train_y[:400])
    statistics = learner.statistics.scores(digits.test_x).softmax(1)
    network = (learner.network.scores(digits.test_x).double() / temperature).softmax(1)
    product = statistics * network**0.7
    expected = product / product.sum(1, keepdim=True)
    torch.testing.assert_close(learner.scores(digits.test_x).softmax(1), expected, rtol=1e-4, atol=1e-9)


def test_how_frequent_a_class_is_counts_once(digits: Dataset) -> None:
    """Two classes of the same kind, one thirty times as frequent: only the head of a network counts that."""
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(900, generator=generator) < 30 / 31).long()
    x = digits.train_x[torch.randint(len(digits.train_x), (900,), generator=generator)]
    odds = {}
    for readout in ("adjusted", "head"):
        learner = learn(make(replace(digits.spec, num_classes=2), readout=readout, average=0.999), x, y)
        scores = learner.scores(digits.test_x)
        odds[readout] = float((scores[:, 1] - scores[:, 0]).median())
    assert odds["adjusted"] < odds["head"]
    assert odds["adjusted"] == pytest.approx(0, abs=1.5)


def test_a_class_without_a_sample_is_left_to_the_statistics(few: Dataset) -> None:
    learner = learn(make(few.spec, memory_samples=3, readout="ncm", network_weight=1), few.train_x, few.train_y)
    network = learner.network.scores(few.test_x)
    assert network.isfinite().sum(1).eq(3).all()
    scores = learner.scores(few.test_x)
    assert scores.isfinite().all()
    gone = ~network[0].isfinite()
    moved = scores[:, gone] - learner.statistics.scores(few.test_x)[:, gone]
    expected = network[:, ~gone].mean(1, keepdim=True).double() / COSINES
    torch.testing.assert_close(moved, expected.expand_as(moved), rtol=1e-5, atol=1e-5)


def test_a_network_that_has_diverged_is_not_hidden() -> None:
    rng, y = np.random.default_rng(0), np.arange(100) % 4
    clf = OnlineClassifier("hybrid", encoder="mlp")
    with pytest.raises(UsageError, match="training diverged"):  # when it happens, not when it is asked
        clf.partial_fit(1e4 * rng.normal(size=(100, 10)), y)


def test_unknown_vectors_are_found() -> None:
    """Which takes scores and typicality from the features of both parts, of different types."""
    rng, y = np.random.default_rng(0), np.arange(100) % 4
    x = rng.normal(size=(100, 5)) + 4 * y[:, None]
    clf = OnlineClassifier("hybrid").partial_fit(x, y)
    assert clf.predict(np.concatenate([x[:2], x[:1] + 1000]), unknown=-1).tolist() == [0, 1, -1]
    np.testing.assert_allclose(clf.examine(x).probabilities, clf.predict_proba(x), atol=1e-5)


def test_probabilities_are_those_of_statistics_until_there_are_20_predictions(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    y = np.arange(400) % 2
    x = (random.normal(size=(400, 3)) + y[:, None]).astype(np.float32)
    clf = OnlineClassifier("hybrid", memory="20KB", options={"network_weight": 0}).partial_fit(x[:18], y[:18])
    state = clf._fitted()
    assert isinstance(state.learner, Hybrid)
    statistics, samples = state.learner.statistics, torch.tensor(x[300:])
    alone = probabilities(statistics.scores(samples) / statistics.temperature())[:, :2]
    assert np.allclose(clf.predict_proba(x[300:]), alone, atol=1e-6)
    clf.export(tmp_path / "model.pt2")
    exported = torch.export.load(tmp_path / "model.pt2").module()(samples)[0]
    assert torch.allclose(exported.double(), alone.double(), atol=1e-6)
    for start in range(18, 300, 10):
        clf.partial_fit(x[start : start + 10], y[start : start + 10])
    state = clf._fitted()
    assert len(state.record.y) >= 20
    before, record = state.learner.temperature(), state.record
    temperature = fitted_temperature(before, record.scores.double(), record.y)
    assert temperature != pytest.approx(before, rel=0.01)
    scores = state.learner.scores(samples)[:, state.columns].double()
    assert np.allclose(clf.predict_proba(x[300:]), probabilities(scores / temperature), atol=1e-6)


def test_scores_are_made_of_features(digits: Dataset) -> None:
    """Which is what an exported classifier does."""
    learner = learn(make(digits.spec), digits.train_x[:400], digits.train_y[:400]).eval()
    with torch.no_grad():
        found = learner.readout()(learner.features(digits.test_x))
    torch.testing.assert_close(found, learner.scores(digits.test_x), rtol=1e-4, atol=1e-4)


# Its life


@pytest.mark.slow
@pytest.mark.parametrize("stop", [20, 200, 300])
def test_going_on_from_a_state_gives_the_same_bits(digits: Dataset, stop: int) -> None:
    x, y = digits.train_x[:400], digits.train_y[:400]
    whole = learn(make(digits.spec), x, y)
    assert whole.network.memory.filled.all()
    first, second = learn(make(digits.spec), x[:stop], y[:stop]), make(digits.spec, seed=1)
    second.load_state_dict(first.state_dict())
    learn(second, x[stop:], y[stop:])
    same(state(whole), state(second))
    assert torch.equal(whole.scores(digits.test_x), second.scores(digits.test_x))


@pytest.mark.slow
@pytest.mark.parametrize("samples", [0, 5, 300], ids=["nothing seen", "a few", "many"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (64,)], ids=["images", "vectors"])
def test_room_for_more_classes_costs_no_sample(digits: Dataset, shape: tuple[int, ...], samples: int) -> None:
    x, y = digits.train_x.reshape(-1, *shape), digits.train_y
    small = make(replace(digits.spec, shape=shape, num_classes=16))
    if samples:
        learn(small, x[:samples], y[:samples])
    before = state(small)
    larger = grown(small, 32)
    assert isinstance(larger, Hybrid)
    assert larger.memory_bytes <= 20_000
    for name in ("x", "y", "seen", "key"):
        assert torch.equal(larger.network.memory.get_buffer(name), small.network.memory.get_buffer(name)), name
    asked = digits.test_x.reshape(-1, *shape)
    assert torch.equal(larger.network.scores(asked)[:, :16], small.network.scores(asked))
    assert torch.equal(larger.statistics.scores(asked), grown_statistics(small).scores(asked))
    assert torch.equal(larger.counts[:16], small.counts)
    assert torch.equal(larger.steps, small.steps)
    for old, new in zip(small.generators, larger.generators, strict=True):
        assert torch.equal(old.get_state(), new.get_state())
    learn(larger, x[samples : samples + 300], y[samples : samples + 300] + 20)
    assert larger.memory_bytes <= 20_000
    assert larger.scores(asked).isfinite().any(0)[20:30].all()
    same(before, state(small))  # the old one is left as it was


def grown_statistics(small: Hybrid) -> Any:
    """With the bytes that are left when the network has its own."""
    rest = 20_000 - grown(small.network, 32).memory_bytes
    larger = create("patch-lda", replace(small.spec, num_classes=32), budget=rest)
    larger.take_over(small.statistics)
    return larger


def test_growing_keeps_the_budget_however_it_was_given(digits: Dataset) -> None:
    for name in ("hybrid", "patch-lda"):
        learner = learn(create(name, digits.spec, memory_per_class=30), digits.train_x[:250], digits.train_y[:250])
        assert grown(learner, 20).memory_bytes <= 30 * 10 * 64


def test_a_step_after_the_first_ones_is_static(digits: Dataset) -> None:
    learner = learn(make(digits.spec), digits.train_x[:300], digits.train_y[:300])
    with shapes_only(learner) as copy:
        assert copy.observe(*blank_batch(copy, 10)).shape == ()
    with NoValueReads():  # type: ignore[no-untyped-call]
        learner.observe(digits.train_x[:10], digits.train_y[:10])


def test_generators_are_those_of_its_parts(digits: Dataset) -> None:
    learner = make(digits.spec)
    parts = learner.generator, learner.network.generator, learner.statistics.generator
    assert {id(generator) for generator in learner.generators} == {id(generator) for generator in parts}
    assert create("er", digits.spec).generators[1:] == []


# Where it is used


@pytest.mark.slow
def test_a_classifier_has_one_memory_for_both(digits: Dataset, tmp_path: Path) -> None:
    x, y = digits.train_x[:300].numpy(), digits.train_y[:300].tolist()
    clf = OnlineClassifier("hybrid", memory="30KB").partial_fit(x, y)
    learner = clf._state.learner  # type: ignore[union-attr]
    assert 25_000 < learner.memory_bytes <= 30_000
    assert OnlineClassifier("hybrid", memory=400).partial_fit(x, y)._state.learner.options.budget == 400 * 64  # type: ignore[union-attr]
    clf.partial_fit(x[:40], list(range(40)))  # more classes than there was room for
    assert clf._state.learner.memory_bytes <= 30_000  # type: ignore[union-attr]
    clf.save(tmp_path / "file")
    other = OnlineClassifier.load(tmp_path / "file")
    np.testing.assert_array_equal(other.predict_proba(x), clf.predict_proba(x))


def test_fit_shows_the_network_a_sample_as_often_as_asked_and_the_statistics_once(digits: Dataset) -> None:
    x, y = digits.train_x[:300].numpy(), digits.train_y[:300].tolist()
    clf = OnlineClassifier("hybrid", memory="30KB", epochs=3, validation_fraction=0).fit(x, y)
    learner: Hybrid = clf._state.learner  # type: ignore[union-attr,assignment]
    assert int(learner.network.steps) == 3 * 30  # of 10 samples
    assert int(learner.network.counts.sum()) == 300
    assert int(learner.statistics.moments.weights.sum()) == clf.n_samples_seen_ == 300


@pytest.mark.slow
def test_a_run_on_digits(digits: Dataset, onebyone: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = onebyone("run", "--method", "hybrid", "--memory-per-class", 50, "--set", "statistics_share=0.8")
    assert (code, err) == (0, "")
    assert "result.json" in out
    result = run(RunConfig(method="hybrid", memory_per_class=50, options={"statistics_share": 0.8}), data=digits)
    assert result.accuracy > 0.95
    assert result.cost.memory_bytes <= 50 * 10 * 64


def test_the_first_reports_are_those_of_the_statistics(digits: Dataset) -> None:
    """The network cannot leave samples out, and predicts only some before it learns them."""
    clf = OnlineClassifier("hybrid", memory=2000, validation_fraction=0)
    clf.partial_fit(digits.train_x[:1], digits.train_y[:1])
    with pytest.raises(UsageError, match="there is nothing to report yet, because hybrid predicts samples before it"):
        clf.report()
    clf.partial_fit(digits.train_x[1:100], digits.train_y[1:100])
    early = clf.report()
    statistics = learner_of(clf).statistics
    found = statistics.left_out()
    assert early.source == "left out by the statistics"
    assert early.samples == len(found.y)
    assert early.accuracy == pytest.approx(float((found.scores.argmax(1) == found.y).double().mean()))
    assert "samples, left out by the statistics" in str(early)
    assert "without the network" in str(early)
    for start in range(100, 500, 10):
        clf.partial_fit(digits.train_x[start : start + 10], digits.train_y[start : start + 10])
    assert clf.report().source == "predicted before learnt"
    light = OnlineClassifier("hybrid").partial_fit(digits.train_x[:20], digits.train_y[:20], sample_weight=[0.01] * 20)
    with pytest.raises(UsageError, match="no class has a total sample_weight of 2 or more"):
        light.report()
