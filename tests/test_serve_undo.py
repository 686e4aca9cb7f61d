"""Undo and forget: what was taught lately is kept in step with what the classifier knows."""

from pathlib import Path

import numpy as np

from onebyone.serve.operations import Operation
from onebyone.serve.service import Service
from serving import learn, state, vectors

X, Y = vectors(200)


def test_undo_is_exact_also_for_the_first_class_and_after_a_restart(tmp_path: Path) -> None:
    service = Service(tmp_path / "state")
    empty = state(service.model)
    learn(service, X[:1], Y[:1])
    service.submit(Operation("undo")).result(60)
    assert service.model.state is None
    assert state(service.model) == empty
    learn(service, X[:50], Y[:50])  # from then on, the units in which values are projected stay
    before = service.model.counts()
    moments = service.model.classifier._state.learner.moments.state_dict()  # type: ignore[union-attr, operator]
    moments = {name: tensor.clone() for name, tensor in moments.items()}
    learn(service, X[50:60], ["new"] * 10)
    service.close()
    service = Service(tmp_path / "state")
    assert service.submit(Operation("undo")).result(60)["labels"] == ["new"]
    assert service.model.counts() == before
    after = service.model.classifier._state.learner.moments.state_dict()  # type: ignore[union-attr, operator]
    for name in after.keys() - {"removed"}:  # up to which squares there may be rounding errors
        tensor = after[name]
        np.testing.assert_allclose(tensor, moments[name], rtol=1e-9, atol=1e-9)
    service.close()


def test_undo_forgets_one_teaching_even_if_two_are_equal(tmp_path: Path) -> None:
    service = Service(tmp_path / "state", "never")
    for label, row in (("first", 0), ("twice", 1), ("twice", 1)):
        learn(service, X[row : row + 1], [label])
    assert service.submit(Operation("undo")).result(60)["counts"] == {"first": 1, "twice": 1}
    assert service.submit(Operation("undo")).result(60)["counts"] == {"first": 1}
    service.close()


def test_a_class_that_was_taught_again_with_another_shape_can_be_saved(tmp_path: Path) -> None:
    service = Service(tmp_path / "state", "never", method="er")
    learn(service, X[:2], ["a", "b"])
    service.submit(Operation("forget", ("a",), X[2:3])).result(60)  # a network cannot know that it was never taught
    service.submit(Operation("forget-class", ("b",))).result(60)
    learn(service, np.ones((1, 7), np.float32), ["a"])
    expected = state(service.model)
    service.close()
    service = Service(tmp_path / "state")
    assert state(service.model) == expected
    service.close()
