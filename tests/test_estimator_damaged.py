"""Damaged and forged files of a classifier are refused."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors import torch as safetensors
from torch import Tensor, nn

from classifiers import forged
from onebyone import OnlineClassifier, UsageError, __version__
from onebyone.formats import Format
from onebyone.methods import AUTO
from onebyone.tensors import digest


@pytest.fixture(scope="module", params=[20, 300])
def statistics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of the default method, before and after its first samples are complete."""
    path = tmp_path_factory.mktemp("statistics") / "file"
    x, y = np.random.default_rng(0).normal(size=(request.param, 3)), ["a", "b"] * (request.param // 2)
    clf = OnlineClassifier().partial_fit(x, y)
    assert clf.method_ == "patch-lda"
    clf.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "file"
    module = nn.Linear(3, 4)
    x, y = np.random.default_rng(0).normal(size=(20, 3)), ["a", "b"] * 10
    OnlineClassifier("er", memory=5, encoder=module).partial_fit(x, y).save(path)
    return path.read_bytes()


def attempt(path: Path) -> str:
    """Load a file with any content. Returns the error message, or "works" if the classifier can be used."""
    try:
        clf = OnlineClassifier.load(path, encoder=nn.Linear(3, 4))
    except ValueError as error:
        return str(error)
    x = np.ones((3, 3))
    assert set(clf.predict(x)) <= set(clf.classes_)
    try:
        clf.partial_fit(x, [clf.classes_.tolist()[0]] * 3)
    except UsageError as error:
        if "training diverged" not in str(error):  # a learning rate of 1e308 is valid
            raise
    return "works"


@pytest.mark.slow
def test_ten_thousand_damaged_files(saved: bytes, tmp_path: Path) -> None:
    damage(saved, tmp_path / "file", 10_000)


def test_damaged_statistics(statistics: bytes, tmp_path: Path) -> None:
    damage(statistics, tmp_path / "file", 1_000)


def damage(saved: bytes, path: Path, times: int) -> None:
    """Flip, remove, insert and repeat bytes, in the header more often than elsewhere."""
    chance, works = random.Random(0), 0
    header = 8 + int.from_bytes(saved[:8], "little")
    for _ in range(times):
        content = bytearray(saved)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            position = chance.randrange(chance.choice((8, header, len(content))))
            match chance.randrange(5):
                case 0:
                    content[position % len(content)] = chance.randrange(256)
                case 1:
                    content[position % len(content)] ^= 1 << chance.randrange(8)
                case 2:
                    del content[max(1, position) :]
                case 3:
                    content[position:position] = chance.randbytes(chance.randrange(1, 20))
                case 4:
                    content[position:position] = content[position : position + chance.randrange(1, 200)]
        path.write_bytes(content)
        said = attempt(path)
        assert said == "works" or said.startswith(f"{path} cannot be loaded: "), said
        works += said == "works"
        assert said != "works" or len(content) == len(saved), "a byte too many or too few went unnoticed"
    assert works < times / 20  # a byte may be replaced by itself


def value_paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*before, key)
        yield from value_paths(inner, (*before, key))


STRANGE = [None, True, -1, 0, 1, 3, 17, 10**6, 10**12, 10**40, 0.5, 1e308, "", "er", "../../etc", [], [1], {}, {"a": 1}]


def test_forged_descriptions(saved: bytes, tmp_path: Path) -> None:
    forge(saved, tmp_path / "file", at_least=40)


def test_forged_descriptions_of_statistics(statistics: bytes, tmp_path: Path) -> None:
    forge(statistics, tmp_path / "file", at_least=30)


def forge(saved: bytes, path: Path, at_least: int) -> None:
    """Replace or remove every value of the description. The file is refused, or the classifier works."""
    chance = random.Random(0)
    path.write_bytes(saved)
    with safe_open(path, framework="pt") as file:
        everywhere = list(value_paths(json.loads(file.metadata()["onebyone"])))
    assert len(everywhere) >= at_least
    for position in everywhere:
        for value in [*chance.sample(STRANGE, 4), "gone"]:

            def change(description: Any, tensors: Any, position: Any = position, value: Any = value) -> None:
                for key in position[:-1]:
                    description = description[key]
                if value == "gone":
                    del description[position[-1]]
                else:
                    description[position[-1]] = value

            forged(saved, path, change)
            said = attempt(path)
            assert said == "works" or "cannot be loaded" in said, (position, value, said)


def with_value(name: str, value: Any) -> Any:
    def change(description: Any, tensors: Any) -> None:
        *path, last = name.split(".")
        for key in path:
            description = description[key]
        description[last] = value

    return change


