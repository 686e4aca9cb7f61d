import csv
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor

from onebyone import Dataset, UsageError, create, methods, streams
from onebyone.evaluation import Result, metrics
from onebyone.methods import Options, method
from onebyone.runs import Listener, RunConfig, run
from onebyone.streams import Stream, Task, class_incremental
from run_folders import FILES, names, numbers
from tiers import mostly_slow


@pytest.fixture(scope="module")
def little(digits: Dataset) -> Dataset:
    """The first twelve training samples and the first five test samples of each digit."""

    def first(y: Tensor, count: int) -> Tensor:
        return torch.cat([(y == label).nonzero().flatten()[:count] for label in range(10)])

    train, test = first(digits.train_y, 12), first(digits.test_y, 5)
    x, y = digits.train_x[train], digits.train_y[train]
    return replace(digits, train_x=x, train_y=y, test_x=digits.test_x[test], test_y=digits.test_y[test])


@pytest.mark.parametrize("name", mostly_slow(methods(), fast=["finetune", "ccp", "patch-lda"]))
def test_the_same_seed_gives_the_same_result_and_another_seed_another(
    name: str, little: Dataset, tmp_path: Path
) -> None:
    config = RunConfig(method=name, classes_per_task=5, memory_per_class=3, prequential=True)
    first, second = (run(config, data=little, out=tmp_path / folder) for folder in "ab")
    assert numbers(first) == numbers(second)
    texts = [(tmp_path / folder / "result.json").read_text().split('"seconds"')[0] for folder in "ab"]
    assert texts[0] == texts[1]
    other = run(replace(config, seed=1), data=little)
    assert (other.accuracy_matrix, other.prequential) != (first.accuracy_matrix, first.prequential)


@pytest.mark.parametrize("name", ["er", "icarl", "ccp"])
def test_a_run_equals_a_hand_written_loop(name: str, little: Dataset) -> None:
    """Accuracy matrix and prequential accuracy, counted one sample at a time."""
    found = run(RunConfig(method=name, classes_per_task=4, seed=3, batch_size=7, prequential=True), data=little)

    learner = create(name, little.spec, seed=3)
    stream = class_incremental(little.train_y, 10, 4, batch_size=7, seed=3)
    matrix, right_before = [], 0
    for task in stream.tasks:
        for index in task.indices.split(7):
            answers = learner.predict(little.train_x[index]).tolist()
            for sample, answer in zip(index.tolist(), answers, strict=True):
                right_before += answer == int(little.train_y[sample])
            learner.observe(little.train_x[index], little.train_y[index])
        learner.end_task()
        answers, truth = learner.predict(little.test_x).tolist(), little.test_y.tolist()
        row = []
        for group in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9)):
            right = [answers[sample] == label for sample, label in enumerate(truth) if label in group]
            row.append(sum(right) / len(right))
        matrix.append(tuple(row))

    assert found.accuracy_matrix == tuple(matrix)
    assert found.prequential == right_before / 120
    assert found.tasks == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))
    assert (found.samples, found.updates, found.disjoint) == (120, 7 + 7 + 4, True)


def test_prequential_prediction_does_not_change_the_learner(little: Dataset) -> None:
    with_it, without = (run(RunConfig(method="icarl", prequential=asked), data=little) for asked in (True, False))
    assert without.prequential is None
    assert with_it.prequential is not None
    assert with_it.accuracy_matrix == without.accuracy_matrix


