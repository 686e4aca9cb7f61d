"""The classifier of a state folder, read by `info`, `predict` and `merge`."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from classifiers import bits
from onebyone import OnlineClassifier, UsageError
from onebyone.serve import stored
from onebyone.serve.operations import Operation
from onebyone.serve.service import Service
from onebyone.serve.settings import settings_of
from onebyone.serve.stored import stored_classifier
from serving import SMALL, learn

Call = Callable[..., tuple[int, str, str]]


def images(count: int, seed: int = 0) -> tuple[Any, list[str]]:
    random, labels = np.random.default_rng(seed), ["dark", "light"] * (count // 2)
    brightness = np.array([60 if label == "dark" else 180 for label in labels])
    return (brightness[:, None, None] + random.integers(0, 60, (count, 8, 8))).astype(np.uint8), labels


def test_info_predict_and_merge_read_a_state_folder_that_a_server_uses(tmp_path: Path, onebyone: Call) -> None:
    x, labels = images(40)
    Image.fromarray(x[0]).save("image.png")
    with closing(Service(tmp_path / "state", **SMALL)) as service:
        code, _, err = onebyone("info", "state")
        assert (code, err.count("\n")) == (2, 1)
        assert "the server of state has learnt nothing yet" in err
        learn(service, x, labels)
        before = sorted((path.name, path.stat().st_size) for path in (tmp_path / "state").iterdir())
        code, out, _ = onebyone("info", "state", "--json")
        assert code == 0
        assert json.loads(out)["classes"] == {"dark": 20, "light": 20}
        code, out, _ = onebyone("predict", "state", "image.png")
        assert out.splitlines()[1].startswith("dark")
        assert sorted((path.name, path.stat().st_size) for path in (tmp_path / "state").iterdir()) == before
        assert bits(stored_classifier(tmp_path / "state")) == bits(service.model.classifier)
    code, out, _ = onebyone("merge", "state", "state", "--into", "twice")  # now a snapshot
    assert code == 0
    assert OnlineClassifier.load("twice").n_samples_seen_ == 80
    with pytest.raises(UsageError, match="onebyone info, predict and merge"):
        OnlineClassifier.load(tmp_path / "state")


def test_a_snapshot_that_is_replaced_meanwhile_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Service(tmp_path / "state", **SMALL)) as service:
        learn(service, *images(20))
        service.submit(Operation("rename", names={"dark": "night"})).result(60)
        seen: list[int] = []

        def slow(*given: Any) -> Any:
            seen.append(given[2])
            if len(seen) == 1:
                service._snapshot()
            return replay(*given)

        replay = stored.replay
        monkeypatch.setattr(stored, "replay", slow)
        assert set(stored_classifier(tmp_path / "state").classes_) == {"night", "light"}
        assert seen == [0, 2]
    (tmp_path / "state" / "journal-2").write_bytes(b"damaged")
    with pytest.raises(UsageError, match="damaged at its beginning"):
        stored_classifier(tmp_path / "state")


def test_settings_of_other_versions(tmp_path: Path) -> None:
    """A newer server is named, one from before the first release is refused, and a missing setting has its default."""
    given = settings_of(tmp_path, SMALL)
    file = tmp_path / "settings.json"
    found = json.loads(file.read_text())
    for change, message in (
        ({"version": 1}, "settings.json cannot be read: it was written before release 0.3.0"),
        ({"version": 9, "written_by": "7.1"}, "onebyone 7.1 wrote it, with version 9 .* 'onebyone>=7.1'"),
        ({"colour": "red"}, "it has the setting 'colour', which onebyone .* does not know"),
    ):
        file.write_text(json.dumps(found | change))
        with pytest.raises(UsageError, match=message):
            settings_of(tmp_path, {})
    del found["samples"]
    file.write_text(json.dumps(found))
    assert settings_of(tmp_path, {}) == given
