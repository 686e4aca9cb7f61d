"""Files that an earlier version wrote open. From release 0.3.0 on, each release adds a folder to ``tests/files``."""

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from torch import Tensor, nn

from onebyone import Dataset, create, read_results
from onebyone.evaluation import Metrics, Result
from onebyone.nets import Encoder
from onebyone.nets.encoder import ENCODERS
from onebyone.runs import RunConfig, checkpoint
from onebyone.runs.formats import configuration
from onebyone.runs.tune import read_record
from onebyone.runs.winners import winners_in

Call = Callable[..., tuple[int, str, str]]
FILES = Path(__file__).parent / "files"
VERSIONS = sorted(path.name for path in FILES.glob("runs-*"))
SHORT = ("--method", "er", "--classes-per-task", 5, "--batch-size", 200, "--memory-per-class", 2)
WORDS = (*SHORT, "--device", "cpu", "--prequential")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_wrote_is_read(version: str, onebyone: Call, tmp_path: Path) -> None:
    """A run's folder, which the same command finds; a record, also beside that folder; and the winners of tuning."""
    shutil.copytree(FILES / version, tmp_path / "runs")
    found = read_results("runs")
    assert [row.config["stream"] for row in found] == 2 * ["class-incremental:imbalance=1.0"]
    assert len(read_results(FILES / version / "table1.csv")) == 1
    assert winners_in(FILES / version / "winners.json")[0].method == "er"
    folder = "runs/er-digits-s5-m2-seed0-01234567"
    Path("runs/er").rename(folder)  # names change with every option that is added to a method
    code, said, err = onebyone("run", *WORDS)
    assert (code, err, said.splitlines()[-1].split()[-1]) == (0, "", f"{folder}/result.json")
    assert f"{100 * Result.read(FILES / version / 'er' / 'result.json').accuracy:.1f} %" in said
    code, _, err = onebyone("run", *WORDS, "--out", folder, "--seed", 1)
    assert (code, "holds a run of another configuration (seed there is 0, here 1)" in err) == (2, True)


class Tiny(Encoder):
    """A small network, so that a checkpoint is a small file."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.width = 2
        self.layer = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.layer(x.flatten(1))
        return features


@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkpoint_of_a_version_is_resumed(version: str, digits: Dataset) -> None:
    ENCODERS.add("tiny", Tiny, Tiny)
    learner = create("finetune", digits.spec, encoder="tiny")
    progress = checkpoint.load(FILES / version / "checkpoint.safetensors", learner)
    assert (progress.steps, int(learner.steps), int(learner.counts.sum())) == (2, 2, 400)
    learner.observe(digits.train_x[:10], digits.train_y[:10])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_of_tuning_of_a_version_is_read(version: str) -> None:
    (row,) = read_record(FILES / version / "tuning.csv")
    assert (row["method"], row["options"], row["accuracy"]) == ("er", {"learning_rate": 0.1}, 0.5)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_found_is_recorded_as_now(version: str) -> None:
    config = RunConfig(
        method="er", classes_per_task=5, batch_size=200, memory_per_class=2, device="cpu", prequential=True
    )
    for name, read in {"config.yaml": yaml.safe_load, "result.json": lambda text: json.loads(text)["config"]}.items():
        found = configuration(read((FILES / version / "er" / name).read_text()))
        assert found == config.resolved("cpu", found["data"])


@pytest.mark.parametrize("metric", [item.name for item in fields(Metrics)])
def test_a_metric_that_a_file_lacks_is_computed(metric: str) -> None:
    """As all files will lack one that is added."""
    text = (FILES / VERSIONS[0] / "er" / "result.json").read_text()
    shorter = {name: value for name, value in json.loads(text).items() if name != metric}
    assert Result.from_json(json.dumps(shorter)) == Result.from_json(text)
