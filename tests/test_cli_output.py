"""For scripts: --json and --quiet on every command, and completion in the shell."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from made_up import results
from onebyone import Dataset, OnlineClassifier, datasets, methods
from onebyone.cli import demo
from onebyone.cli.app import COMMANDS
from onebyone.paper.printed import Part
from onebyone.paper.records import from_results, write
from onebyone.runs import RunConfig, run, tune
from onebyone.streams import streams
from summing import registered
from tiers import mostly_slow

pytestmark = pytest.mark.usefixtures("_in_this_process")

Call = Callable[..., tuple[int, str, str]]
SHORT = ("--method", "finetune", "--batch-size", 200, "--classes-per-task", 5)
QUICK = Part("table1-quick", "QUICK", "cifar10-quick", (1,), (5,))
WORDS: dict[str, tuple[object, ...]] = {
    "run": SHORT,
    "sweep": ("grid.yaml", "--jobs", 1, "--device", "cpu"),
    "tune": ("--dataset", "digits", "--classes-per-task", 5, "--jobs", 1, "--device", "cpu"),
    "table": ("done",),
    "reproduce": ("table1", "--quick", "--from", "kept"),
    "report": ("kept", "--markdown", "found.md"),
    "demo": (),
    "learn": ("photos", "--into", "learnt", "--encoder", "none", "--memory", "20KB"),
    "predict": ("seen", "photos"),
    "info": ("seen",),
    "merge": ("one", "two", "--into", "both", "--force"),
    "methods": (),
    "datasets": (),
    "streams": (),
}


@pytest.fixture
def prepared(digits: Dataset, onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """The files that the commands of WORDS read, made with as little work as possible."""
    done = run(RunConfig(method="finetune", batch_size=200), data=digits, out="done/one")
    Path("grid.yaml").write_text("{method: finetune, batch_size: 200, classes_per_task: 5}")
    write(from_results(results([QUICK], ["joint"]), [QUICK]), Path("kept"), [QUICK])
    monkeypatch.setattr(demo, "compare", lambda out, configs, listener: {name: [done] for name in configs})
    grid = tune.grids()
    grid["grids"], grid["runs"] = {"finetune": [{"learning_rate": 0.01}]}, [{"seed": 0, "batch_size": 200}]
    monkeypatch.setattr(tune, "grids", lambda: grid)
    with registered():
        for name, count in (("one", 10), ("two", 20)):
            OnlineClassifier("sums").partial_fit(digits.train_x[:count], digits.train_y[:count]).save(name)
        for label in (0, 1):
            Path("photos", f"{label}").mkdir(parents=True)
            for number, image in enumerate(digits.train_x[digits.train_y == label][:3, 0]):
                Image.fromarray(image.numpy()).save(Path("photos", f"{label}", f"{number}.png"))
        clf = OnlineClassifier(memory="20KB").partial_fit(digits.train_x[:30], digits.train_y[:30])
        clf.save("seen")
        yield onebyone


SLOW = ("reproduce", "sweep", "tune")  # these do several runs, and reproduce draws its page and all figures


@pytest.mark.parametrize("command", mostly_slow(WORDS, fast=[name for name in WORDS if name not in SLOW]))
def test_json_is_one_document_and_nothing_else(command: str, prepared: Call) -> None:
    code, out, err = prepared(command, *WORDS[command], "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found
    code, text, err = prepared(command, *WORDS[command], "--quiet")
    assert (code, err) == (0, "")
    assert text.strip()
    assert "[1/1]" not in text
    code, longer, _ = prepared(command, *WORDS[command])  # all results exist now, and nothing is run
    assert code == 0
    assert longer.startswith(text)


def test_the_output_of_every_command_is_tested() -> None:
    assert COMMANDS.keys() - WORDS.keys() == {"serve"}  # which runs until it is stopped


def test_every_command_documents_json_and_quiet(onebyone: Call) -> None:
    for command in COMMANDS:
        _, out, _ = onebyone(command, "--help")
        assert "  --json" in out
        assert "  --quiet" in out
        assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_content_of_the_json_documents(prepared: Call) -> None:
    def document(command: str, *words: object) -> Any:
        return json.loads(prepared(command, *(words or WORDS[command]), "--json")[1])

    one = document("run")
    assert json.loads(Path(one["folder"], "result.json").read_text()).items() <= one.items()
    (swept,) = document("sweep")["runs"].values()
    assert swept == {name: value for name, value in one.items() if name != "folder"}
    (cell,) = document("table")["cells"]
    assert (cell["method"], cell["n"], cell["std"]) == ("finetune", 1, 0)
    assert [winner["method"] for winner in document("tune")["winners"]] == ["finetune"]
    table = document("reproduce")["tables"][0]
    assert {"protocol", "method", "memory_per_class", "paper", "ours", "verdict"} == table["cells"][0].keys()
    assert document("report")["file"] == "found.md"
    assert document("demo")["methods"].keys() == demo.METHODS.keys()
    assert [entry["name"] for entry in document("methods")] == list(methods())
    assert [entry["name"] for entry in document("datasets")] == list(datasets())
    assert [entry["name"] for entry in document("streams")] == list(streams())
    assert {option["name"] for option in document("methods", "er")["options"]} > {"learning_rate"}


def test_an_error_leaves_standard_output_empty(prepared: Call) -> None:
    code, out, err = prepared("run", "--method", "cpc", "--json")
    assert (code, out) == (2, "")
    assert err.startswith("onebyone: unknown method 'cpc'")
    Path("grid.yaml").write_text("{method: finetune, batch_size: 200, options: {learning_rate: 1e30}}")
    code, out, err = prepared("sweep", *WORDS["sweep"], "--json")
    assert code == 1
    assert "not finite" in next(iter(json.loads(out)["runs"].values()))["error"]
    assert err.startswith("onebyone: 1 of 1 runs failed")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("onebyone run --method er", ["er", "er-aml", "er-ace"]),
        ("onebyone run --dataset cifar10", ["cifar10", "cifar100", "cifar10-quick", "cifar100-quick"]),
        ("onebyone run --stream bl", ["blurry"]),
        ("onebyone run --class-order r", ["random"]),
        ("onebyone tune --method cc", ["ccp"]),
        ("onebyone methods sup", ["supbyol"]),
        ("onebyone reproduce fig", ["figure1", "figures"]),
        ("onebyone re", ["reproduce", "report"]),
    ],
)
def test_names_are_completed(words: str, expected: list[str], onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ONEBYONE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    code, out, _ = onebyone()
    assert (code, out.split()) == (0, expected)


@pytest.mark.parametrize("shell", mostly_slow(["bash", "zsh", "fish"], fast=["bash"]))
def test_the_completion_script_is_printed(shell: str) -> None:
    environment = os.environ | {"_ONEBYONE_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [Path(sys.executable).with_name("onebyone")], env=environment, capture_output=True, text=True, check=True
    )
    assert "_ONEBYONE_COMPLETE=complete_" in done.stdout
