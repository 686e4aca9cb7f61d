import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

import onebyone.statistics.hybrid  # registered before entries are copied for each test
import onebyone.statistics.lda
from onebyone import Dataset, create, load
from onebyone.cli import main
from onebyone.data.registry import DATASETS
from onebyone.methods import Encoded, ReplayLearner
from onebyone.methods.registry import METHODS
from onebyone.nets.encoder import ENCODERS
from onebyone.runs import run
from onebyone.runs.grid import expand, plan
from onebyone.streams.registry import STREAMS
from onebyone.testing import situations
from run_folders import GRID, InThisProcess, numbers

collect_ignore = ["own_method.py"]  # importing it registers a method, which is for tests to do
torch.set_num_threads(1)  # several pytest workers share few cores
os.environ["OMP_NUM_THREADS"] = "1"  # and the processes that tests start add in the same order
settings.register_profile("tests", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="session")
def few() -> Dataset:
    """The digits of the contract: twelve per class."""
    return situations.few()


@pytest.fixture(scope="session")
def samples(digits: Dataset) -> Callable[[Sequence[int]], tuple[Tensor, Tensor]]:
    """Different digits with the labels asked for, none of them in the training set."""

    def pick(labels: Sequence[int]) -> tuple[Tensor, Tensor]:
        members = {label: (digits.test_y == label).nonzero().flatten().tolist() for label in labels}
        index = [members[label].pop() for label in labels]
        return digits.test_x[index], digits.test_y[index]

    return pick


@pytest.fixture(scope="session")
def halfway(few: Dataset) -> Callable[..., ReplayLearner[Any]]:
    """Create a learner that has seen twelve samples of each of the classes 0 to 3, and whose memory is full."""

    def make(name: str, **options: Any) -> ReplayLearner[Any]:
        learner = create(name, few.spec, **{"memory_per_class": 2} | options)
        for x, y in zip(few.train_x[:48].split(8), few.train_y[:48].split(8), strict=True):
            learner.observe(x, y)
        return learner

    return make


@pytest.fixture
def step(samples: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Take one step on new samples with these labels; returns the inputs of its loss from before the step."""

    def take(learner: ReplayLearner[Any], labels: Sequence[int], look: Callable[..., None]) -> None:
        incoming_loss, descend = learner.incoming_loss, learner.descend
        batches: list[tuple[Encoded, ...]] = []
        looks = 0

        def record(*encoded: Encoded) -> Tensor:
            batches.append(encoded)
            return incoming_loss(*encoded)

        def look_first(loss: Tensor) -> None:
            nonlocal looks
            looks += 1
            with torch.no_grad():
                look(loss, *batches[0])
            descend(loss)

        with monkeypatch.context() as patch:
            patch.setattr(learner, "incoming_loss", record)
            patch.setattr(learner, "descend", look_first)
            learner.observe(*samples(labels))
        assert looks == 1

    return take


@pytest.fixture(autouse=True)
def _same_names_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten, together with the files it imported, which would not be imported again."""
    for registry in (DATASETS, ENCODERS, METHODS, STREAMS):
        monkeypatch.setattr(registry, "entries", registry.entries.copy())  # type: ignore[attr-defined]
        monkeypatch.setattr(registry, "origins", registry.origins.copy())
    yield
    for path in [name for name in sys.modules if name.endswith(".py")]:  # as onebyone.registry names them
        del sys.modules[path]


@pytest.fixture
def own_method() -> str:
    """A method outside the package as FILE.py:NAME."""
    return f"{Path(__file__).parent / 'own_method.py'}:means"


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A module that is called as timm is and has two models, tiny and conv; gives the list of what was created."""
    created: list[tuple[Any, ...]] = []

    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        created.append((name, pretrained, num_classes))
        return nn.Sequential(nn.Conv2d(3, 5, 8), nn.Flatten())

    def config(network: nn.Module) -> dict[str, Any]:
        values = {"mean": [0.5] * 3, "std": [0.25] * 3, "crop_pct": 0.8, "interpolation": "bilinear"}
        return {"input_size": (3, 8, 8), **values}

    fake = ModuleType("timm")
    fake.data = SimpleNamespace(resolve_model_data_config=config)  # type: ignore[attr-defined]
    fake.create_model, fake.is_model = create_model, ["tiny", "conv"].__contains__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", fake)
    return created


@pytest.fixture
def onebyone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """The command line in this process, in an empty folder, 80 columns wide: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onebyone", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps start no processes."""
    monkeypatch.setattr("onebyone.executors.LocalExecutor", InThisProcess)


@pytest.fixture(scope="session")
def undisturbed(digits: Dataset) -> dict[str, dict[str, Any]]:
    """The numbers of the runs of the grid, by folder, each run by itself and without a folder."""
    return {name: numbers(run(config, data=digits)) for name, config in plan(expand(GRID), "cpu").items()}


@pytest.fixture
def refuse(onebyone: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Checks that a command is refused with one sentence and leaves no run folder behind; returns the sentence."""

    def call(*words: object) -> str:
        code, out, err = onebyone(*words)
        assert (code, out) == (2, "")
        sentence = re.fullmatch(r"onebyone: ([^\n]+)\n", err)
        assert sentence, err
        assert "Traceback" not in err
        assert not Path("runs").exists()
        return sentence[1]

    return call
