from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from onebyone.data import CropFlip, from_arrays, load
from onebyone.errors import UsageError

LABELS = np.arange(10) % 2


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((10, 28, 20), (1, 28, 20)),
        ((10, 28, 20, 1), (1, 28, 20)),
        ((10, 28, 20, 3), (3, 28, 20)),
        ((10, 28, 20, 4), (4, 28, 20)),
        ((10, 3, 28, 20), (3, 28, 20)),
        ((10, 5, 28, 20), (5, 28, 20)),
        ((10, 3, 20, 3), (3, 20, 3)),  # ambiguous: read in torch's order
        ((10, 7), (7,)),
    ],
)
def test_shapes(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.uint8)
    for samples in (x, torch.from_numpy(x)):
        dataset = from_arrays(samples, LABELS)
        assert dataset.spec.shape == expected
        assert dataset.train_x.is_contiguous()


def test_channels_are_moved_not_mixed() -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3), np.uint8)
    dataset = from_arrays(x, [0, 1], x, [0, 1])  # type: ignore[arg-type]  # lists do as well
    assert dataset.train_x[1, 2, 4, 3] == x[1, 4, 3, 2]


@pytest.mark.parametrize("kind", ["uint8", "bool", "int16", "uint16", "int64", ">f4", "float16", "float64"])
def test_types_of_samples(kind: str) -> None:
    x = (np.arange(30).reshape(10, 3) % 2).astype(kind)
    dataset = from_arrays(x, LABELS, x, LABELS)
    assert dataset.train_x.dtype == (torch.uint8 if kind == "uint8" else torch.float32)
    assert torch.equal(dataset.train_x.float(), torch.tensor(x.astype(float), dtype=torch.float32))


def test_types_of_tensors() -> None:
    for kind in (torch.bfloat16, torch.float64, torch.int32, torch.bool):
        assert from_arrays(torch.ones(10, 3, dtype=kind), torch.arange(10) % 2).train_x.dtype == torch.float32
    with pytest.raises(UsageError, match=r"samples of type torch\.complex64; convert them"):
        from_arrays(torch.ones(10, 3, dtype=torch.complex64), LABELS)


