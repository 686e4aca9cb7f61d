"""`patch-lda` with vectors that are too long for statistics of all their values."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from made_statistics import learn, make
from onebyone import OnlineClassifier, Spec
from onebyone.methods import grown
from onebyone.statistics.features import Directions
from onebyone.statistics.patch_lda import PatchLDA
from test_estimator_export import run_exported


def clusters(size: int = 200) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) // 2 % 4
    means = torch.randn(4, size, generator=generator) * (16 / size) ** 0.5
    return torch.randn(600, size, generator=generator) + means[y], y


@settings(max_examples=30, deadline=None)
@given(size=st.integers(2, 300), share=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
def test_every_value_is_in_one_feature_and_features_have_equally_many_values(
    size: int, share: float, seed: int
) -> None:
    count = max(1, int(share * size))
    directions = Directions((size,), count, raw=False)
    directions.fit(seed)
    matrix = directions(torch.eye(size))  # [values, features]
    assert matrix.shape == (size, count)
    assert torch.equal(matrix.abs().sum(1), torch.ones(size, dtype=torch.float64))
    per_feature = matrix.abs().sum(0)
    assert per_feature.max() - per_feature.min() <= 1
    x = torch.randn(5, size, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(directions(x), x.double() @ matrix, rtol=1e-12, atol=1e-12)


def test_nearly_all_bytes_are_statistics_and_few_values_are_lost() -> None:
    """With a budget a little too small for all values, the accuracy is nearly that of a sufficient one."""
    x, y = clusters()
    right = {}
    for budget in (170_000, 250_000):
        learner = learn(make(Spec((200,), 4, torch.float32), budget=budget), x[::2], y[::2])
        assert learner.raw == (budget == 250_000)
        assert 0.97 * budget < learner.memory_bytes <= budget
        right[budget] = float((learner.predict(x[1::2]) == y[1::2]).float().mean())
    assert right[170_000] > max(0.9 * right[250_000], 0.8)


def test_room_for_more_classes_drops_features_and_keeps_the_others() -> None:
    x, y = clusters()
    learner = learn(make(Spec((200,), 4, torch.float32), budget=60_000), x, y)
    larger = grown(learner, 20)
    assert isinstance(larger, PatchLDA)
    width = larger.moments.width
    assert 0 < width < learner.moments.width
    assert torch.equal(larger.features(x), learner.features(x)[:, :width])
    expected = learner.moments.scatter()[:width, :width]
    torch.testing.assert_close(larger.moments.scatter(), expected, rtol=1e-9, atol=1e-9)
    learn(larger, x, y)
    assert larger.moments.weights[:4].tolist() == [300.0] * 4


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("name", ["file.onnx", "file.pt2"])
def test_a_saved_and_an_exported_classifier_answer_the_same(tmp_path: Path, name: str) -> None:
    x, y = (values.numpy() for values in clusters())
    clf = OnlineClassifier("patch-lda", memory="80KB").partial_fit(x, y)
    clf.save(tmp_path / "saved")
    np.testing.assert_array_equal(OnlineClassifier.load(tmp_path / "saved").predict_proba(x), clf.predict_proba(x))
    clf.export(tmp_path / name)
    probabilities, _, _ = run_exported(tmp_path / name, x)
    np.testing.assert_allclose(probabilities, clf.predict_proba(x), atol=1e-4)