def tensor(name: str, make: Any) -> Any:
    def change(description: Any, tensors: dict[str, Tensor]) -> None:
        tensors[name] = make(tensors.get(name))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value("version", 7), f"it has version 7 of its format, which onebyone {__version__} does not know; up"),
        (with_value("version", 5), "it was written before release 0.3.0, and such files are not read"),
        (with_value("version", "5"), "its version is '5', so it is damaged"),
        (with_value("parameters.halflife", 9), "it has the parameter 'halflife', which onebyone"),
        (with_value("options.momentum", 9), "it has the option 'momentum' of er, which onebyone"),
        (with_value("room", 10**12), "counts is torch.int64"),
        (with_value("room", 10**30), "whole number"),
        (with_value("options.memory_samples", 10**12), "memory.x is"),
        (with_value("options.replay_size", 10**12), "replay_size is 10+; it must be at most"),
        (with_value("layout.shape", [10**7]), "cannot read samples|is"),
        (with_value("layout.shape", [10**12]), "is not a layout"),
        (with_value("parameters.method", "os.system"), "unknown method"),
        (with_value("parameters.encoder", "hf-hub:somebody/thing"), "unknown encoder"),
        (with_value("parameters.encoder", "../../module.py"), "unknown encoder"),
        (with_value("parameters.autosave", "/tmp"), "its parameters are not those"),
        (with_value("parameters.batch_size", 0), "batch_size is 0"),
        (with_value("labels", ["a", "a"]), "labels"),
        (with_value("labels", ["a", 1]), "different types"),
        (with_value("labels", ["a"]), "different slots"),
        (with_value("slots", [0, 0]), "different slots"),
        (with_value("slots", [0, 16]), "different slots"),
        (with_value("slots", [0, True]), "different slots"),
        (with_value("slots", [0, 2]), "class without a label"),
        (with_value("parameters.prior", [["a", 2.0]]), "must be probabilities"),
        (with_value("parameters.unknown_rate", 1.0), "unknown_rate is 1.0"),
        (tensor("record.y", lambda old: old + 2), "class without a label"),
        (tensor("record.y", lambda old: old[1:]), "another type or shape"),
        (tensor("record.scores", lambda old: old * float("nan")), "not finite"),
        (with_value("labels", []), "labels"),
        (with_value("labels", [str(n) for n in range(17)]), "labels"),
        (with_value("features", ["a"]), "names of features"),
        (tensor("memory.y", lambda old: old + 10**6), "class without a label"),
        (tensor("memory.y", lambda old: old - 5), "class without a label"),
        (tensor("memory.seen", lambda old: old - 100), "counts of samples"),
        (tensor("memory.seen", lambda old: old + 2**62), "counts of samples"),
        (tensor("counts", lambda old: -old), "counts of samples"),
        (tensor("counts", lambda old: old * 0), "classes it has seen"),
        (tensor("counts", lambda old: old + 1), "classes it has seen"),
        (tensor("head.weight", lambda old: old * float("nan")), "not finite"),
        (tensor("head.weight", lambda old: old.double()), r"head.weight is torch.float64"),
        (tensor("head.weight", lambda old: old[:, :2].clone()), r"head.weight is torch.float32 \(16, 2\)"),
        (tensor("other", lambda old: torch.zeros(3)), "missing or unexpected tensors"),
        (tensor("_extra_state", lambda old: old[:100]), "damaged"),
        (tensor("_extra_state", lambda old: old * 0 + 255), "damaged"),
    ],
)
def test_a_forged_file_is_refused(saved: bytes, change: Any, message: str, tmp_path: Path) -> None:
    forged(saved, tmp_path / "file", change)
    with pytest.raises(UsageError, match=f"cannot be loaded: .*({message})"):
        OnlineClassifier.load(tmp_path / "file", encoder=nn.Linear(3, 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value("method", "os.system"), "unknown method"),
        (with_value("method", AUTO), "unknown method"),
        (with_value("method", "er"), "the option 'budget' of er"),
        (with_value("room", 10**12), "it must be at least"),
        (with_value("options.budget", 10**7), "is torch"),
        (with_value("options.budget", 10**12), "is torch"),
        (with_value("options.budget", 10**40), "is torch|damaged"),
        (with_value("layout.shape", [10**7]), "it must be at least"),
        (tensor("counts", lambda old: -old), "class without a label|counts of samples"),
        (tensor("moments.weights", lambda old: old - 1e9), "counts of samples"),
        (tensor("moments.products", lambda old: torch.full_like(old, -(2**30))), "those of any samples"),
        (tensor("extractor.thresholds", lambda old: old * float("nan")), "not finite"),
    ],
)
@pytest.mark.parametrize("statistics", [300], indirect=True)
def test_forged_statistics_are_refused(statistics: bytes, change: Any, message: str, tmp_path: Path) -> None:
    forged(statistics, tmp_path / "file", change)
    with pytest.raises(UsageError, match=f"cannot be loaded: .*({message})"):
        OnlineClassifier.load(tmp_path / "file")


