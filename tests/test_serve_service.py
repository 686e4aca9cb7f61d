"""The service: nothing acknowledged is lost, a replay is bit-exact, and answers never wait for learning."""

import errno
import gc
import os
import shutil
import threading
import time
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onebyone import OnlineClassifier, UsageError
from onebyone.serve import service as service_module
from onebyone.serve.answers import Answer
from onebyone.serve.journal import CannotStore
from onebyone.serve.operations import Operation
from onebyone.serve.service import Busy, Service
from serving import SMALL, learn, state, vectors

X, Y = vectors(200)


def again(service: Service, to: Path) -> Service:
    """A service that starts from what is on the disk now, as after kill -9."""
    shutil.copytree(service.folder, to, ignore=shutil.ignore_patterns(".lock"))
    return Service(to)


def submit_many(service: Service) -> None:
    for _ in range(service_module.WAITING + service_module.GROUP + 2):
        service.submit(lambda model: None)


def solved(service: Service, sequence: int) -> None:
    end = time.monotonic() + 60
    while service.solved < sequence:
        assert time.monotonic() < end
        time.sleep(0.005)


STEP = st.one_of(
    st.tuples(st.just("learn"), st.integers(0, 150), st.integers(1, 30)),
    st.tuples(st.just("learn"), st.integers(0, 150), st.integers(1, 30)),
    st.tuples(st.just("undo"), st.just(0), st.just(0)),
    st.tuples(st.just("forget"), st.integers(0, 150), st.integers(1, 5)),
    st.tuples(st.just("rename"), st.sampled_from(["low", "high", "other"]), st.sampled_from(["low", "other"])),
    st.tuples(st.just("forget-class"), st.sampled_from(["low", "high", "other"]), st.just(0)),
    st.tuples(st.just("snapshot"), st.just(0), st.just(0)),
    st.tuples(st.just("upload"), st.just(0), st.just(0)),
)


def test_a_file_is_refused_with_how_to_serve_it(tmp_path: Path) -> None:
    OnlineClassifier().partial_fit([[1.0], [2.0]], ["a", "b"]).save(tmp_path / "model")
    with pytest.raises(UsageError, match=r"model is a file, .* send the file to /v1/merge"):
        Service(tmp_path / "model")


