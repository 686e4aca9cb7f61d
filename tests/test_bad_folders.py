"""Run folders that cannot be used: one sentence on stderr, exit code 2, and nothing half-written."""

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from onebyone.evaluation import Result
from onebyone.runs import RunConfig, run
from run_folders import cut_short, names

Call = Callable[..., tuple[int, str, str]]
Refuse = Callable[..., str]
QUICK = ("run", "--method", "er", "--classes-per-task", 5, "--batch-size", 61)  # 24 steps


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_file_instead_of_a_folder_is_refused(out: str, refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    said = refuse(*QUICK, "--out", out)
    assert re.fullmatch(rf"{out} cannot be written \(.+\); choose another path", said)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("operation", ["mkdir", "exists"])
def test_a_folder_without_access_is_refused(
    operation: str, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(Path, operation)

    def denied(path: Path, *args: Any, **kwargs: Any) -> Any:  # to root, who may be running this, nothing is
        if "closed" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(Path, operation, denied)
    said = refuse(*QUICK, "--out", "closed/run")
    assert said.startswith("closed/run cannot be ")
    assert "(Permission denied)" in said
    assert names(tmp_path) == set()


@pytest.mark.parametrize(("method", "writes"), [("write_text", 0), ("write_bytes", 2), ("write_text", 2)])
def test_a_full_disk_is_reported_and_the_run_resumes_later(
    method: str, writes: int, refuse: Refuse, onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full when the configuration, the third checkpoint or the result is written."""
    original, left = getattr(Path, method), writes

    def write(path: Path, content: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            original(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, content)

    words = (*QUICK, "--out", "out", "--checkpoint-every", 5)
    with monkeypatch.context() as patch:
        patch.setattr(Path, method, write)
        said = refuse(*words)
    assert re.fullmatch(r"the disk is full, so out/\S+ was not written; free some space or choose another path", said)
    assert names(tmp_path / "out") <= {"config.yaml", "checkpoint.safetensors", "curve.csv"}

    assert onebyone(*words)[0] == 0
    uninterrupted = run(RunConfig(method="er", classes_per_task=5, batch_size=61))
    assert Result.read(tmp_path / "out" / "result.json").accuracy_matrix == uninterrupted.accuracy_matrix


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--seed", 1), "seed there is 0, here 1"),
        (("--method", "mir"), "method there is er, here mir"),
        (("--set", "learning_rate=0.2"), "learning_rate there is 0.1, here 0.2"),
        (("--seed", 1, "--memory-per-class", 5), "memory_per_class there is 20, here 5, seed there is 0, here 1"),
        (("--held-out",), "held_out there is False, here True, data there is "),
    ],
)
def test_a_folder_of_another_configuration_is_refused_and_not_changed(
    words: tuple[object, ...], sentence: str, refuse: Refuse, onebyone: Call, tmp_path: Path
) -> None:
    assert onebyone(*QUICK, "--out", "out")[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    said = refuse(*QUICK, "--out", "out", *words)
    assert said.startswith("out holds a run of another configuration (")
    assert sentence in said
    assert said.endswith("; choose another folder")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize("content", [b"", b"seed", b"{", b"\xff\x00", b"options: 3", b"seed: 0\noptions:\n"])
def test_a_damaged_configuration_is_refused(content: bytes, refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.yaml").write_bytes(content)
    assert "(its config.yaml is damaged)" in refuse(*QUICK, "--out", "out")
    assert (tmp_path / "out" / "config.yaml").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"accuracy": 1'])
def test_a_damaged_result_is_refused(content: bytes, refuse: Refuse, onebyone: Call, tmp_path: Path) -> None:
    assert onebyone(*QUICK, "--out", "out")[0] == 0
    (tmp_path / "out" / "result.json").write_bytes(content)
    said = refuse(*QUICK, "--out", "out")
    assert said.startswith("out/result.json: this is not a result of onebyone (")
    assert said.endswith("); delete it and run again")
    (tmp_path / "out" / "result.json").unlink()
    assert onebyone(*QUICK, "--out", "out")[0] == 0


def no_progress(path: Path) -> None:
    save_file(load_file(path), path)


def strange_progress(path: Path) -> None:
    save_file(load_file(path), path, metadata={"progress": json.dumps({"steps": 3, "luck": 1})})


def another_network(path: Path) -> None:
    state = load_file(path)
    state["head.bias"] = torch.zeros(3)
    save_file(state, path, metadata={"progress": "{}"})


def part_of_it(path: Path) -> None:
    state = load_file(path)
    del state["memory.x"]
    save_file(state, path, metadata={"progress": "{}"})


@pytest.mark.parametrize(
    "damage",
    [
        cut_short,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("not a checkpoint"),
        no_progress,
        strange_progress,
        another_network,
        part_of_it,
    ],
)
def test_a_damaged_checkpoint_is_refused(
    damage: Callable[[Path], None], refuse: Refuse, onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, checkpoint = (*QUICK, "--out", "out"), Path("out", "checkpoint.safetensors")
    with monkeypatch.context() as patch:
        patch.setattr(Result, "to_json", lambda result: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            onebyone(*words, "--checkpoint-every", 5)
    damage(checkpoint)
    said = refuse(*words)
    assert said.startswith(f"checkpoint {checkpoint} is damaged (")
    assert said.endswith("); delete it to begin this run again")
    checkpoint.unlink()
    assert onebyone(*words)[0] == 0
