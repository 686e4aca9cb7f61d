"""The files that a classifier has learnt are not learnt again, unless they were forgotten."""

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from pathlib import Path

import pytest
import torch
from PIL import Image

from onebyone import OnlineClassifier, UsageError
from onebyone.estimator.folders import LabelledFile, find_images, learn_files
from onebyone.estimator.known_files import TENSORS, KnownFiles, Taught
from photo_folders import encoder, new, same, write_images  # noqa: F401  # a fixture

NAMES = list(TENSORS)


def test_files_of_a_class_that_was_forgotten_can_be_learnt_again(tmp_path: Path) -> None:
    files, _ = find_images(write_images(tmp_path / "photos"))
    clf = new()
    learn_files(clf, files)
    clf.rename({"red": "pink"}).forget_class("blue")
    clf.save(tmp_path / "model")
    clf = OnlineClassifier.load(tmp_path / "model")
    renamed = [LabelledFile(file.path, "pink" if file.label == "red" else file.label) for file in files]
    again = learn_files(clf, renamed)
    assert (again.files, again.known) == (8, 16)


def test_files_of_images_that_were_forgotten_can_be_learnt_again(tmp_path: Path) -> None:
    files, _ = find_images(write_images(tmp_path / "photos"))
    clf = new()
    learn_files(clf, files)
    before, few = deepcopy(clf), files[:3]
    clf.forget([file.path for file in few], [file.label for file in few])
    one = Image.open(files[10].path)  # decoded by the caller
    clf.forget(one, files[10].label)
    clf.save(tmp_path / "model")
    clf = OnlineClassifier.load(tmp_path / "model")
    again = learn_files(clf, files)
    assert (again.files, again.known) == (4, 20)
    assert same(clf, before)
    with pytest.raises(UsageError):
        clf.forget([file.path for file in files], [file.label for file in files])  # nothing would be left
    assert learn_files(clf, files).files == 0


@pytest.mark.parametrize("duplicate", [copy, deepcopy, lambda clf: new().merge(clf)])
def test_a_copy_knows_its_own_files(tmp_path: Path, duplicate: Callable[[OnlineClassifier], OnlineClassifier]) -> None:
    files, _ = find_images(write_images(tmp_path / "photos"))
    clf = new()
    learn_files(clf, files[:4])
    other = duplicate(clf)
    learn_files(other, files)
    assert learn_files(clf, files).files == len(files) - 4


def known(keys: Sequence[int], labels: str) -> KnownFiles:
    found = KnownFiles()
    found.add({(key, label): Taught(label, key) for key, label in zip(keys, labels, strict=True)})
    return found


def test_equal_sets_of_files_are_saved_as_equal_bytes() -> None:
    forward, backward = known(range(6), "ababab"), known(range(5, -1, -1), "bababa")
    one, other = (files.tensors({"a": 1, "b": 0}) for files in (forward, backward))
    assert all(torch.equal(one[name], other[name]) for name in TENSORS)
    assert KnownFiles.from_tensors(one, {"a": 1, "b": 0}, []).entries == forward.entries


def test_of_equal_images_in_two_files_one_is_learnt_again_after_one_is_forgotten(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos", count=3)
    Image.open(root / "red" / "0.png").save(root / "red" / "same.bmp")
    files, _ = find_images(root)
    clf = new()
    assert learn_files(clf, files).files == 10
    clf.forget(root / "red" / "0.png", "red")
    assert learn_files(clf, files).files == 1


def test_files_of_a_class_that_was_renamed_are_known_by_all_its_names(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photos")
    files, _ = find_images(root)
    clf = new()
    learn_files(clf, files)
    clf.rename({"red": "pink"}).rename({"pink": "rose"}).rename({"blue": "green", "green": "blue"})
    clf.save(tmp_path / "model")
    clf = OnlineClassifier.load(tmp_path / "model")
    clf.merge(learnt_elsewhere(tmp_path))
    for name in ("red", "pink", "rose"):
        named = [LabelledFile(file.path, name if file.label == "red" else file.label) for file in files]
        again = learn_files(clf, named)
        assert (again.files, again.known) == (0, 24)
    clf.forget_class("rose")
    again = learn_files(clf, files)
    assert (again.files, again.known) == (8, 16)
    assert "red" in clf.classes_


def learnt_elsewhere(tmp_path: Path) -> OnlineClassifier:
    clf = new()
    learn_files(clf, find_images(write_images(tmp_path / "more", 3, ("green", "white"), seed=1))[0])
    return clf


def test_a_damaged_list_of_files_is_refused() -> None:
    files = known([5, 7], "ab").renamed({"a": "c"})
    slots = {"b": 0, "c": 1}
    tensors = files.tensors(slots)
    assert KnownFiles.from_tensors(dict(tensors), slots, files.former_names) == files
    for wrong in (
        {name: tensors[name] for name in NAMES[:2]},
        tensors | {NAMES[0]: tensors[NAMES[0]][:1]},
        tensors | {NAMES[1]: tensors[NAMES[1]] + 1},
        tensors | {NAMES[2]: tensors[NAMES[2]].float()},
    ):
        with pytest.raises(UsageError, match="files that were learnt does not match its labels"):
            KnownFiles.from_tensors(wrong, slots, files.former_names)
    with pytest.raises(UsageError, match="a name that is missing"):
        KnownFiles.from_tensors(dict(tensors), slots, [])


def test_files_that_could_not_be_learnt_are_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as after a failed save. Those that could not be moved are known as what they were."""
    files, _ = find_images(write_images(tmp_path / "photos", count=2))
    clf = new()
    learn_files(clf, files[:3])
    with monkeypatch.context() as patch:
        patch.setattr("onebyone.estimator.folders.replace", raise_full)  # called last
        with pytest.raises(UsageError, match="full"):
            learn_files(clf, files)
    moved = [files[0]._replace(label="red"), *files[1:]]
    assert learn_files(clf, files).files == 3
    with monkeypatch.context() as patch:
        patch.setattr("onebyone.estimator.folders.replace", raise_full)  # called last
        with pytest.raises(UsageError, match="full"):
            learn_files(clf, moved)
    assert learn_files(clf, files).known == 6
    assert len(learn_files(clf, moved).moved) == 1


def raise_full(*_: object, **__: object) -> None:
    raise UsageError("the disk is full")
