"""Parallel fits: the result of one pass, whatever the shards, the workers and what happens to them."""

import multiprocessing
import pickle
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from onebyone import Dataset, OnlineClassifier, UsageError, distributed
from onebyone.data import SkippedFilesWarning
from onebyone.distributed import Batches, Images, Pair, as_shards, fit, grouped
from onebyone.estimator.folders import learn_folder
from onebyone.executors import Executor, LocalExecutor, Lost, Status, Worker
from onebyone.executors.executor import attempt, remote_device
from onebyone.runs.run import Interrupted

Shards = list[tuple[Tensor, list[int]]]


class Here(Executor):
    """Does the groups in this process, in an order of its own; the first ``lost`` of them once in vain."""

    def __init__(self, order: int = 0, lost: int = 0) -> None:
        self.random, self.lost, self.done = np.random.default_rng(order), lost, list[str]()
        self.waiting = list[tuple[Any, Any]]()
        self.width, self.room = 1, 1000

    def device(self, name: str) -> str:
        return remote_device(name, gpus=False)

    @contextmanager
    def pool(self, function: Any, *given: Any) -> Iterator[Any]:
        self.function = function
        yield self

    def submit(self, batches: Any) -> list[Any]:
        found = [(Future[Any](), items) for items in batches]
        self.waiting += found
        return [future for future, _ in found]

    def statuses(self, stopped: bool) -> Iterator[tuple[str, Status]]:
        """Does one of the groups that wait."""
        event = threading.Event()
        if stopped:
            event.set()
        reports = list[tuple[str, Status]]()
        if self.waiting:
            future, items = self.waiting.pop(int(self.random.integers(len(self.waiting))))
            ((name, item),) = items.items()
            worker = Worker(lambda *report: reports.append(report), event)
            outcome = attempt(partial(self.function, name, item, worker), event)
            if self.lost > 0:
                self.lost, outcome = self.lost - 1, Lost("its node was removed")
            else:
                self.done.append(name)
            future.set_result({name: outcome})
        yield from reports


def shards_of(digits: Dataset, count: int) -> Shards:
    return [(digits.train_x[part::count], digits.train_y[part::count].tolist()) for part in range(count)]


def same(one: OnlineClassifier, other: OnlineClassifier, x: Any, *, bits: bool = False) -> None:
    assert one.classes_.tolist() == other.classes_.tolist()
    assert one.n_samples_seen_ == other.n_samples_seen_
    first, second = one.decision_function(x), other.decision_function(x)
    if bits:
        assert np.array_equal(first, second)
    else:
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def single(digits: Dataset) -> OnlineClassifier:
    """One pass over the digits."""
    return OnlineClassifier().partial_fit(digits.train_x, digits.train_y)


@settings(max_examples=4)
@given(count=st.integers(1, 40), order=st.integers(0, 10**6), lost=st.integers(0, 3))
def test_a_fit_is_one_pass(count: int, order: int, lost: int, digits: Dataset, single: OnlineClassifier) -> None:
    """Whatever the number of shards, the order in which they end, and how many are repeated."""
    told: list[tuple[int, int | None]] = []
    executor = Here(order, lost)
    clf = fit(OnlineClassifier(), shards_of(digits, count), executor=executor, progress=lambda *now: told.append(now))
    same(clf, single, digits.test_x)
    assert len(executor.done) == len(set(executor.done)) == min(count, 32)
    assert told[-1][1] == len(digits.train_y)
    other = fit(OnlineClassifier(), shards_of(digits, count), executor=Here(order + 1))
    same(clf, other, digits.test_x, bits=True)


@given(st.integers(1, 200))
def test_groups_are_neighbours_and_depend_on_the_shards_alone(count: int) -> None:
    parts = [Pair(np.zeros(1), [number]) for number in range(count)]
    groups = grouped(parts)
    assert [part for group in groups for part in group] == parts
    assert len(groups) == min(count, 32)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


@pytest.mark.slow
def test_worker_processes_one_of_which_is_killed(digits: Dataset, single: OnlineClassifier) -> None:
    """Two real processes and one: the same bits. One process is killed while it learns."""

    class Killer(LocalExecutor):
        killed = 0

        def map(self, function: Any, items: Any, **given: Any) -> Any:
            told = given.pop("progressed")

            def progressed(name: str, status: Status) -> None:
                if not self.killed:
                    self.killed += 1
                    multiprocessing.active_children()[0].kill()
                told(name, status)

            return super().map(function, items, progressed=progressed, **given)

    shards = [[(x[:50], y[:50]), (x[50:], y[50:])] for x, y in shards_of(digits, 6)]
    killer = Killer()
    two = fit(OnlineClassifier(), shards, workers=2, executor=killer)
    assert killer.killed
    same(two, single, digits.test_x)
    same(two, fit(OnlineClassifier(), shards, executor=Here()), digits.test_x, bits=True)


