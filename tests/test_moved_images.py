"""Images whose files were moved to the folder of another class, and folders of classes that were renamed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from classifiers import with_kept_of
from onebyone import OnlineClassifier
from onebyone.estimator import folders
from onebyone.estimator.folders import LabelledFile, find_images, learn_files
from photo_folders import ENCODER, encoder, new, write_images  # noqa: F401  # a fixture

Call = Callable[..., tuple[int, str, str]]
LEARN = ("learn", "photos", "--into", "model", "--encoder", ENCODER, "--memory", "60KB")


def is_as_if_learnt_like_this(clf: OnlineClassifier) -> bool:
    """Whether a classifier answers as a new one does that learns the folder as it is now."""
    other, files = new(), find_images("photos")[0]
    learn_files(other, files)
    with_kept_of(other, clf)  # samples that were dropped before do not come back
    scores = [each.decision_function([str(file.path) for file in files]) for each in (clf, other)]
    return clf.classes_.tolist() == other.classes_.tolist() and np.allclose(*scores, rtol=1e-3, atol=1e-3)


def test_a_moved_image_counts_in_its_new_class_only(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos")
    onebyone(*LEARN)
    for number in (0, 1):
        (root / "blue" / f"{number}.png").rename(root / "red" / f"was blue {number}.png")
    code, out, err = onebyone(*LEARN)
    assert (code, err) == (0, "onebyone: 2 images moved from blue to red\n")
    assert out.startswith("0 images learnt, 2 moved, 22 known already; model knows 3 classes, 24 images\n")
    assert is_as_if_learnt_like_this(OnlineClassifier.load("model"))
    assert onebyone(*LEARN)[1].startswith("0 images learnt, 24 known already")
    (root / "red" / "was blue 0.png").rename(root / "blue" / "0.png")
    found = json.loads(onebyone(*LEARN, "--json")[1])
    assert found["moved"] == {"photos/blue/0.png": ["red", "blue"]}
    assert found["classes"] == {"blue": 7, "green": 8, "red": 9}
    assert is_as_if_learnt_like_this(OnlineClassifier.load("model"))


def test_an_image_in_the_folders_of_two_classes_counts_in_the_first(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos", count=3)
    shutil.copy(root / "red" / "0.png", root / "blue" / "copy.png")
    for learnt in (10, 0):
        _, out, err = onebyone(*LEARN, "--json")
        assert json.loads(out)["learnt"] == learnt - (learnt > 0)
        assert json.loads(out)["classes"] == {"blue": 4, "green": 3, "red": 2}
        assert err == (
            "onebyone: photos/red/0.png is skipped (the same image is in photos/blue/copy.png and counts there; "
            "remove one of the two)\n"
        )
    (root / "blue" / "copy.png").unlink()
    assert "1 image moved from blue to red" in onebyone(*LEARN)[2]
    assert is_as_if_learnt_like_this(OnlineClassifier.load("model"))


def test_a_renamed_folder_is_said_and_renamed_with_an_option(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos")
    (root / "red" / "broken.png").write_bytes(b"no image")
    onebyone(*LEARN)
    (root / "red").rename(root / "rose")
    code, out, err = onebyone(*LEARN)
    assert code == 0
    assert "all images in the folder rose are known as red, which has no folder now; --rename renames the class" in err
    assert "0 images learnt, 24 known already, 1 skipped; model knows 3 classes" in out
    assert "the class red is called rose now" in onebyone(*LEARN, "--rename")[2]
    (root / "rose" / "broken.png").unlink()
    assert is_as_if_learnt_like_this(OnlineClassifier.load("model"))
    # The old name is free: a file in a folder of this name is not one of the renamed class.
    (root / "red").mkdir()
    (root / "rose" / "0.png").rename(root / "red" / "0.png")
    assert "1 image moved from rose to red" in onebyone(*LEARN)[2]


def test_images_of_a_folder_that_is_not_a_renamed_one_are_moved(tmp_path: Path, onebyone: Call) -> None:
    root = write_images(tmp_path / "photos")
    onebyone(*LEARN)
    (root / "red").rename(root / "rose")
    out = onebyone(*LEARN, "--no-rename")[1]
    assert "8 moved, 16 known already; model knows 3 classes, 24 images" in out  # the empty class is gone
    (root / "pink").mkdir()
    for number in range(4):  # half of a class in each of two new folders
        (root / "rose" / f"{number}.png").rename(root / "pink" / f"{number}.png")
    (root / "rose").rename(root / "crimson")
    assert "onebyone: 4 images moved from rose to" in onebyone(*LEARN, "--rename")[2]
    (root / "blue").rename(root / "navy")  # the class blue still has a folder
    (root / "green").rename(root / "blue")
    assert "16 moved, 8 known already" in onebyone(*LEARN, "--rename")[1]
    clf = OnlineClassifier.load("model")
    assert clf.classes_.tolist() == ["blue", "crimson", "navy", "pink"]
    assert is_as_if_learnt_like_this(clf)


def test_what_cannot_be_forgotten_exactly_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = find_images(write_images(tmp_path / "photos", count=2))[0]
    network = OnlineClassifier("er", memory=20)
    statistics = new()
    for clf in (network, statistics):
        learn_files(clf, files)
    moved = [LabelledFile(files[0].path, "red"), *files[1:]]
    monkeypatch.setattr(folders, "pixel_keys", lambda images: [0] * len(images))  # as another decoder would
    for clf, why in (
        (network, "known as blue, which er cannot forget exactly"),
        (statistics, "decoded to other pixels"),
    ):
        learnt = learn_files(clf, moved)
        assert why in learnt.skipped[files[0].path]
        assert clf.n_samples_seen_ == 6
        assert learn_files(clf, files).known == 6


def test_an_autosave_has_an_image_and_its_file_or_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after any save, the classifier knows the files of exactly the images that it has learnt."""
    root = write_images(tmp_path / "photos", count=4)
    saved = []
    with OnlineClassifier(encoder=ENCODER, memory="60KB", autosave=tmp_path / "auto", every=1) as clf:
        monkeypatch.setattr(folders, "BATCH", 5)

        def look() -> None:
            copy = tmp_path / f"copy {len(saved)}"
            shutil.copytree(tmp_path / "auto", copy)
            saved.append(OnlineClassifier.load(copy))

        learn_files(clf, find_images(root)[0], done=look)
        (root / "blue" / "0.png").rename(root / "red" / "9.png")
        learn_files(clf, find_images(root)[0], done=look)
    assert [each.n_samples_seen_ for each in saved] == [5, 10, 12, 12]
    for each in saved:
        assert each.n_samples_seen_ == len(each._fitted().files.contents)