def test_the_folder_of_a_run(little: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "not" / "there" / "yet"
    result = run(RunConfig(method="er", classes_per_task=4), data=little, out=out, checkpoint_every=2)
    assert names(out) == FILES
    assert Result.read(out / "result.json") == result
    assert yaml.safe_load((out / "config.yaml").read_text()) == result.config
    with (out / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["task"] for row in rows] == ["1", "2", "3"]
    assert [row["samples"] for row in rows] == ["48", "96", "120"]
    assert [float(row["accuracy"]) for row in rows] == pytest.approx(list(result.anytime), abs=1e-6)


def test_without_a_folder_nothing_is_written(little: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(RunConfig(method="finetune", classes_per_task=10), data=little, checkpoint_every=1)
    assert names(tmp_path) == set()


def test_one_task_has_no_forgetting(little: Dataset) -> None:
    result = run(RunConfig(method="er", classes_per_task=10), data=little)
    assert (result.forgetting, result.backward_transfer) == (None, None)
    assert result.anytime == (result.accuracy,)
    assert result.learning_accuracy == result.accuracy


def test_a_shuffled_stream_has_no_forgetting(little: Dataset) -> None:
    result = run(RunConfig(method="iid", classes_per_task=5), data=little)
    assert not result.disjoint
    assert (result.forgetting, result.backward_transfer, result.learning_accuracy) == (None, None, None)
    assert result.anytime == tuple(sum(row) / 2 for row in result.accuracy_matrix)


OTHER_STREAMS = ("blurry:share=0.3", "gaussian", "returning:periods=2", "iid", "class-incremental:imbalance=4")


@pytest.mark.parametrize("text", OTHER_STREAMS)
@pytest.mark.parametrize("name", ["er", "icarl"])
def test_other_streams_equal_a_hand_written_loop(name: str, text: str, little: Dataset, tmp_path: Path) -> None:
    """Accuracy after each part over the classes seen so far, counted one sample at a time."""
    config = RunConfig(method=name, classes_per_task=3, seed=2, stream=text)
    found = run(config, data=little, out=tmp_path)
    learner = create(name, little.spec, seed=2)
    stream = streams.stream_named(text, little.train_y, 10, 3, seed=2)
    met: set[int] = set()
    curve = []
    for task in stream.tasks:
        for index in task.batches(10):
            learner.observe(little.train_x[index], little.train_y[index])
            met |= set(little.train_y[index].tolist())
        learner.end_task()
        answers, truth = learner.predict(little.test_x).tolist(), little.test_y.tolist()
        groups = []
        for other in stream.tasks:
            asked = [a == t for a, t in zip(answers, truth, strict=True) if t in other.classes and t in met]
            groups += [sum(asked) / len(asked)] if asked else []
        curve.append(sum(groups) / len(groups))
    assert found.anytime == pytest.approx(curve)
    assert found.accuracy == pytest.approx(curve[-1])
    assert found.samples == stream.samples
    assert (found.forgetting is None) == (not stream.disjoint)
    assert Result.read(tmp_path / "result.json") == found
    assert vars(metrics(found.accuracy_matrix, found.disjoint)).items() <= vars(found).items()
    assert run(config, data=little, out=tmp_path) == found  # it is the same run
    with pytest.raises(UsageError, match=r"holds a run of another configuration \(stream there is"):
        run(replace(config, stream="blurry:share=0.4"), data=little, out=tmp_path)


def test_classes_that_have_not_arrived_are_not_in_the_curve(little: Dataset) -> None:
    result = run(RunConfig(method="er", stream="returning:periods=2"), data=little)
    assert result.tasks == tuple((label,) for label in range(10)) * 2
    assert result.anytime[0] == result.accuracy_matrix[0][0] == 1.0  # it knows and is asked for one class only
    assert result.accuracy_matrix[0][1:10] == (None,) * 9
    assert None not in result.accuracy_matrix[9]


def test_a_stream_that_begins_without_test_samples_is_refused(little: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = little.test_y != 0
    data = replace(little, test_x=little.test_x[keep], test_y=little.test_y[keep])
    zeros, others = (little.train_y == 0).nonzero().flatten(), (little.train_y != 0).nonzero().flatten()
    tasks = Task((0, 1, 2, 3, 4), zeros), Task((5, 6, 7, 8, 9), others)
    monkeypatch.setattr(streams, "stream_named", lambda *_, **__: Stream(tasks, disjoint=False, batch_size=10))
    with pytest.raises(UsageError, match=r"no test sample has a class of task \(0,\); add some"):
        run(RunConfig(method="er"), data=data)


@pytest.mark.parametrize("name", methods())
def test_the_recorded_configuration_has_every_option(name: str, little: Dataset) -> None:
    network = {"learning_rate": "0.02", "encoder": "mlp"}
    given = network if issubclass(method(name).options, Options) else {"shrinkage": "0.02"}
    config = RunConfig(method=name, device="cpu", memory_per_class=4, classes_per_task=10, options=given)
    result = run(config, data=little)
    options = result.config["options"]
    known = {field.name for field in fields(method(name).options)}
    assert options.keys() == known - {"memory_per_class"}
    assert all(str(options[option]) == text for option, text in given.items())
    assert options["augment" if given is network else "threshold"] == 1  # as it is by itself
    assert result.config["memory_per_class"] == (4 if "memory_per_class" in known else None)
    assert result.config.keys() == {field.name for field in fields(RunConfig)} | {"data"}
    assert (result.config["device"], result.config["data"]) == ("cpu", little.fingerprint)


def test_bf16_is_recorded_and_another_folder() -> None:
    exact, rounded = (RunConfig(options={"precision": precision}, device="cpu") for precision in ("float32", "bf16"))
    assert exact.folder_name() == RunConfig(device="cpu").folder_name() != rounded.folder_name()
    assert rounded.resolved("cpu", "")["options"]["precision"] == "bf16"


def test_held_out_does_not_use_the_test_set(little: Dataset) -> None:
    garbage = replace(little, test_x=255 - little.test_x, test_y=little.test_y.flip(0))

    def results(held_out: bool) -> list[dict[str, Any]]:
        config = RunConfig(method="er", classes_per_task=5, held_out=held_out)
        return [numbers(run(config, data=data)) for data in (little, garbage)]

    real, tuned = results(held_out=False), results(held_out=True)
    assert tuned[0] == tuned[1]
    assert tuned[0]["samples"] == 120 - 10  # a tenth of twelve, rounded, of each class
    assert real[0]["accuracy_matrix"] != real[1]["accuracy_matrix"]


def test_a_random_order_of_classes_is_drawn_by_the_seed(little: Dataset) -> None:
    def tasks(name: str, seed: int) -> tuple[tuple[int, ...], ...]:
        config = RunConfig(method=name, seed=seed, class_order="random", classes_per_task=3)
        return run(config, data=little).tasks

    first = tasks("finetune", 0)
    assert sorted(label for task in first for label in task) == list(range(10))
    assert [len(task) for task in first] == [3, 3, 3, 1]
    assert first != ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9,))
    assert tasks("er", 0) == first  # the same for every method
    assert tasks("finetune", 1) != first


def test_a_class_without_test_samples_has_no_accuracy_and_a_task_without_is_refused(little: Dataset) -> None:
    keep = little.test_y != 3
    data = replace(little, test_x=little.test_x[keep], test_y=little.test_y[keep])
    result = run(RunConfig(method="er", classes_per_task=2), data=data)
    assert [label for label, accuracy in enumerate(result.class_accuracy) if accuracy is None] == [3]
    with pytest.raises(UsageError, match=r"no test sample .* \(3,\)"):
        run(RunConfig(method="er"), data=data)


def test_a_class_without_training_samples_has_accuracy_zero(little: Dataset) -> None:
    keep = little.train_y != 3
    data = replace(little, train_x=little.train_x[keep], train_y=little.train_y[keep])
    result = run(RunConfig(method="er", classes_per_task=2), data=data)
    assert result.class_accuracy[3] == 0.0
    assert result.samples == 108


@pytest.mark.parametrize("suffixes", [("",), ("_train", "_test")], ids=["one set", "two sets"])
def test_arrays_of_the_user(suffixes: tuple[str, ...], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for suffix in suffixes:
        arrays[f"y{suffix}"] = np.arange(60) % 3
        arrays[f"x{suffix}"] = random.normal(size=(60, 5)) + 3 * arrays[f"y{suffix}"][:, None]
    np.savez(tmp_path / "mine.npz", **arrays)
    config = RunConfig(method="er", dataset="arrays", classes_per_task=2)
    result = run(config, data_dir=tmp_path / "mine.npz", out=tmp_path / "out")
    assert result.samples == (48 if len(suffixes) == 1 else 60)
    assert result.tasks == ((0, 1), (2,))
    assert result.accuracy > 1 / 3
    assert Result.read(tmp_path / "out" / "result.json") == result


def test_images_of_the_user(tmp_path: Path) -> None:
    for number, colour in enumerate(["red", "green"] * 10):
        folder = tmp_path / "pictures" / colour
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 9), colour).save(folder / f"{number}.png")
    config = RunConfig(method="er", dataset="folder", options={"encoder": "conv"})
    result = run(config, data_dir=tmp_path / "pictures")
    assert (result.samples, result.tasks) == (16, ((0,), (1,)))