def test_forms_of_shards(digits: Dataset, single: OnlineClassifier, tmp_path: Path) -> None:
    x, y = digits.train_x.numpy(), digits.train_y.numpy()
    np.savez(tmp_path / "a.npz", x=x[:500], y=y[:500])
    np.savez(tmp_path / "b.npz", images=x[500:600], labels=y[500:600])

    def batches() -> Iterator[tuple[Any, Any]]:
        yield x[600:700], y[600:700].tolist()
        yield x[700:800], y[700:800].tolist()

    shards: list[Any] = [tmp_path / "a.npz", batches, [(x[800:900], y[800:900].tolist())], (x[900:], y[900:].tolist())]
    clf = fit(OnlineClassifier(), shards, executor=Here())
    assert fit(clf, [tmp_path / "b.npz"], executor=Here(), columns=("images", "labels")) is clf  # it learns more
    same(clf, single, digits.test_x)


@pytest.fixture
def photos(digits: Dataset, tmp_path: Path) -> Path:
    """A folder with ten images for each of three classes, one file that is no image, and one that is damaged."""
    for label in range(3):
        folder = tmp_path / "photos" / f"class {label}"
        folder.mkdir(parents=True)
        for number, image in enumerate(digits.train_x[digits.train_y == label][:10]):
            Image.fromarray(image[0].numpy()).save(folder / f"{number}.png")
    (folder / "notes.txt").touch()
    (folder / "damaged.png").write_bytes((folder / "0.png").read_bytes()[:40])
    return tmp_path / "photos"


