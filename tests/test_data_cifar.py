import hashlib
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from onebyone.data import CropFlip, Dataset, cifar, load
from onebyone.data.cifar import CIFAR10, CIFAR100, Archive, read_archive
from onebyone.errors import UsageError

# Small versions of the official archives: the same files, with a few records in each.
SMALL = {
    "cifar10": replace(CIFAR10, train_records=4, test_records=6, address="http://127.0.0.1:9/it.tar.gz"),
    "cifar100": replace(CIFAR100, train_records=20, test_records=6, address="http://127.0.0.1:9/it.tar.gz"),
}
Records = dict[str, tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]]


@pytest.fixture(params=["cifar10", "cifar100"])
def archive(request: pytest.FixtureRequest) -> Archive:
    return SMALL[request.param]


def records(archive: Archive) -> Records:
    """Random pixels [n, 3072] and labels [n, label_bytes] for each file."""
    random = np.random.default_rng(0)
    counts = dict.fromkeys(archive.train_files, archive.train_records)
    counts |= dict.fromkeys(archive.test_files, archive.test_records)
    classes = len(archive.classes)
    return {
        name: (
            random.integers(0, 256, (count, 3072), np.uint8),
            random.integers(0, classes, (count, archive.label_bytes), np.uint8),
        )
        for name, count in counts.items()
    }


def names(archive: Archive) -> list[str]:
    return [f"class_{label}" for label in range(len(archive.classes))]