def test_forged_statistics_inside_a_hybrid_are_refused(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(300, 3))
    OnlineClassifier("hybrid", memory="30KB").partial_fit(x, ["a", "b"] * 150).save(tmp_path / "whole")
    change = tensor("statistics.moments.products", lambda old: torch.full_like(old, -(2**30)))
    forged((tmp_path / "whole").read_bytes(), tmp_path / "file", change)
    with pytest.raises(UsageError, match=r"cannot be loaded: .*those of any samples"):
        OnlineClassifier.load(tmp_path / "file")


@pytest.mark.parametrize("statistics", [20], indirect=True)
def test_kept_samples_without_a_label_are_refused(statistics: bytes, tmp_path: Path) -> None:
    forged(statistics, tmp_path / "file", tensor("kept.labels", lambda old: old + 2))
    with pytest.raises(UsageError, match="cannot be loaded: its memory holds samples of a class without a label"):
        OnlineClassifier.load(tmp_path / "file")


@pytest.mark.parametrize("name", ["mlp", "scaled-mlp", "resnet18", "conv"])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_file_with_huge_sizes_allocates_nothing(saved: bytes, name: str, frozen: bool, tmp_path: Path) -> None:
    def change(description: Any, tensors: Any) -> None:
        description["parameters"] |= {"encoder": name, "freeze_encoder": frozen}
        description["layout"]["shape"] = [2**26]
        description["room"] = 10**12

    forged(saved, tmp_path / "file", change)
    with pytest.raises(UsageError, match="cannot be loaded"):
        OnlineClassifier.load(tmp_path / "file")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 8,
        (2**63).to_bytes(8, "little") + b"{}",
        (10**11).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (10**6).to_bytes(8, "little") + b'{"__metadata__":' + b'{"a":' * 100_000 + b" " * 10**6,
        b"PK\x03\x04 pickled or zipped",
    ],
    ids=range(7),
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match="cannot be loaded"):
        OnlineClassifier.load(tmp_path / "file")


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    text = "[" * 100_000
    tensors = {"a": torch.zeros(1)}
    content = safetensors.save(tensors, {"onebyone": text, "sha256": digest(tensors, text)})
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match="cannot be loaded"):
        OnlineClassifier.load(tmp_path / "file")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; give the path of a saved classifier"):
        OnlineClassifier.load(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"is a folder without classifier.safetensors; give a saved file or"):
        OnlineClassifier.load(tmp_path)


def test_the_version_that_opens_a_newer_file_is_named(saved: bytes, tmp_path: Path) -> None:
    def change(description: Any, _: Any) -> None:
        description |= {"version": 99, "written_by": "7.1"}

    forged(saved, tmp_path / "file", change)
    with pytest.raises(UsageError, match=r"onebyone 7.1 wrote it, with version 99 .* 'onebyone>=7.1'"):
        OnlineClassifier.load(tmp_path / "file", encoder=nn.Linear(3, 4))


def test_a_parameter_that_a_file_does_not_have_has_its_default(saved: bytes, tmp_path: Path) -> None:
    """It was written before there was this parameter."""

    def change(description: Any, _: Any) -> None:
        del description["parameters"]["unknown_rate"], description["options"]["learning_rate"]

    forged(saved, tmp_path / "file", change)
    clf = OnlineClassifier.load(tmp_path / "file", encoder=nn.Linear(3, 4))
    assert clf.unknown_rate == OnlineClassifier().unknown_rate
    assert clf.partial_fit(np.ones((3, 3)), ["b", "c", "a"]).n_samples_seen_ == 23


def test_formats_are_converted_one_version_at_a_time() -> None:
    def first(found: Any, tensors: Any) -> None:
        found["b"] = found.pop("a")

    def second(found: Any, tensors: Any) -> None:
        tensors["c"] = found["b"] + 1

    found, tensors = {"version": 3, "a": 1}, dict[str, Any]()
    Format(5, {3: first, 4: second}).update(found, tensors)
    assert (found["b"], tensors) == (1, {"c": 2})
    with pytest.raises(UsageError, match=r"before release 0.3.0"):
        Format(5, {3: first, 4: second}).update({"version": 2})