def test_a_folder_of_images(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small shards: the classifier that one process has after ``learn_folder``, also if it continues."""
    monkeypatch.setattr("onebyone.distributed.FILES", 4)
    monkeypatch.setattr("onebyone.distributed.ROUND", 12)
    whole = OnlineClassifier(batch_size=64)
    wanted = learn_folder(photos, tmp_path / "whole", whole)
    assert wanted.files == 30
    paths = sorted(photos.glob("*/[0-9].png"))
    x = [str(path) for path in paths]
    with pytest.warns(SkippedFilesWarning, match=r"1 images skipped; the first: .*damaged.png \("):
        clf = fit(OnlineClassifier(batch_size=64), photos, executor=Here())
    same(clf, whole, x)
    assert fit(clf, paths, executor=Here()) is clf  # it knows all of them
    same(clf, whole, x)
    told: list[tuple[int, int | None]] = []
    again = OnlineClassifier(batch_size=64)
    into, executor = tmp_path / "again", Here()
    shutil.copy(paths[0], paths[0].with_name("copy.png"))  # is not learnt twice
    learnt = distributed.learn_folder(photos, into, again, executor=executor, progress=lambda *now: told.append(now))
    assert (learnt.files, learnt.known) == (30, 1)
    assert learnt.skipped.keys() == wanted.skipped.keys()
    same(OnlineClassifier.load(into), whole, x)
    assert told[-1] == (32, 32)
    assert distributed.learn_folder(photos, into, again, executor=Here()).known == 31
    same(again, whole, x)


def test_images_in_the_folder_of_another_class_are_moved(photos: Path, tmp_path: Path) -> None:
    (photos / "class 2" / "damaged.png").unlink()
    clf, one = OnlineClassifier(batch_size=64), OnlineClassifier(batch_size=64)
    distributed.learn_folder(photos, tmp_path / "model", clf, executor=Here())
    moved = (photos / "class 0" / "0.png").rename(photos / "class 1" / "new.png")
    learnt = distributed.learn_folder(photos, tmp_path / "model", clf, executor=Here())
    assert (learnt.known, learnt.moved) == (29, {moved: ("class 0", "class 1")})
    learn_folder(photos, tmp_path / "one", one)
    paths = [str(path) for path in sorted(photos.glob("*/*.png"))]
    same(OnlineClassifier.load(tmp_path / "model"), one, paths)
    moved.rename(photos / "class 2" / "new.png")
    fit(clf, photos, executor=Here())
    assert clf._fitted().counts.tolist()[:3] == [9, 10, 11]


def test_images_have_the_axes_of_the_classifier(photos: Path, tmp_path: Path) -> None:
    """Before, the rows of an image were its channels."""
    clf = OnlineClassifier(batch_size=64, channels="first")
    learn_folder(photos, tmp_path / "one", clf)
    assert clf._fitted().layout.sample_shape == (3, 32, 32)
    with pytest.warns(SkippedFilesWarning):
        other = fit(OnlineClassifier(batch_size=64, channels="first"), photos, executor=Here())
    same(other, clf, [str(path) for path in sorted(photos.glob("*/[0-9].png"))])


def test_labels_of_files_are_those_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "all" / "cafe\N{COMBINING ACUTE ACCENT}"  # as some systems write it
    folder.mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(folder / "one.png")
    monkeypatch.chdir(folder)
    for shards in (tmp_path / "all", [folder / "one.png"], ["one.png"]):
        (shard,) = as_shards(shards, ("x", "y"))
        assert isinstance(shard, Images)
        assert [file.label for file in shard.files] == ["caf\N{LATIN SMALL LETTER E WITH ACUTE}"]


def test_learn_with_workers(photos: Path, onebyone: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    for into, more in (("one", ()), ("two", ("--workers", 2))):
        code, out, err = onebyone("learn", photos, "--into", into, "--encoder", "none", "--memory", "100KB", *more)
        assert code == 0, err
        assert out.startswith("30 images learnt, 2 skipped")
    one, two = (OnlineClassifier.load(tmp_path / name) for name in ("one", "two"))
    same(one, two, [str(path) for path in sorted(photos.glob("*/[0-9].png"))])
    assert onebyone("learn", photos, "--into", "two", "--executor", "moon")[0] == 2


def test_a_part_of_a_tensor_is_sent_without_the_rest(digits: Dataset) -> None:
    part = Pair(digits.train_x[::100], digits.train_y[::100])
    sent = pickle.dumps(part)
    assert len(sent) < 3 * part.X.nbytes < digits.train_x.nbytes
    assert torch.equal(pickle.loads(sent).X, part.X)
    assert len(pickle.dumps(Batches([(part.X, part.y)]))) < digits.train_x.nbytes / 2


def endless() -> Iterator[tuple[Any, Any]]:
    while True:
        yield np.zeros((10, 4)) + np.arange(10)[:, None], [0, 1] * 5


def damaged_file() -> list[str]:
    np.savez_compressed("damaged.npz", x=np.arange(4000.0).reshape(1000, 4), y=np.arange(1000) % 2)
    content = bytearray(Path("damaged.npz").read_bytes())
    content[100:200] = bytes(100)
    Path("damaged.npz").write_bytes(content)
    return ["damaged.npz"]


def single_array() -> list[str]:
    np.save("single.npy", np.zeros(3))
    Path("single.npy").rename("single.npz")
    return ["single.npz"]


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: [], "there are no shards"),
    (lambda: 3, "shards is a int"),
    (lambda: (np.zeros((2, 2)), np.zeros(2)), "a pair of arrays; give a list of pairs"),
    (lambda: [endless()], "a shard is an iterator"),
    (lambda: [3], "a shard is a int"),
    (lambda: ["nothing.csv"], "nothing.csv is no folder, .npz file or image file"),
    (lambda: ["nothing.npz"], "nothing.npz cannot be read"),
    (damaged_file, "damaged.npz cannot be read"),
    (single_array, r"single.npz cannot be read \(it is a single array\)"),
    (lambda: "missing", "missing is no folder"),
    (lambda: ["."], "has no sub-folders"),
    (lambda: [(np.zeros((2, 2)), [0])], "2 samples and y has 1 labels"),
    (
        lambda: [(np.zeros((4, 2)), [0, 1, 0, 1]), (np.zeros((4, 3)), [0, 1, 0, 1])],
        "expected \\(2,\\), as in the first call",
    ),
    (lambda: [[3]], "a shard gives a int"),
    (lambda: [lambda: []], "the shards have no samples"),
]


@pytest.mark.parametrize(("make", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_refused(make: Callable[[], Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clf = OnlineClassifier()
    with pytest.raises(UsageError, match=said):
        fit(clf, make(), executor=Here())
    assert not hasattr(clf, "classes_")


def test_what_cannot_be_merged_is_refused_before_it_is_taught(digits: Dataset) -> None:
    executor = Here()
    for clf, said in [
        (OnlineClassifier("er"), "cannot be merged"),
        (OnlineClassifier(random_state=None), "random_state is None; give a whole number"),
    ]:
        with pytest.raises(UsageError, match=said):
            fit(clf, shards_of(digits, 2), executor=executor)
    assert executor.done == []
    with pytest.raises(UsageError, match="a worker process cannot be sent this"):
        fit(OnlineClassifier(), [lambda: [(digits.test_x, digits.test_y.tolist())]], workers=1)


def test_a_group_that_is_always_lost_is_given_up(digits: Dataset) -> None:
    clf = OnlineClassifier()
    with pytest.raises(UsageError, match="nothing was learnt: its node was removed"):
        fit(clf, shards_of(digits, 2), executor=Here(lost=100))
    assert not hasattr(clf, "classes_")


def test_ctrl_c_changes_nothing() -> None:
    clf = OnlineClassifier().partial_fit(*next(endless()))

    class Stop(Here):
        def statuses(self, stopped: bool) -> Iterator[tuple[str, Status]]:
            if not stopped:
                signal.raise_signal(signal.SIGINT)  # as a terminal does
                return iter(())
            return super().statuses(stopped)

    with pytest.raises(Interrupted, match="nothing was learnt"):
        fit(clf, [endless], executor=Stop())
    assert clf.n_samples_seen_ == 10