def test_a_finished_run_is_not_repeated(little: Dataset, tmp_path: Path) -> None:
    config = RunConfig(method="er", classes_per_task=5)
    first = run(config, data=little, out=tmp_path)
    path = tmp_path / "result.json"
    marked = replace(first, seconds={"training": 1234.5, "evaluation": 0.0})  # no second run would say so
    path.write_text(marked.to_json())
    # as after a kill between the last two writes of a run, or during one
    for leftover in ("checkpoint.safetensors", ".result.json.abc", ".checkpoint.safetensors.abc"):
        (tmp_path / leftover).write_bytes(b"half of it")
    (tmp_path / ".mine.abc").touch()
    before = path.stat().st_mtime_ns
    assert run(config, data=little, out=tmp_path) == marked
    assert path.stat().st_mtime_ns == before
    assert names(tmp_path) == FILES | {".mine.abc"}


def test_a_result_of_another_configuration_is_refused(little: Dataset, tmp_path: Path) -> None:
    """Also if config.yaml was lost; a refused run does not write it again."""
    config = RunConfig(method="er", classes_per_task=5)
    first = run(config, data=little, out=tmp_path)
    (tmp_path / "config.yaml").unlink()
    with pytest.raises(UsageError, match=r"a run of another configuration \(method there is er, here finetune"):
        run(replace(config, method="finetune"), data=little, out=tmp_path)
    assert names(tmp_path) == FILES - {"config.yaml"}
    assert run(config, data=little, out=tmp_path) == first
    assert names(tmp_path) == FILES


