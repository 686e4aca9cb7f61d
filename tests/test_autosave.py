"""Autosave: when it saves, who may write to a folder, and calls that fail."""

import errno
import gc
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from classifiers import DEFAULT_AND_CCP, X, Y, bits, learn, saved, state_of
from onebyone import OnlineClassifier, UsageError
from onebyone.estimator import classifier, inputs, model, storage
from onebyone.estimator.storage import FILE, Autosave
from tiers import mostly_slow

# When it saves


ENDINGS = """
import os, sys
import numpy as np
from onebyone import OnlineClassifier

x, y = np.random.default_rng(0).normal(size=(900, 4)), [0, 1, 2] * 300
OnlineClassifier().partial_fit(x[:10], y[:10]).save(os.path.join(sys.argv[1], "warm up"))  # imports all once
for ending in ("last line", "sys.exit", "exception", "collected", "with", "child"):
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        clf = OnlineClassifier(autosave=os.path.join(sys.argv[1], ending))
        clf.partial_fit(x[:10], y[:10]).partial_fit(x[10:], y[10:])
        match ending:
            case "sys.exit":
                sys.exit(0)
            case "exception":
                raise RuntimeError
            case "collected":
                del clf
                os._exit(0)
            case "with":
                with clf:
                    pass
                os._exit(0)
            case "child":  # what a child learns from here on is not of the folder
                if os.fork() == 0:
                    clf.set_params(autosave=None).partial_fit(x[:10], y[:10])
                    sys.exit(0)
                os.wait()
        break
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("every", [1, 1000])
def test_a_call_makes_each_check_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Whether it writes the file or not. Labels and parameters that were described before are not described again."""
    clf = OnlineClassifier(autosave=tmp_path, every=every).partial_fit(X[:30], Y[:30])
    calls = Counter[str]()

    def counted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(*given: Any, **named: Any) -> Any:
            calls[name] += 1
            return original(*given, **named)

        monkeypatch.setattr(module, name, call)

    counted(inputs, "check_batch")
    counted(model, "check_finite")
    counted(storage, "describe")
    counted(classifier, "check_settings")
    clf.partial_fit(X[30:31].tolist(), Y[30:31])
    assert calls == {"check_batch": 1, "check_finite": 1}
    clf.unknown_rate = 0.2
    clf.partial_fit(X[31:32].tolist(), Y[31:32])
    assert calls == {"check_batch": 2, "check_finite": 2, "describe": 1, "check_settings": 1}
    clf.close()


