"""Settings of the calling process are restored: torch's flags and threads, denormal numbers, the environment."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest
import torch

from onebyone import Dataset, OnlineClassifier, UsageError, engine
from onebyone.estimator.model import State
from onebyone.methods.er import ER
from onebyone.runs import RunConfig, run
from onebyone.runs.listener import Listener
from onebyone.runs.sweep import DoRun

QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
NOT_OURS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR")  # set by pytest and by torch
CONFIG = RunConfig(method="er", classes_per_task=5, device="cpu")


def settings() -> dict[str, Any]:
    return {
        "deterministic": torch.backends.cudnn.deterministic,
        "benchmark": torch.backends.cudnn.benchmark,
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "denormals": bool(torch.tensor(1e-310, dtype=torch.float64).mul(1).any()),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "random": torch.get_rng_state().tolist(),
        "environment": {name: value for name, value in os.environ.items() if name not in NOT_OURS},
    }


@pytest.fixture(autouse=True, params=[True, False], ids=["flag on", "flag off"])
def unchanged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After each test here, all settings are as before."""
    monkeypatch.delenv(QUEUES, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", request.param)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    before = settings()
    try:
        yield
        assert settings() == before
    finally:
        torch.set_num_threads(threads)


class Watching(Listener):
    """Reads the flag in every step; fails after some steps."""

    def __init__(self, steps: int = 10**9) -> None:
        self.left = steps

    def stepped(self, task: int, samples: int) -> None:
        assert torch.backends.cudnn.deterministic
        self.left -= 1
        if self.left == 0:
            raise OSError("no more")


def test_choosing_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.choose_device("cpu").type == "cpu"
    with pytest.raises(UsageError):
        engine.choose_device("toaster")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", lambda *size, device: None)  # as if there were a GPU
    assert engine.choose_device().type == "cuda"


@pytest.mark.parametrize("started", [True, False])
def test_queues_are_set_before_cuda_starts(started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
    with engine.more_queues():
        assert (os.environ.get(QUEUES) == "32") == (not started)


def test_a_run(digits: Dataset) -> None:
    run(CONFIG, data=digits, listener=Watching())


def test_a_run_that_fails(digits: Dataset) -> None:
    with pytest.raises(OSError, match="no more"):
        run(CONFIG, data=digits, listener=Watching(3))


def test_a_run_that_is_abandoned(digits: Dataset, tmp_path: Path) -> None:
    do_run = DoRun(tmp_path, None, "cpu", None, data={("digits", False): digits})
    steps = do_run.steps("one", CONFIG, Watching(), threading.Event())
    assert len(list(islice(steps, 3))) == 3
    del steps


@pytest.mark.parametrize("fails", [False, True])
def test_a_classifier(digits: Dataset, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    observe = ER.observe

    def watched(self: ER, *batch: torch.Tensor) -> torch.Tensor:
        assert torch.backends.cudnn.deterministic
        if fails:
            raise OSError("no more")
        return observe(self, *batch)

    monkeypatch.setattr(ER, "observe", watched)
    monkeypatch.setattr(State, "on_gpu", True)  # which the flag is for
    clf = OnlineClassifier("er", random_state=0)
    if fails:
        with pytest.raises(OSError, match="no more"):
            clf.partial_fit(digits.train_x[:20], digits.train_y[:20])
    else:
        clf.partial_fit(digits.train_x[:20], digits.train_y[:20]).predict(digits.test_x)
        clf.fit(digits.train_x[:20], digits.train_y[:20])


@pytest.mark.parametrize("block", ["reproducible", "torch_settings"])
def test_overlapping_blocks_restore_the_settings_at_the_end(block: str) -> None:
    """As the runs of a pack do: they end in any order, and the flag stays set until the last one has ended."""
    begin = engine.reproducible if block == "reproducible" else partial(engine.torch_settings, 1e6)
    for order in permutations(range(3)):
        blocks = [ExitStack() for _ in order]
        for stack in blocks:
            stack.enter_context(begin())
        for number in order:
            assert torch.backends.cudnn.deterministic
            blocks[number].close()