def write_binary(archive: Archive, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, (pixels, labels) in records(archive).items():
        (folder / name).write_bytes(np.hstack([labels, pixels]).tobytes())
    (folder / archive.names_file).write_text("\n".join(names(archive)) + "\n\n")
    return folder


def python2_pickle(value: Any) -> bytes:
    """A value as Python 2 pickles it with protocol 2, as in the official files: its strings are bytes here."""

    def dump(value: Any) -> bytes:
        match value:
            case bytes():
                return b"T" + struct.pack("<i", len(value)) + value
            case int():
                return b"J" + struct.pack("<i", value)
            case list():
                return b"](" + b"".join(map(dump, value)) + b"e"
            case dict():
                return b"}(" + b"".join(dump(key) + dump(item) for key, item in value.items()) + b"u"
            case np.ndarray():
                array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + dump(b"b") + b"\x87R"
                shape = b"(" + b"".join(map(dump, value.shape)) + b"t"
                dtype = b"cnumpy\ndtype\n" + dump(b"u1") + b"K\x00K\x01\x87R"
                state = b"(K\x03" + dump(b"|") + b"NNN" + dump(-1) + dump(-1) + b"K\x00tb"
                return array + b"(K\x01" + shape + dtype + state + b"\x89" + dump(value.tobytes()) + b"tb"
        raise TypeError(value)

    return b"\x80\x02" + dump(value) + b"."


def write_python(archive: Archive, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, (pixels, labels) in records(archive).items():
        content = {b"batch_label": b"a batch", b"data": pixels, archive.labels_key: labels[:, -1].tolist()}
        (folder / name.removesuffix(".bin")).write_bytes(python2_pickle(content))
    meta = {archive.names_key: [name.encode() for name in names(archive)]}
    (folder / archive.python_names_file).write_bytes(python2_pickle(meta))
    return folder


def check(archive: Archive, dataset: Dataset) -> None:
    content = records(archive)
    for files, x, y in (
        (archive.train_files, dataset.train_x, dataset.train_y),
        (archive.test_files, dataset.test_x, dataset.test_y),
    ):
        pixels = np.concatenate([content[name][0] for name in files])
        labels = np.concatenate([content[name][1] for name in files])
        assert x.dtype == torch.uint8
        assert x.is_contiguous()
        np.testing.assert_array_equal(x.numpy(), pixels.reshape(-1, 3, 32, 32))
        assert y.tolist() == labels[:, -1].tolist()
    assert dataset.name == archive.name
    assert dataset.classes == tuple(names(archive))
    assert dataset.augmentation == CropFlip(padding=4, flip=True)


def test_sizes_and_addresses() -> None:
    assert len(CIFAR10.train_files) * CIFAR10.train_records == 50_000
    assert len(CIFAR100.train_files) * CIFAR100.train_records == 50_000
    assert CIFAR10.test_records == CIFAR100.test_records == 10_000
    assert (len(CIFAR10.classes), len(CIFAR100.classes)) == (10, 100)


def test_binary_folder(archive: Archive, tmp_path: Path) -> None:
    folder = write_binary(archive, tmp_path / archive.binary_folder)
    check(archive, read_archive(archive, tmp_path))
    check(archive, read_archive(archive, folder))


def test_python_folder(archive: Archive, tmp_path: Path) -> None:
    folder = write_python(archive, tmp_path / archive.python_folder)
    check(archive, read_archive(archive, tmp_path))
    check(archive, read_archive(archive, folder))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_of_python_3(tmp_path: Path, protocol: int) -> None:
    archive = SMALL["cifar10"]
    folder = write_python(archive, tmp_path / archive.python_folder)
    for name, (pixels, labels) in records(archive).items():
        content = {b"data": np.asfortranarray(pixels), b"labels": labels[:, -1].tolist()}
        (folder / name.removesuffix(".bin")).write_bytes(pickle.dumps(content, protocol))
    if protocol < 5:
        check(archive, read_archive(archive, tmp_path))
    else:  # not written like any official file
        with pytest.raises(UsageError, match=r"asks for .*_frombuffer, which no official file does"):
            read_archive(archive, tmp_path)


def test_default_root_is_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = SMALL["cifar10"]
    write_binary(archive, tmp_path / archive.binary_folder)
    monkeypatch.setenv("ONEBYONE_CACHE", str(tmp_path))
    check(archive, read_archive(archive))


@pytest.fixture
def packed(archive: Archive, tmp_path: Path) -> tuple[Archive, Path]:
    """The archive as the official .tar.gz, in a folder of its own that serves as the address."""
    folder = write_binary(archive, tmp_path / "made" / archive.binary_folder)
    path = tmp_path / "web" / "it.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, folder.name)
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    return replace(archive, address=path.as_uri(), md5=md5), path


def test_download(packed: tuple[Archive, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, path = packed
    monkeypatch.setenv("ONEBYONE_CACHE", str(tmp_path / "cache"))
    check(archive, read_archive(archive))
    path.unlink()
    check(archive, read_archive(archive))  # from the folder, without the address


@pytest.mark.parametrize("exists", [False, True])
def test_a_wrong_root_is_refused_without_a_download(packed: tuple[Archive, Path], tmp_path: Path, exists: bool) -> None:
    archive, _ = packed  # its address works, so that a download would succeed
    root = tmp_path / "wrong"
    if exists:
        root.mkdir()
        (root / archive.train_files[0]).touch()
    with pytest.raises(UsageError, match=rf"wrong; expected the folder {archive.binary_folder} or .*it\.tar\.gz"):
        read_archive(archive, root)
    assert [path.name for path in root.glob("*")] == ([archive.train_files[0]] if exists else [])


def test_an_existing_archive_is_unpacked(packed: tuple[Archive, Path], tmp_path: Path) -> None:
    archive, path = packed
    check(replace(archive, address="http://127.0.0.1:9/it.tar.gz"), read_archive(archive, path.parent))
    (tmp_path / "other").mkdir()
    path.rename(tmp_path / "other" / "it.tar.gz")
    with pytest.raises(UsageError, match=r"it\.tar\.gz has MD5 .*; expected 0: .* delete it and run again"):
        read_archive(replace(archive, md5="0"), tmp_path / "other")


def test_names_file_may_be_missing(archive: Archive, tmp_path: Path) -> None:
    (write_binary(archive, tmp_path / "b") / archive.names_file).unlink()
    (write_python(archive, tmp_path / "p") / archive.python_names_file).unlink()
    for folder in "bp":
        classes = read_archive(archive, tmp_path / folder).classes
        assert classes == archive.classes
    assert classes[3] in ("cat", "3")


AGAIN = r"delete the folder .* and load cifar\d+ without root \(data_dir\), which downloads it again"


def test_wrong_size(archive: Archive, tmp_path: Path) -> None:
    folder = write_binary(archive, tmp_path / archive.binary_folder)
    path = folder / archive.train_files[-1]
    whole = path.read_bytes()
    for content in (whole[:-1], b"", whole + b"x"):
        path.write_bytes(content)
        message = f"{path.name} has {len(content):,} bytes; expected {len(whole):,}; {AGAIN}"
        with pytest.raises(UsageError, match=message):
            read_archive(archive, tmp_path)


def test_files_with_fewer_records_are_refused(tmp_path: Path) -> None:
    write_binary(SMALL["cifar10"], tmp_path / CIFAR10.binary_folder)
    with pytest.raises(UsageError, match=r"data_batch_1\.bin has 12,292 bytes; expected 30,730,000"):
        load("cifar10", tmp_path)
    write_binary(SMALL["cifar100"], tmp_path / CIFAR100.binary_folder)
    with pytest.raises(UsageError, match=r"train\.bin has 61,480 bytes; expected 153,700,000"):
        load("cifar100", tmp_path)


def test_missing_file(archive: Archive, tmp_path: Path) -> None:
    (write_binary(archive, tmp_path / archive.binary_folder) / archive.test_files[0]).unlink()
    with pytest.raises(UsageError, match=f"{archive.test_files[0]} is missing; {AGAIN}"):
        read_archive(archive, tmp_path)


def test_files_in_a_folder_of_another_name(archive: Archive, tmp_path: Path) -> None:
    folder = write_binary(archive, tmp_path / "mine")
    check(archive, read_archive(archive, folder))
    path = folder / archive.test_files[0]
    path.write_bytes(b"short")
    with pytest.raises(UsageError, match=r"has 5 bytes; .*; replace it with the one of http") as caught:
        read_archive(archive, folder)
    assert "delete" not in str(caught.value)  # the folder is the user's own and may hold anything
    path.unlink()
    with pytest.raises(UsageError, match=r"is not in .*mine; expected the folder"):  # some files are not the data set
        read_archive(archive, folder)


def test_impossible_labels(archive: Archive, tmp_path: Path) -> None:
    path = write_binary(archive, tmp_path / archive.binary_folder) / archive.test_files[0]
    path.write_bytes(b"\xff" * path.stat().st_size)
    highest = len(archive.classes) - 1
    with pytest.raises(UsageError, match=f"labels from 255 to 255; expected 0 to {highest}: .*damaged; {AGAIN}"):
        read_archive(archive, tmp_path)


def test_wrong_number_of_names(archive: Archive, tmp_path: Path) -> None:
    folder = write_binary(archive, tmp_path / archive.binary_folder)
    (folder / archive.names_file).write_text("one\ntwo\n")
    message = f"{archive.names_file} has 2 class names; expected {len(archive.classes)}; {AGAIN}"
    with pytest.raises(UsageError, match=message):
        read_archive(archive, tmp_path)


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("attacked"),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_something_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    archive = SMALL["cifar10"]
    folder = write_python(archive, tmp_path / archive.python_folder)
    (folder / "data_batch_2").write_bytes(pickle.dumps(Attack(), protocol))
    with pytest.raises(UsageError, match=f"data_batch_2 cannot be read .it asks for .*no official file.*{AGAIN}"):
        read_archive(archive, tmp_path)
    (folder / "data_batch_2").write_bytes(b"cposix\nsystem\n(S'touch attacked'\ntR.")
    with pytest.raises(UsageError, match=r"it asks for posix\.system"):
        read_archive(archive, tmp_path)
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", f"data_batch_3 cannot be read .*; {AGAIN}"),
        (b"\x80\x02}(U\x04dat", f"data_batch_3 cannot be read .*; {AGAIN}"),
        (python2_pickle([1, 2]), "it is a list, not a dictionary"),
        (
            python2_pickle({b"data": 1}),
            "data_batch_3 has no images and labels in it; expected uint8 of shape",
        ),
        (
            python2_pickle({b"data": np.zeros((3, 3072), np.uint8), b"labels": [0] * 3}),
            rf"data_batch_3 has uint8 of shape \(3, 3072\) and 3 labels; expected uint8 .*4 labels; {AGAIN}",
        ),
        (
            python2_pickle({b"data": np.zeros((4, 3072), np.uint8), b"labels": [b"cat"] * 4}),
            "data_batch_3 has no images and labels in it",
        ),
    ],
)
def test_damaged_pickle(tmp_path: Path, content: bytes, message: str) -> None:
    archive = SMALL["cifar10"]
    folder = write_python(archive, tmp_path / archive.python_folder)
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_archive(archive, tmp_path)


def test_damaged_names_pickle(tmp_path: Path) -> None:
    archive = SMALL["cifar100"]
    folder = write_python(archive, tmp_path / archive.python_folder)
    (folder / "meta").write_bytes(python2_pickle({b"fine_label_names": [b"apple", 7]}))
    with pytest.raises(UsageError, match="meta has 1 class names; expected 100"):
        read_archive(archive, tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_quick_sets_are_the_first_images(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few images of the real set, in the same order, from wherever that is."""
    asked = []

    def fake(archive: Archive, root: Path | None, progress: object) -> Dataset:
        asked.append(root)
        y = torch.arange(40 * len(archive.classes)) % len(archive.classes)
        x = torch.zeros(len(y), 3, 32, 32, dtype=torch.uint8)
        return Dataset(archive.name, x, y, x, y, archive.classes, CropFlip(padding=4, flip=True))

    monkeypatch.setattr(cifar, "read_archive", fake)
    small = load(f"{name}-quick", "there")
    assert asked == [Path("there")]
    assert small.train_y.bincount().tolist() == [20] * 10
    assert small.test_y.bincount().tolist() == [5] * 10
    assert small.spec.num_classes == 10
    assert small.augmentation == CropFlip(padding=4, flip=True)