@settings(max_examples=12)
@given(st.lists(STEP, min_size=2, max_size=10))
def test_a_replay_gives_the_same_bits(tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Any operations, refused ones among them, with snapshots anywhere: what is on the disk is what is in memory."""
    folder = tmp_path_factory.mktemp("state")
    upload = OnlineClassifier(memory="3MB").partial_fit(X[:20], Y[:20])
    upload.save(folder / "upload")
    service = Service(folder / "state", "never")
    for kind, first, second in steps:
        operation = {
            "learn": lambda a, n: Operation("learn", tuple(Y[a : a + n]), X[a : a + n], (True,) * n),
            "forget": lambda a, n: Operation("forget", tuple(Y[a : a + n]), X[a : a + n]),
            "undo": lambda *_: Operation("undo"),
            "rename": lambda old, new: Operation("rename", names={old: new}),
            "forget-class": lambda label, _: Operation("forget-class", (label,)),
            "upload": lambda *_: Operation("merge", content=(folder / "upload").read_bytes()),
            "snapshot": lambda *_: lambda model: None,
        }[kind](first, second)
        if kind == "snapshot":
            service.submit(lambda model: None).result(60)
            service._snapshot()
            continue
        before = state(service.model)
        try:
            service.submit(operation).result(60)
        except UsageError:
            assert state(service.model) == before
    service.submit(lambda model: None).result(60)
    other = again(service, folder / "again")
    assert state(other.model) == state(service.model)
    other.close()
    service.close()
    third = Service(folder / "state")
    assert state(third.model) == state(other.model)
    third.close()


def test_a_change_that_nobody_waits_for_is_made_and_others_go_on(tmp_path: Path) -> None:
    """The server cancels its requests when it stops; a change cannot be taken back then."""
    service = Service(tmp_path / "state", "never")
    release = threading.Event()
    service.submit(lambda model: release.wait(60))
    abandoned = service.submit(Operation("learn", tuple(Y[:4]), X[:4]))
    after = service.submit(Operation("learn", tuple(Y[4:8]), X[4:8]))
    assert not abandoned.cancel()
    release.set()
    assert after.result(60)["samples"] == 8
    service.close()


def test_a_server_goes_on_learning_after_its_first_classifier_was_merged(tmp_path: Path) -> None:
    OnlineClassifier(memory="3MB").partial_fit(X[:20], Y[:20]).save(tmp_path / "model")
    service = Service(tmp_path / "state", "never")
    service.submit(Operation("merge", content=(tmp_path / "model").read_bytes())).result(60)
    assert learn(service, X[20:40], Y[20:40])["samples"] == 40
    service.close()


def test_a_full_disk_at_a_restart_loses_no_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OnlineClassifier(memory="3MB").partial_fit(X[:20], Y[:20]).save(tmp_path / "model")
    service = Service(tmp_path / "state", "never")
    service.submit(Operation("merge", content=(tmp_path / "model").read_bytes())).result(60)
    expected = state(service.model)

    def full(path: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(CannotStore, match="the disk is full"):
            again(service, tmp_path / "again")
        with pytest.raises(CannotStore, match="the disk is full"):
            service.submit(Operation("merge", content=(tmp_path / "model").read_bytes())).result(60)
    other = Service(tmp_path / "again")
    assert state(other.model) == expected
    other.close()
    service.close()


def test_files_that_a_killed_process_was_writing_are_removed(tmp_path: Path) -> None:
    Service(tmp_path / "state").close()
    names = {path.name for path in (tmp_path / "state").iterdir()}
    for name in (".journal-7.1234abcd", ".snapshot-7.safetensors.1234abcd", ".download.safetensors.1234abcd"):
        (tmp_path / "state" / name).touch()
    Service(tmp_path / "state").close()
    assert {path.name for path in (tmp_path / "state").iterdir()} == names


def test_answers_do_not_wait_for_a_change(tmp_path: Path) -> None:
    service = Service(tmp_path / "state")
    solved(service, learn(service, X[:50], Y[:50])["sequence"])
    answer, started, release = service.answer, threading.Event(), threading.Event()

    def slow(model: Any) -> None:
        started.set()
        release.wait(60)

    done: Future[None] = service.submit(slow)
    assert started.wait(60)
    assert answer is not None
    assert answer.predict(X[:50]).probabilities.argmax(1).tolist() == [answer.labels.index(label) for label in Y[:50]]
    assert service.answer is answer
    release.set()
    done.result(60)
    service.close()


def test_a_server_that_prepares_answers_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path / "state")
    empty, started, release = state(service.model), threading.Event(), threading.Event()

    def slow(settings: Any) -> None:
        started.set()
        release.wait(60)

    monkeypatch.setattr(service_module, "check_usable", slow)
    service.prepare()
    assert started.wait(60)
    assert service.look(state) == empty
    first = service.submit(Operation("learn", tuple(Y[:4]), X[:4]))
    assert not first.done()
    release.set()
    assert first.result(60)["learnt"] == 4
    service.prepare()  # nothing to do any more
    assert service.waiting == 0
    service.close()


def test_answers_are_those_of_a_classifier_that_was_taught_the_same(tmp_path: Path) -> None:
    service = Service(tmp_path / "state")
    solved(service, learn(service, X, Y)["sequence"])
    clf = OnlineClassifier(memory="3MB").partial_fit(X, Y)
    far = np.concatenate([X[:20], np.full((1, 4), 99, np.float32)])
    found = service.answer.predict(far) if service.answer else None
    assert found is not None
    np.testing.assert_allclose(found.probabilities, clf.predict_proba(far), atol=1e-5)
    expected = clf.predict(far, unknown="?") == "?"
    assert found.unknown.tolist() == expected.tolist()
    assert expected[-1]
    service.close()


def test_an_answer_is_freed_when_the_next_one_is_there(tmp_path: Path) -> None:
    """Without garbage collection, which comes seldom: solutions are large."""
    service = Service(tmp_path / "state")
    learn(service, X[:40], Y[:40])
    assert service.model.state is not None
    taught = service.model.state.copied()
    learner = weakref.ref(taught.learner)
    gc.disable()
    try:
        answer = Answer(taught, 1, "uniform", 0.05)
        del taught
        assert len(answer.predict(X[:2]).unknown) == 2
        del answer
        assert learner() is None
    finally:
        gc.enable()
    service.close()


def test_files_of_other_programs_in_the_state_folder_stay(tmp_path: Path) -> None:
    """Before, hidden files with a dot in their names were removed as temporary ones."""
    foreign = (".profile.bak", ".notes.deadbeef", ".env.local", "photo.jpg")
    for name in foreign:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".config.d").mkdir()
    service = Service(tmp_path)
    learn(service, X[:2], Y[:2])
    (tmp_path / "snapshot-of-the-shop.jpg").write_text("mine")
    service.close()
    Service(tmp_path).close()
    assert (tmp_path / ".config.d").is_dir()
    assert {(tmp_path / name).read_text() for name in (*foreign, "snapshot-of-the-shop.jpg")} == {"mine"}


def test_a_full_disk_loses_nothing_and_answers_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path / "state")
    solved(service, learn(service, X[:20], Y[:20])["sequence"])
    before = state(service.model)

    def full(file: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(CannotStore, match="the disk is full"):
            learn(service, X[20:40], Y[20:40])
        assert service.answer is not None
        assert len(service.answer.predict(X[:3]).unknown) == 3
    assert state(service.model) == before
    learn(service, X[20:40], Y[20:40])
    other = again(service, tmp_path / "again")
    assert state(other.model) == state(service.model)
    other.close()
    service.close()


def test_a_snapshot_that_fails_leaves_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(tmp_path / "state")
    learn(service, X[:20], Y[:20])
    for name in ("save", "base"):
        with monkeypatch.context() as patched:
            patched.setattr(service.model, name, lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
            service._snapshot()
        assert sorted(path.name for path in service.folder.glob("[js]*-*")) == ["journal-0"]
    other = again(service, tmp_path / "again")
    assert state(other.model) == state(service.model)
    other.close()
    service.close()


def test_snapshots_bound_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "SNAPSHOT_OPERATIONS", 5)
    service = Service(tmp_path / "state")
    for position in range(12):
        learn(service, X[position : position + 1], Y[position : position + 1])
    service.submit(lambda model: None).result(60)
    assert service._journal.sequence == 12
    assert sorted(path.name for path in service.folder.glob("journal-*")) == ["journal-10"]
    other = again(service, tmp_path / "again")
    assert state(other.model) == state(service.model)
    other.close()
    service.close()


def test_too_many_changes_are_refused(tmp_path: Path) -> None:
    service = Service(tmp_path / "state")
    release = threading.Event()
    service.submit(lambda model: release.wait(60))
    with pytest.raises(Busy):
        submit_many(service)
    release.set()
    service.close()


def test_a_folder_has_one_service_and_fixed_settings(tmp_path: Path) -> None:
    service = Service(tmp_path / "state", **SMALL)
    with pytest.raises(UsageError, match="another process serves"):
        Service(tmp_path / "state")
    service.close()
    with pytest.raises(UsageError, match="was created with size 8, and 32 is given now"):
        Service(tmp_path / "state", size=32)
    again = Service(tmp_path / "state", size=8)
    assert again.settings.gray
    again.close()


@pytest.mark.parametrize("name", ["settings.json", "journal-0"])
def test_a_damaged_folder_is_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    Service(tmp_path / "state").close()
    path = tmp_path / "state" / name
    path.write_bytes(b"!" + path.read_bytes()[1:])
    with pytest.raises(UsageError, match="restore"):
        Service(tmp_path / "state")
    path.unlink()
    if name == "settings.json":
        with pytest.raises(UsageError, match="has a journal but no"):
            Service(tmp_path / "state")


@pytest.mark.parametrize("given", [{"method": "nothing"}, {"encoder": "nothing"}, {"memory": "3 bytes"}, {"size": 2}])
def test_settings_that_cannot_be_used_are_refused_at_once(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        Service(tmp_path / "state", **given)
    assert not (tmp_path / "state" / "settings.json").exists()
    Service(tmp_path / "state", **SMALL).close()
