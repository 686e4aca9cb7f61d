"""An exported file gives the probabilities of the classifier, and holds nothing that they do not need."""

import importlib.util
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from classifiers import vectors
from onebyone import Dataset, OnlineClassifier, UsageError
from onebyone.estimator.labels import from_json
from onebyone.estimator.predictor import REGISTRATION
from tiers import mostly_slow


def run_exported(path: Path, x: Any) -> tuple[Any, Any, dict[str, Any]]:
    """Probabilities, typicality and texts of an exported file, as another program would get them."""
    names = ("classes", "temperature", "unknown_threshold")
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path)
        texts = session.get_modelmeta().custom_metadata_map
        probabilities, typicality = session.run(["probabilities", "typicality"], {"samples": x})
    else:
        extra = {f"{name}.json": "" for name in names}
        program = torch.export.load(path, extra_files=extra)
        texts = {name: extra[f"{name}.json"] for name in names}
        probabilities, typicality = (output.numpy() for output in program.module()(torch.from_numpy(x)))
    found = {name: json.loads(texts[name]) for name in names}
    return probabilities, typicality, found | {"classes": [from_json(label) for label in found["classes"]]}


def bytes_of(kind: str, digits: Dataset) -> Any:
    images = digits.train_x[:60].numpy()
    match kind:
        case "gray":
            return images[:, 0]
        case "last":
            return images.repeat(3, axis=1).transpose(0, 2, 3, 1).copy()
        case _:
            return images.reshape(60, -1).astype(np.float32)


# A trained head, prototypes and class means; every layout; a class that was announced and never came.
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("auto", "gray", {}),
    ("auto", "vector", {}),
    ("auto", "last", {}),
    ("ccp", "gray", {}),
    ("er", "vector", {"freeze_encoder": True}),
    ("icarl", "last", {}),
    ("hybrid", "vector", {}),
]


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("ending", ["onnx", "pt2"])
@pytest.mark.parametrize(
    ("name", "kind", "parameters"), mostly_slow(CASES, fast=[("ccp", "gray", {}), ("auto", "vector", {})]), ids=str
)
def test_exported_models_give_the_same_probabilities(
    digits: Dataset, name: str, kind: str, parameters: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    x, y = bytes_of(kind, digits), [("digit", label) for label in digits.train_y[:60].tolist()]
    clf = OnlineClassifier(name, memory=5000, **parameters).partial_fit(x, y, classes=[("digit", 99)])
    clf.set_params(prior="counts", unknown_rate=0.2)
    before, typical, doubted = clf.predict_proba(x), clf.typicality(x), clf.predict(x, unknown="?")
    path = tmp_path / f"model.{ending}"
    clf.export(path)
    for count in (1, 2, 7, 60):
        probabilities, typicality, texts = run_exported(path, x[:count])
        np.testing.assert_allclose(probabilities, before[:count], atol=1e-4)
        np.testing.assert_allclose(typicality, typical[:count], rtol=1e-4, atol=1e-4)
    classes, threshold = texts["classes"], texts["unknown_threshold"]
    assert classes == clf.classes_.tolist()
    if threshold is None:  # too few predictions
        assert "?" not in doubted.tolist()
    else:
        clear = np.abs(typical - threshold) > 1e-3 * np.abs(typical)
        assert ((typicality < threshold) == np.array([label == "?" for label in doubted]))[clear].all()
    assert [classes[best] for best in probabilities.argmax(1)] == clf.predict(x).tolist()
    # The memory stays at home. Typicality needs a matrix as large as all statistics, and of vectors one more.
    if clf.method_ != "patch-lda" and (clf.method_, kind) != ("hybrid", "vector"):
        assert path.stat().st_size < clf.nbytes - 5000 * x[0].nbytes / 2
    assert clf.partial_fit(x, y).n_samples_seen_ == 120


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_an_export_does_not_say_that_torchvision_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find, heard = importlib.util.find_spec, list[logging.LogRecord]()
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *at: None if name == "torchvision" else find(name, *at)
    )
    logger = logging.getLogger(REGISTRATION)
    monkeypatch.setattr(logger, "handle", heard.append)
    clf = OnlineClassifier().partial_fit(*vectors(30))
    clf.export(tmp_path / "model.onnx")
    assert heard == []
    assert logger.isEnabledFor(logging.WARNING)


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    clf = OnlineClassifier().partial_fit([[1.0]], [0])
    with pytest.raises(UsageError, match=r"has the suffix '.pkl'; use '.onnx', or '.pt2'"):
        clf.export(tmp_path / "model.pkl")
    assert list(tmp_path.iterdir()) == []