def test_temporary_files_of_a_killed_run_are_removed(little: Dataset, tmp_path: Path) -> None:
    for leftover in (".config.yaml.abc", ".checkpoint.safetensors.def"):
        (tmp_path / leftover).write_bytes(b"half of it")
    run(RunConfig(method="finetune", classes_per_task=10), data=little, out=tmp_path)
    assert names(tmp_path) == FILES


class RecordingListener(Listener):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def started(self, title: str, samples: int, done: int, tasks: int) -> None:
        self.calls.append((title, samples, done, tasks))

    def stepped(self, task: int, samples: int) -> None:
        self.calls.append((task, samples))

    def evaluated(self, task: int, accuracy: float) -> None:
        self.calls.append((task, "accuracy", accuracy))


def test_a_run_calls_its_listener(little: Dataset) -> None:
    listener = RecordingListener()
    result = run(RunConfig(method="er", classes_per_task=5, batch_size=25), data=little, listener=listener)
    first, last = result.anytime
    task = [(25,), (25,), (10,)]
    assert listener.calls == [
        ("er on digits", 120, 0, 2),
        *((0, *samples) for samples in task),
        (0, "accuracy", first),
        *((1, *samples) for samples in task),
        (1, "accuracy", last),
    ]


def test_a_run_restores_signal_handlers_and_works_in_a_thread(little: Dataset) -> None:
    config = RunConfig(method="er", classes_per_task=10)
    before = signal.getsignal(signal.SIGINT)
    result = run(config, data=little)
    assert signal.getsignal(signal.SIGINT) is before
    with ThreadPoolExecutor(1) as pool:
        assert numbers(pool.submit(run, config, data=little).result()) == numbers(result)