def test_read_only_and_reversed_arrays_are_copied() -> None:
    x = np.arange(30, dtype=np.uint8).reshape(10, 3)
    x.flags.writeable = False  # torch would warn, and the tests turn warnings into errors
    assert torch.equal(from_arrays(x[::-1], LABELS, x, LABELS).train_x, torch.from_numpy(x.copy()).flip(0))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.array([["a"]] * 10), "has samples of type <U1; convert them to uint8 or float32"),
        (np.array([[None]] * 10), "has samples of type object"),
        (np.zeros(10), r"has shape \(10,\); expected at least one sample"),
        (np.zeros((0, 3)), r"has shape \(0, 3\)"),
        (np.full((10, 2), np.nan), "NaN or infinite values"),
        (np.full((10, 2), 1e300), "NaN or infinite values"),
        (np.zeros((9, 2)), r"9 samples and labels of shape \(10,\)"),
    ],
)
def test_samples_that_are_refused(samples: npt.NDArray[np.float64], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_arrays(samples, LABELS)


@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int32", "uint64", "float32"])
def test_types_of_labels(kind: str) -> None:
    y = LABELS.astype(kind)
    for labels in (y, torch.from_numpy(y), torch.from_numpy(LABELS).bfloat16()):
        dataset = from_arrays(np.zeros((10, 2)), labels, np.zeros((10, 2)), labels)
        assert dataset.train_y.dtype == torch.int64
        assert dataset.train_y.tolist() == LABELS.tolist()
        assert dataset.classes == ("0", "1")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([-2, -1]), r"labels from -2 to -1; with 1 classes they must be in 0\.\.0"),
        (np.array([0, -1]), r"labels from -1 to 0; with 1 classes they must be in 0\.\.0"),
        (
            np.array([0, 0.5]),
            "the training set has the label 0.5; labels are integers from 0",
        ),
        (np.array([0, np.nan]), "has the label nan"),
        (np.array([0, np.inf]), "has the label inf"),
        (np.array(["cat", "dog"]), "labels of type <U3; number the classes from 0 and name them"),
        (np.array([0, 20_261_115]), r"the highest label is 20,261,115; .* must be below 100,000"),
        (np.array([[0], [1]]), r"2 samples and labels of shape \(2, 1\)"),
        (np.array([], int), r"2 samples and labels of shape \(0,\)"),
    ],
)
def test_labels_that_are_refused(labels: npt.NDArray[np.float64], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_arrays(np.zeros((2, 3)), labels)


def test_class_names_determine_the_number_of_classes() -> None:
    x = np.zeros((10, 2))
    assert from_arrays(x, LABELS, classes=["a", "b", "c"]).num_classes == 3
    with pytest.raises(UsageError, match=r"labels from 0 to 1; with 1 classes they must be in 0\.\.0"):
        from_arrays(x, LABELS, classes=["a"])
    assert from_arrays(x, LABELS, x[:2], np.array([0, 5])).num_classes == 6  # the test set counts too


def test_split() -> None:
    x, y = np.arange(100)[:, None], np.arange(100) % 4
    dataset = from_arrays(x, y, test_fraction=0.4, seed=3)
    assert dataset.test_y.bincount().tolist() == [10] * 4
    assert sorted(torch.cat([dataset.train_x, dataset.test_x]).flatten().tolist()) == list(range(100))
    assert torch.equal(dataset.test_x.flatten().long() % 4, dataset.test_y)
    assert torch.equal(dataset.test_x, from_arrays(x, y, test_fraction=0.4, seed=3).test_x)
    assert not torch.equal(dataset.test_x, from_arrays(x, y, test_fraction=0.4, seed=4).test_x)
    with pytest.raises(UsageError, match=r"held-out fraction is 1\.5"):
        from_arrays(x, y, test_fraction=1.5)


def test_defaults_and_names() -> None:
    dataset = from_arrays(np.zeros((10, 8, 8)), LABELS)
    assert dataset.name == "arrays"
    assert dataset.augmentation == CropFlip(0, False)
    other = from_arrays(np.zeros((10, 8, 8)), LABELS, name="mine", augmentation=CropFlip(2, True))
    assert (other.name, other.augmentation) == ("mine", CropFlip(2, True))


def test_half_a_test_set_is_refused() -> None:
    x = np.zeros((10, 2))
    with pytest.raises(UsageError, match="test_x and test_y belong together; give both or neither"):
        from_arrays(x, LABELS, x)
    with pytest.raises(UsageError, match="give both or neither"):
        from_arrays(x, LABELS, test_y=LABELS)


def test_file_with_a_test_set(tmp_path: Path) -> None:
    x = np.arange(40).reshape(10, 4)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=LABELS, x_test=x[:2], y_test=LABELS[:2])
    dataset = load("arrays", tmp_path / "mine.npz")
    assert (dataset.name, len(dataset.train_y), len(dataset.test_y)) == ("mine", 10, 2)


def test_file_without_a_test_set(tmp_path: Path) -> None:
    x = np.arange(40).reshape(10, 4)
    np.savez(tmp_path / "short.npz", x=x, y=LABELS)
    np.savez_compressed(tmp_path / "long.npz", x_train=x, y_train=LABELS)
    short, long = (load("arrays", tmp_path / f"{name}.npz") for name in ("short", "long"))
    assert torch.equal(short.test_x, long.test_x)
    assert len(short.test_y) == 2


def test_files_that_are_refused(tmp_path: Path) -> None:
    x = np.zeros((10, 2))
    with pytest.raises(UsageError, match=r"no file was given; expected an \.npz file with x_train"):
        load("arrays")
    with pytest.raises(UsageError, match=r"missing\.npz is not a file; expected an \.npz file"):
        load("arrays", tmp_path / "missing.npz")
    path = tmp_path / "it.npz"
    for content in (b"", b"nothing numpy knows", b"PK\x03\x04 cut off"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"it\.npz cannot be read .*; write it with np\.savez"):
            load("arrays", path)
    with path.open("wb") as file:
        np.save(file, x)
    with pytest.raises(UsageError, match=r"it\.npz cannot be read \(it is a single array\)"):
        load("arrays", path)
    np.savez(path, x=np.array([[None]] * 10), y=LABELS)
    with pytest.raises(UsageError, match=r"it\.npz cannot be read \(Object arrays cannot be loaded"):
        load("arrays", path)
    np.savez(path, images=x, y=LABELS)
    with pytest.raises(UsageError, match=r"it\.npz holds images, y; expected an \.npz file"):
        load("arrays", path)
    np.savez(path, x_train=x, y_train=LABELS, x_test=x)
    with pytest.raises(UsageError, match="it: test_x and test_y belong together"):
        load("arrays", path)
