"""Whatever is wrong: one sentence on stderr, exit code 2, and nothing half-written."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from onebyone import methods
from onebyone.methods import Options
from run_folders import cut_short, names
from tiers import mostly_slow

Call = Callable[..., tuple[int, str, str]]
Refuse = Callable[..., str]
QUICK = ("run", "--method", "er", "--classes-per-task", 5, "--batch-size", 61)  # 24 steps


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--method cpc", "unknown method 'cpc'; did you mean 'ccp'? Known: ccp, der++, er,"),
        ("--method xyzzy", "unknown method 'xyzzy'; Known: ccp, der++, er,"),
        ("--dataset cifar", "unknown data set 'cifar'; did you mean 'cifar10'? Known: arrays, cifar10,"),
        ("--set learning_rat=1", "unknown option of ccp 'learning_rat'; did you mean 'learning_rate'? Known: "),
        ("--dataset cifar10 --data-dir new --set a=1", "unknown option of ccp 'a'; Known: "),  # not after a download
        ("--set encoder=resnet", "unknown encoder 'resnet'; did you mean 'resnet18'? Known: auto, conv, lite0, mlp,"),
        ("--set learning_rate", "--set 'learning_rate' is not of the form NAME=VALUE; write for example"),
        ("--set learning_rate=", "--set 'learning_rate=' is not of the form NAME=VALUE; write for example"),
        ("--set =1", "--set '=1' is not of the form NAME=VALUE; write for example"),
        ("--set learning_rate=fast", "learning_rate is 'fast'; it must be a number"),
        ("--set learning_rate=0", "learning_rate is 0.0; it must be above 0"),
        ("--set learning_rate=-1", "learning_rate is -1.0; it must be above 0"),
        ("--set learning_rate=nan", "learning_rate is nan; it must be above 0"),
        ("--set replay_size=1.5", "replay_size is '1.5'; it must be a whole number"),
        ("--set replay_size=0", "replay_size is 0; it must be at least 1"),
        ("--set prototype_momentum=1.1", "prototype_momentum is 1.1; it must be at most 1"),
        ("--set augment=maybe", "augment is 'maybe'; it must be yes or no"),
        ("--set replay_from=other", "unknown replay_from 'other'; did you mean 'others'? Known: all, others"),
        ("--set memory_per_class=5", "memory_per_class is an option of the run, not of the method; give it to the run"),
        ("--memory-per-class 0", "memory_per_class is 0; it must be at least 1"),
        ("--memory-per-class -3", "memory_per_class is -3; it must be at least 1"),
        ("--memory-per-class 999999999999999", "there is not enough memory; lower --memory-per-class"),
        ("--classes-per-task 0", "classes_per_task is 0; it must be at least 1"),
        ("--classes-per-task 11", "classes_per_task is 11; with 10 classes it must be in 1..10"),
        ("--seed -1", "seed is -1; it must be at least 0"),
        ("--seed one", "Invalid value for '--seed': "),
        ("--batch-size 0", "batch_size is 0; it must be at least 1"),
        ("--class-order lable", "unknown class_order 'lable'; did you mean 'label'? Known: label, random"),
        (
            "--stream blury",
            "unknown stream 'blury'; did you mean 'blurry'? Known: blurry, class-incremental, gaussian,",
        ),
        ("--stream blurry:", "stream 'blurry:' is not of the form NAME:OPTION=VALUE,OPTION=VALUE; write for example"),
        ("--stream blurry:share", "stream 'blurry:share' is not of the form NAME:OPTION=VALUE"),
        ("--stream blurry:share=0.1,", "stream 'blurry:share=0.1,' is not of the form NAME:OPTION=VALUE"),
        ("--stream blurry:shar=1", "unknown option of blurry 'shar'; did you mean 'share'? Known: imbalance, share"),
        ("--stream blurry:share=1.5", "share is 1.5; it must be at most 1"),
        ("--stream blurry --classes-per-task 10", "a stream of one task has no boundary to blur; lower classes_per_"),
        ("--stream gaussian:width=0", "width is 0.0; it must be above 0"),
        ("--stream returning:periods=0", "periods is 0; it must be at least 1"),
        ("--stream returning:periods=999", "a class has fewer samples than its 999 periods; lower per"),
        ("--stream iid:imbalance=0.5", "imbalance is 0.5; it must be at least 1"),
        ("--stream iid:imbalance=999", "imbalance is 999.0; the smallest class has 139 samples, so it can be at most"),
        ("--method iid --stream blurry", "iid learns a shuffled stream, not blurry; leave stream out or use iid"),
        ("--checkpoint-every 0", "checkpoint_every is 0; it must be at least 1"),
        ("--device gpu", "device 'gpu' cannot be used (no such kind of device); use cpu, cuda, cuda:N or auto"),
        ("--data-dir here", "digits is inside the package; leave --data-dir out, or name another data set"),
        ("--device cuda:99", "device 'cuda:99' cannot be used ("),
        ("--dataset arrays", "arrays: no file was given; expected an .npz file"),
        ("--dataset arrays --data-dir nowhere.npz", "arrays: nowhere.npz is not a file; expected an .npz file"),
        (
            "--dataset folder",
            "folder: root (data_dir) is not given; expected a folder with a sub-folder for each class",
        ),
        ("--dataset folder --data-dir nowhere", "nowhere is not a folder; expected one with a sub-folder"),
        ("--sed 1", "No such option: --sed (Possible options: --seed, --set, --stream)"),
        ("--set", "Option '--set' requires an argument"),
        ("er", "Got unexpected extra argument"),
    ],
)
@pytest.mark.parametrize("out", [(), ("--out", "out")], ids=["default folder", "chosen folder"])
def test_a_wrong_argument_is_refused_before_anything_is_written(
    words: str, sentence: str, out: tuple[str, ...], refuse: Refuse, tmp_path: Path
) -> None:
    assert refuse("run", *out, *words.split()).startswith(sentence)
    assert names(tmp_path) == set()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("rnu", "No such command 'rnu'. Did you mean 'run'?"),
        ("methods cpc", "unknown method 'cpc'; did you mean 'ccp'?"),
        ("demo --out", "Option '--out' requires an argument"),
    ],
)
def test_a_wrong_command_is_refused(words: str, sentence: str, refuse: Refuse) -> None:
    assert refuse(*words.split()).startswith(sentence)


def vectors(**changes: Any) -> dict[str, Any]:
    return {"x": np.ones((20, 4), np.float32), "y": np.arange(20) % 2} | changes


def with_nan() -> Any:
    x = np.ones((20, 4))
    x[7, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        (vectors(x=with_nan()), "NaN or infinite values (first in sample 7); remove or fill them"),
        (vectors(y=np.arange(20) % 2 - 1), "labels from -1 to 0; with 1 classes they must be in 0..0"),
        (vectors(y=np.arange(19) % 2), "20 samples and labels of shape (19,); give one label per sample"),
        (vectors(y=np.arange(20) / 2), "labels are integers from 0"),
        (vectors(y=np.arange(20) * 10**9), "the highest label is 19,000,000,000"),
        (vectors(y=np.arange(20) % 2 * 5), "no training sample has a class of task (1,)"),
        (vectors(x=np.ones((20, 0))), "expected at least one sample"),
        ({"a": np.ones(3)}, "holds a; expected an .npz file with x_train, y_train, x_test and y_test, or with x and y"),
    ],
)
def test_wrong_arrays_are_refused(arrays: dict[str, Any], sentence: str, refuse: Refuse, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    assert sentence in refuse("run", "--dataset", "arrays", "--data-dir", "mine.npz", "--out", "out")
    assert names(tmp_path) == {"mine.npz"}


def test_an_encoder_that_does_not_fit_the_samples_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **vectors())
    words = ("run", "--dataset", "arrays", "--data-dir", "mine.npz", "--set", "encoder=conv")
    assert refuse(*words) == "encoder 'conv' reads images, and the samples are vectors of 4; use encoder=mlp"


@pytest.mark.parametrize(
    "damage", [cut_short, lambda path: path.write_text("x, y\n"), lambda path: path.write_bytes(b"")]
)
def test_a_damaged_file_of_arrays_is_refused(damage: Callable[[Path], None], refuse: Refuse, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **vectors())
    damage(tmp_path / "mine.npz")
    said = refuse("run", "--dataset", "arrays", "--data-dir", "mine.npz", "--out", "out")
    assert said.startswith("arrays: mine.npz cannot be read (")
    assert names(tmp_path) == {"mine.npz"}


def short_files(folder: Path) -> str:
    (folder / "cifar-10-batches-bin").mkdir()
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / "cifar-10-batches-bin" / name).write_bytes(bytes(3073))
    return "data_batch_1.bin has 3,073 bytes; expected 30,730,000; delete the folder "


def missing_files(folder: Path) -> str:
    (folder / "cifar-10-batches-bin").mkdir()
    return "data_batch_1.bin is missing; delete the folder "


def broken_archive(folder: Path) -> str:
    (folder / "cifar-10-binary.tar.gz").write_bytes(b"not an archive")
    return "expected c32a1d4ab5d03f1284b67883e8d87530: it is damaged or another file; delete it and run again"


@pytest.mark.parametrize("make", [short_files, missing_files, broken_archive])
def test_damaged_data_are_refused(make: Callable[[Path], str], refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    sentence = make(tmp_path / "data")
    assert sentence in refuse("run", "--dataset", "cifar10", "--data-dir", "data", "--out", "out")
    assert names(tmp_path) == {"data"}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """An image folder with a truncated file in it."""
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (4, 4)).save(tmp_path / "pets" / name / f"{number}.png")
    broken = tmp_path / "pets" / "dog" / "1.png"
    broken.write_bytes(broken.read_bytes()[:40])
    return tmp_path / "pets"


FOLDER = ("--dataset", "folder", "--data-dir", "pets", "--out", "out")


def test_strict_refuses_an_unreadable_image(pets: Path, refuse: Refuse, tmp_path: Path) -> None:
    said = refuse("run", *FOLDER, "--strict")
    assert said.startswith("pets: 1 skipped, 5 images read; skipped: dog/1.png (")
    assert names(tmp_path) == {"pets"}


@pytest.mark.parametrize("command", ["run", pytest.param("sweep", marks=pytest.mark.slow)])
def test_skipped_images_are_printed_once(pets: Path, command: str, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text("{method: [finetune, er], dataset: folder}")
    words = ("sweep", "grid.yaml", "--jobs", "2", *FOLDER[2:]) if command == "sweep" else ("run", *FOLDER)
    done = subprocess.run([sys.executable, "-m", "onebyone", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"onebyone: pets: 1 skipped, 5 images read; .*\n", done.stderr), done.stderr


NETWORKS = [name for name, entry in methods().items() if issubclass(entry.options, Options)]


@pytest.mark.parametrize("method", mostly_slow(NETWORKS, fast=["er", "ccp", "hybrid"]))
def test_a_run_that_diverges_ends_with_advice(method: str, refuse: Refuse, tmp_path: Path) -> None:
    words = ("run", "--method", method, "--classes-per-task", 5, "--batch-size", 61, "--out", "out")
    said = refuse(*words, "--set", "learning_rate=1e30")
    assert said == "the weights are not finite after 12 steps; lower learning_rate"
    assert names(tmp_path / "out") == {"config.yaml"}
    assert yaml.safe_load((tmp_path / "out" / "config.yaml").read_text())["options"]["learning_rate"] == 1e30


def test_a_bug_in_the_program_is_not_hidden(onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("onebyone.cli.run.run", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        onebyone("run")