@pytest.mark.parametrize("every", [1, 1000])
@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_a_call_that_is_interrupted_at_its_end_changes_nothing(
    name: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the file was replaced already, in a first call and in later ones."""
    accept, clf = Autosave.accept, OnlineClassifier(name, autosave=tmp_path, every=every)

    def interrupted(*given: Any) -> None:
        accept(*given)
        raise KeyboardInterrupt

    for start in (0, 30):
        before = state_of(clf)
        with monkeypatch.context() as patch:
            patch.setattr(Autosave, "accept", interrupted)
            with pytest.raises(KeyboardInterrupt):
                clf.partial_fit(X[start : start + 30], Y[start : start + 30])
        assert state_of(clf) == before
        if start:
            assert bits(OnlineClassifier.load(tmp_path)) == bits(clf)
        else:
            assert not (tmp_path / FILE).exists()
        clf.partial_fit(X[start : start + 30], Y[start : start + 30])
    clf.close()
    assert bits(OnlineClassifier.load(tmp_path)) == bits(learn(learn(OnlineClassifier(name), 0, 30), 30, 60))


def test_a_process_that_ends_has_saved_everything(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", ENDINGS, str(tmp_path)], check=True)
    endings = {path.name: saved(path) for path in tmp_path.iterdir() if path.is_dir()}
    assert endings == dict.fromkeys(["last line", "sys.exit", "exception", "collected", "with", "child"], 900)


@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_all_is_saved_when_the_classifier_goes_away(name: str, tmp_path: Path) -> None:
    with OnlineClassifier(name, autosave=tmp_path / "with") as clf:
        learn(learn(clf, 0, 10), 10, 300)
        assert saved(tmp_path / "with") == 10  # the first call at once, as every=1000 says
    assert saved(tmp_path / "with") == 300
    learn(clf, 300, 310)  # goes on after it was closed
    clf.close()
    clf.close()
    assert saved(tmp_path / "with") == 310
    other = learn(learn(OnlineClassifier(name, autosave=tmp_path / "collected"), 0, 10), 10, 300)
    expected = bits(other)
    del other
    assert bits(OnlineClassifier.load(tmp_path / "collected")) == expected


def test_a_pause_is_saved_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebyone.estimator.storage.SECONDS", 0.1)
    clf = learn(learn(OnlineClassifier(autosave=tmp_path), 0, 10), 10, 30)
    limit = time.monotonic() + 30
    while saved(tmp_path) < 30 and time.monotonic() < limit:
        time.sleep(0.05)
    assert saved(tmp_path) == clf.n_samples_seen_ == 30


def test_calls_save_by_time_if_the_thread_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onebyone.estimator.storage.Autosave._save_in_background", lambda autosave: None)
    clf = learn(learn(OnlineClassifier(autosave=tmp_path), 0, 10), 10, 20)
    assert saved(tmp_path) == 10
    monkeypatch.setattr("onebyone.estimator.storage.SECONDS", 0.0)
    learn(clf, 20, 30)
    assert saved(tmp_path) == 30


@pytest.mark.parametrize("every", [1, 7, 50])
@pytest.mark.parametrize("name", DEFAULT_AND_CCP)
def test_fewer_than_every_samples_are_unsaved(name: str, every: int, tmp_path: Path) -> None:
    clf, start = OnlineClassifier(name, autosave=tmp_path, every=every), 0
    for size in (1, 3, 120, 7, 10, 49, 51, 200):
        learn(clf, start, start + size)
        start += size
        assert 0 <= clf.n_samples_seen_ - saved(tmp_path) < every
    clf.close()
    other = learn(OnlineClassifier.load(tmp_path), 0, 60)  # goes on saving there
    assert other.autosave == str(tmp_path)
    assert other.every == every
    assert other.n_samples_seen_ - saved(tmp_path) < every
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", FILE]


# One folder


def test_a_relative_folder_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()

    def elsewhere() -> None:
        monkeypatch.chdir(tmp_path / ("second" if Path.cwd().name == "first" else "first"))

    monkeypatch.chdir(tmp_path / "first")
    clf = learn(OnlineClassifier(autosave="folder", every=1), 0, 10)
    elsewhere()
    learn(clf, 10, 20).close()
    assert saved(tmp_path / "first" / "folder") == 20
    clf.set_params(autosave="other")
    learn(clf, 20, 30)  # begins in the second
    elsewhere()
    learn(clf, 30, 40).close()
    assert saved(tmp_path / "second" / "other") == 40
    loaded = OnlineClassifier.load("folder")
    elsewhere()
    learn(loaded, 20, 50).close()
    assert saved(tmp_path / "first" / "folder") == 50
    assert sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob(FILE)) == [
        "first/folder",
        "second/other",
    ]


def test_autosave_can_change_to_another_folder(tmp_path: Path) -> None:
    clf = learn(learn(OnlineClassifier(autosave=tmp_path / "one"), 0, 10), 10, 30)
    learn(clf.set_params(autosave=tmp_path / "two"), 30, 50)
    assert (saved(tmp_path / "one"), saved(tmp_path / "two")) == (30, 50)
    learn(OnlineClassifier.load(tmp_path / "one"), 30, 40).close()  # it is free again
    learn(clf.set_params(autosave=None), 50, 60)
    del clf
    assert (saved(tmp_path / "one"), saved(tmp_path / "two")) == (40, 50)


def test_a_file_does_not_set_the_autosave_folder(tmp_path: Path) -> None:
    clf = learn(OnlineClassifier(autosave=tmp_path / "folder"))
    clf.save(tmp_path / "file")
    assert OnlineClassifier.load(tmp_path / "file").autosave is None


def test_a_folder_that_cannot_be_written_is_refused_in_the_first_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot be written"):
        learn(OnlineClassifier(autosave=tmp_path / "file"))


# One writer


def test_a_folder_has_one_writer_in_a_process(tmp_path: Path) -> None:
    first = learn(OnlineClassifier(autosave=tmp_path, every=1), 0, 10)
    second = OnlineClassifier.load(tmp_path)
    before = state_of(second)
    with pytest.raises(UsageError, match=f"another classifier.* saves to {tmp_path}, .*close that one first"):
        learn(second, 10, 20)
    assert state_of(second) == before
    assert second.predict(X[:5]).shape == (5,)  # it may read
    learn(first, 10, 20).close()
    with pytest.raises(
        UsageError, match=f"has saved to {tmp_path} since this one was loaded .*; load the folder again"
    ):
        learn(second, 10, 20)
    third = learn(OnlineClassifier.load(tmp_path), 20, 30)
    assert saved(tmp_path) == 30
    with pytest.raises(UsageError, match="another classifier"):
        learn(first, 20, 30)
    del third
    assert learn(OnlineClassifier.load(tmp_path), 30, 40).n_samples_seen_ == 40


# Calls that fail


def full_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> type[BaseException]:
    def write_bytes(path: Path, data: bytes) -> int:
        path.open("wb").close()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    return UsageError


def read_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> type[BaseException]:
    def touch(path: Path, **options: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "touch", touch)
    return UsageError


def in_a_step(monkeypatch: pytest.MonkeyPatch, folder: Path) -> type[BaseException]:
    fail_in_step(monkeypatch, KeyboardInterrupt)
    return KeyboardInterrupt


def diverging(monkeypatch: pytest.MonkeyPatch, folder: Path) -> type[BaseException]:
    fail_in_step(monkeypatch, None)
    return UsageError


def fail_in_step(monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None) -> None:
    """Raise an error, or make weights NaN, in the third step from now, after it has changed the learner."""
    from onebyone.methods import Learner
    from onebyone.statistics.patch_lda import PatchLDA

    monkeypatch.setattr(PatchLDA, "steps_matter", True)  # several steps per call
    original, steps = Learner.count, 0

    def count(learner: Any, y: Any) -> None:
        nonlocal steps
        original(learner, y)
        steps += 1
        if steps == 3 and error is not None:
            raise error
        if steps == 3:
            for name, tensor in learner.state_dict().items():
                if tensor.is_floating_point() and "memory." not in name:
                    tensor.fill_(float("nan"))

    monkeypatch.setattr(Learner, "count", count)


def after_the_file_was_replaced(monkeypatch: pytest.MonkeyPatch, folder: Path) -> type[BaseException]:
    original = Path.replace

    def replace(path: Path, target: Path) -> Path:
        original(path, target)
        monkeypatch.setattr(Path, "replace", original)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", replace)
    return KeyboardInterrupt


FAILURES = [full_disk, read_only, in_a_step, diverging, after_the_file_was_replaced]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", mostly_slow([*DEFAULT_AND_CCP, "hybrid", "icarl"], fast=DEFAULT_AND_CCP))
def test_a_call_that_fails_changes_nothing(
    name: str,
    call: str,
    first: bool,
    failure: Callable[..., type[BaseException]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither in memory nor on disk. The call can be repeated, and is then learnt once."""
    parameters: dict[str, Any] = {"memory": "30KB", "options": None if name != "ccp" else {"memory_policy": "balanced"}}
    folder, alone = tmp_path / "folder", OnlineClassifier(name, **parameters)
    clf = OnlineClassifier(name, autosave=folder, every=1, **parameters)
    if not first:
        for each in (clf, alone):
            learn(each, 0, 250)
    before = state_of(clf)
    with monkeypatch.context() as patch, pytest.raises(failure(patch, folder)):
        getattr(clf, call)(X[250:300], Y[250:300])
    assert state_of(clf) == before
    assert (folder / FILE).exists() is not first
    assert first or bits(OnlineClassifier.load(folder)) == before["tensors"]
    for each in (clf, alone):
        getattr(each, call)(X[250:300], Y[250:300])
    assert bits(clf) == bits(alone)
    assert saved(folder) == clf.n_samples_seen_ == 50 + (250 if not first and call == "partial_fit" else 0)


def test_a_classifier_that_is_collected_while_shapes_are_computed_is_saved(tmp_path: Path) -> None:
    """Garbage is collected at any time, also where PyTorch computes with tensors that have no values."""
    clf = OnlineClassifier(autosave=tmp_path / "folder", every=1000).partial_fit([[0.0], [1.0]], ["a", "b"])
    clf.partial_fit([[0.5], [1.5]], ["a", "b"])
    with FakeTensorMode():
        del clf
        gc.collect()
    assert OnlineClassifier.load(tmp_path / "folder").n_samples_seen_ == 4
