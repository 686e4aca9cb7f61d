"""Files of each kind that each release wrote are opened, answer as before, and learn on."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onebyone import OnlineClassifier
from onebyone.serve.operations import Operation
from onebyone.serve.service import Service
from onebyone.serve.stored import stored_classifier
from saved_files import FOLDER, images, module, vectors

X, Y = vectors()


@pytest.fixture(params=sorted(path.name for path in FOLDER.iterdir()))
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    """A copy of the files of a release, and what classifiers that read them must know."""
    folder = Path(shutil.copytree(FOLDER / request.param, tmp_path / "saved"))
    return folder, json.loads((folder / "about.json").read_text())["expected"]


@pytest.mark.parametrize("name", ["statistics", "network", "autosave"])
def test_a_classifier_is_opened_and_learns_on(saved: tuple[Path, Any], name: str) -> None:
    folder, expected = saved
    known = expected[name]
    with OnlineClassifier.load(folder / name, encoder=module() if name == "network" else None) as clf:
        assert (clf.classes_.tolist(), clf.n_samples_seen_) == (known["classes"], known["samples"])
        np.testing.assert_allclose(clf.predict_proba(X[:9]), known["probabilities"], atol=1e-4)
        assert clf.partial_fit(X[:4], [*Y[:3], "new"]).n_samples_seen_ == known["samples"] + 4
        assert clf.score(X, Y) > 0.5
    assert (clf.autosave is not None) == (name == "autosave")


def test_a_state_folder_is_opened_and_learns_on(saved: tuple[Path, Any]) -> None:
    folder, expected = saved
    x, labels = images()
    clf = stored_classifier(folder / "server")
    with closing(Service(folder / "server")) as service:
        assert service.model.counts() == expected["server"]
        np.testing.assert_array_equal(service.model.classifier.predict_proba(x), clf.predict_proba(x))
        assert service.submit(Operation("learn", labels[:2], x[:2])).result(60)["learnt"] == 2
        service.submit(Operation("undo")).result(60)
        assert service.model.counts() == expected["server"]
