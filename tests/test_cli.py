import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import onebyone_command
from onebyone import Dataset, OnlineClassifier, __version__, create, datasets, load, methods
from onebyone.cli.demo import BUDGET, chosen
from onebyone.cli.progress import Bar
from onebyone.evaluation import Result
from onebyone.methods import choose, method, registry
from onebyone.runs import RunConfig
from onebyone.streams import in_full, streams
from summing import registered

Call = Callable[..., tuple[int, str, str]]


def test_the_help_of_run_fits_80_columns(onebyone: Call) -> None:
    code, out, err = onebyone("run", "--help")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 30
    listed = re.findall(r"^  (--[a-z-]+)", out, re.MULTILINE)
    fixed = "--method --dataset --data-dir --classes-per-task --memory-per-class --seed --device --out --set"
    assert listed[:9] == fixed.split()
    assert len(re.findall(r"^ {3,}", out, re.MULTILINE)) == 0  # one line per option


def test_the_options_of_run_are_the_fields_of_a_configuration(onebyone: Call) -> None:
    """A field that is added to RunConfig appears here without being written again."""
    _, out, _ = onebyone("run", "--help")
    shown = dict(re.findall(r"^  (--[a-z-]+) +(.*)$", out, re.MULTILINE))
    for field in fields(RunConfig):
        if field.name not in ("options", "protocol"):  # `reproduce` makes the runs of a protocol
            line = shown[f"--{field.name.replace('_', '-')}"]
            assert f"{field.metadata['help'].split(': ', 1)[-1].split(':')[0]}" in line
            assert isinstance(field.default, bool) or f"[default: {field.default}]" in line


def test_without_arguments_the_commands_are_listed(onebyone: Call) -> None:
    code, out, err = onebyone()
    assert (code, err) == (0, "")
    assert re.findall(r"^  ([a-z]+) ", out, re.MULTILINE) == [
        "learn",
        "predict",
        "info",
        "merge",
        "serve",
        "demo",
        "run",
        "sweep",
        "tune",
        "table",
        "reproduce",
        "report",
        "methods",
        "datasets",
        "streams",
    ]
    assert out == onebyone("--help")[1] == onebyone("-h")[1]
    assert "..." not in out.split("Commands:")[1]  # no sentence is cut


def test_the_version_is_printed(onebyone: Call) -> None:
    assert onebyone("--version") == (0, f"onebyone {__version__}\n", "")


@pytest.mark.parametrize(("command", "known"), [("methods", methods), ("datasets", datasets)])
def test_registered_names_are_listed(command: str, known: Callable[[], dict[str, Any]], onebyone: Call) -> None:
    code, out, err = onebyone(command)
    assert (code, err) == (0, "")
    assert re.findall(r"^(\S+)  ", out, re.MULTILINE) == list(known())
    assert max(map(len, out.splitlines())) <= 80


def test_the_streams_are_listed(onebyone: Call) -> None:
    code, out, err = onebyone("streams")
    assert (code, err) == (0, "")
    assert re.findall(r"^([a-z-]+) ", out, re.MULTILINE) == list(streams())
    assert re.findall(r"^  ([a-z]+=\S+) ", out, re.MULTILINE)[:3] == ["imbalance=1.0", "imbalance=1.0", "share=0.1"]
    assert max(map(len, out.splitlines())) <= 80
    (example,) = re.findall(r"--stream (\S+)", out)
    assert in_full(example) == "blurry:imbalance=10.0,share=0.3"


def test_a_run_of_a_stream(onebyone: Call, tmp_path: Path) -> None:
    words = ("--method", "finetune", "--batch-size", 100, "--out", tmp_path / "out")
    code, said, err = onebyone("run", *words, "--stream", "blurry:share=0.5")
    assert (code, err) == (0, "")
    assert re.search(r"^forgetting +n/a$", said, re.MULTILINE)
    result = Result.read(tmp_path / "out" / "result.json")
    assert result.config["stream"] == "blurry:imbalance=1.0,share=0.5"
    assert not result.disjoint


@pytest.mark.parametrize("name", methods())
def test_the_options_of_a_method_are_listed(name: str, onebyone: Call) -> None:
    code, out, err = onebyone("methods", name)
    assert (code, err) == (0, "")
    assert out.startswith(f"{name}: ")
    title, *table = out.split("\n\n")[1].splitlines()
    assert title.split() == ["--set", "default", "what", "it", "is"]
    listed = {line.split()[0]: line.split()[1] for line in table if not line.startswith(" ")}
    known = {field.name: field.default for field in fields(method(name).options)}
    assert listed.keys() == known.keys() - {"memory_per_class"}
    for option, default in known.items() - {("memory_per_class", 20)}:
        assert listed[option] == {"True": "yes", "False": "no"}.get(str(default), str(default))


def test_square_brackets_in_a_summary_are_printed(onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = replace(method("ccp"), summary="Learns [n] classes.")
    monkeypatch.setattr(registry.METHODS, "entries", {"mine": mine})
    assert onebyone("methods")[1].startswith("mine  Learns [n] classes. (")
    assert onebyone("methods", "mine")[1].startswith("mine: Learns [n] classes. (")


def test_run_prints_its_metrics_and_its_folder(onebyone: Call, tmp_path: Path) -> None:
    out = tmp_path / ("a long name of a folder " * 5)
    words = ["run", "--method", "er", "--classes-per-task", 5, "--batch-size", 50, "--prequential", "--out", out]
    code, said, err = onebyone(*words, "--set", "learning_rate=0.05", "--set", "augment=no")
    assert (code, err) == (0, "")
    result = Result.read(out / "result.json")
    assert result.config["options"]["learning_rate"] == 0.05
    assert result.config["options"]["augment"] is False
    lines = {line[:26].strip(): line[26:] for line in said.splitlines()}
    assert lines["accuracy"] == f"{100 * result.accuracy:.1f} %"
    assert result.forgetting is not None
    assert lines["forgetting"] == f"{100 * result.forgetting:.1f} %"
    assert result.prequential is not None
    assert lines["prequential accuracy"] == f"{100 * result.prequential:.1f} %"
    assert lines["result"] == str(out / "result.json")  # on one line, however long
    assert onebyone(*words, "--set", "learning_rate=0.05", "--set", "augment=no") == (0, said, "")  # found again


def test_run_has_a_default_folder_per_configuration(onebyone: Call, tmp_path: Path) -> None:
    words = ("run", "--method", "finetune", "--classes-per-task", 10, "--batch-size", 200)
    code, said, err = onebyone(*words)
    assert (code, err) == (0, "")
    assert re.search(r"^forgetting +n/a$", said, re.MULTILINE)
    onebyone(*words, "--seed", 1)
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert [name[:-8] for name in folders] == [f"finetune-digits-s10-m20-seed{seed}-" for seed in (0, 1)]


def test_output_to_a_pipe_has_no_progress(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "onebyone", "run", "--method", "finetune", "--batch-size", "200"]
    done = subprocess.run([*words, "--out", str(tmp_path / "out")], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("accuracy  ")
    assert "\x1b" not in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_ctrl_c_during_the_imports_leaves_no_traceback() -> None:
    program = """
import signal, sys

class Told:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._C":
            print("begun", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
sys.meta_path.insert(0, Told())
sys.argv = ["onebyone", "methods"]
from onebyone_command import main
main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (-signal.SIGINT, "", "")  # a shell reports 130


@pytest.mark.parametrize(("word", "policy"), [("predict", "PASSIVE"), ("learn", None)])
def test_threads_do_not_spin_in_short_commands(word: str, policy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(sys, "argv", ["onebyone", word, "--help"])
    monkeypatch.setattr("onebyone.cli.main", lambda: None)
    onebyone_command.main()
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_a_signal_that_is_ignored_during_the_imports_stays_ignored() -> None:
    program = """
import os, signal, sys

class Sent:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._C":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.meta_path.insert(0, Sent())
sys.argv = ["onebyone", "--version"]
from onebyone_command import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("onebyone ")
    assert done.stderr == ""


def test_the_installed_command_refuses_without_a_traceback(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("onebyone")
    done = subprocess.run([command, "run", "--method", "cpc"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("onebyone: unknown method 'cpc'; did you mean 'ccp'?")
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize("width", [80, 120])
def test_the_progress_bar_has_one_line(width: int) -> None:
    now = 0.0
    bar = Bar()
    bar.progress.get_time = lambda: now
    screen = Console(file=StringIO(), width=width)

    def line() -> str:
        with screen.capture() as shown:
            screen.print(bar.progress.make_tasks_table(bar.progress.tasks))
        (only,) = shown.get().splitlines()
        return only

    assert "reading the data" in line()
    bar.started("supbyol on cifar100", 50_000, 20_000, 100)
    assert "task 1/100" in line()
    for _ in range(10):
        now += 0.1
        bar.stepped(98, 1000)
    bar.evaluated(98, 1.0)
    for part in ("supbyol on cifar100", "task 99/100", "10,000 samples/s", "accuracy 100.0 %", "00:02"):
        assert part in line()
    bar.started("er on digits", 1438, 0, 10)  # the next one
    assert "task 1/10 " in line()
    assert "accuracy" not in line()


def test_there_is_no_progress_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar() as bar:
        bar.started("er on digits", 1438, 0, 10)
        bar.stepped(0, 10)
        bar.evaluated(0, 0.5)
    assert capsys.readouterr() == ("", "")


def test_demo_compares_the_method_that_auto_chooses() -> None:
    assert choose(load("digits").spec, BUDGET) == "patch-lda"
    assert create("patch-lda", load("digits").spec, budget=BUDGET).memory_bytes <= BUDGET


@pytest.mark.slow
def test_demo_writes_a_table_and_a_picture(onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, first, err = onebyone("demo", "--out", "here")
    assert (code, err) == (0, "")
    assert max(map(len, first.splitlines())) <= 80
    accuracy = {name: float(mean) for name, mean in re.findall(r"(?m)^(\S.*?)  +([\d.]+) ±", first)}
    assert accuracy.keys() == {"patch-lda (auto)", "CCP", "SupBYOL", "ER", "fine-tuning"}
    assert accuracy["fine-tuning"] == pytest.approx(10, abs=2)
    for name in ("CCP", "SupBYOL", "ER"):
        assert accuracy["patch-lda (auto)"] >= accuracy[name] + 5 >= accuracy["fine-tuning"] + 25
    picture = tmp_path / "here" / "anytime.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(Path("here") / "anytime.png") in first

    results = sorted((tmp_path / "here").glob("*/result.json"))
    assert len(results) == 15
    before = [path.stat().st_mtime_ns for path in results]
    assert onebyone("demo", "--out", "here") == (0, first, "")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, without, err = onebyone("demo", "--out", "here")
    assert (code, err) == (0, "")
    assert without.splitlines()[:-1] == first.splitlines()[:-1]
    assert without.endswith("pip install 'onebyone[research]'\n")
    assert [path.stat().st_mtime_ns for path in results] == before


def test_demo_runs_each_method_that_is_named(own_method: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(Path(own_method.rpartition(":")[0]).read_text().replace('"means"', '"ER"'))
    other = f"{tmp_path}/mine.py:ER"
    found = chosen(["ccp", own_method, "er-ace", other, "ccp"])
    assert list(found) == ["CCP", "means", "ER-ACE", other]  # the demonstration itself has a method with the title ER
    assert [config.method for config in found.values()] == ["ccp", own_method, "er-ace", other]
    assert {config.memory_per_class for config in found.values()} == {20}


def test_demo_refuses_an_unknown_method_before_the_first_run(refuse: Callable[..., str], tmp_path: Path) -> None:
    assert "unknown method 'none'" in refuse("demo", "--method", "ccp", "--method", "none")
    assert not (tmp_path / "demo").exists()


def test_merged_files(digits: Dataset, onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with registered():
        for name, part in (("one", slice(0, 50)), ("two", slice(50, 90))):
            OnlineClassifier("sums").partial_fit(digits.train_x[part], digits.train_y[part]).save(name)
        with OnlineClassifier("sums", autosave="folder") as clf:
            clf.partial_fit(digits.train_x[90:100], digits.train_y[90:100])
        OnlineClassifier("er", memory=10).partial_fit(digits.train_x[:9], digits.train_y[:9]).save("network")
        before = Path("folder/classifier.safetensors").read_bytes()
        assert onebyone("merge", "folder", "one", "two", "--into", "all")[:2] == (
            0,
            "3 classifiers, 100 samples, 10 classes: all\n",
        )
        assert Path("folder/classifier.safetensors").read_bytes() == before
        whole = OnlineClassifier("sums").partial_fit(digits.train_x[:100], digits.train_y[:100])
        merged = OnlineClassifier.load("all")
        assert abs(merged.decision_function(digits.test_x) - whole.decision_function(digits.test_x)).max() < 1e-8
        for words, sentence in (
            (("one",), "give at least two"),
            (("one", "absent"), "absent cannot be merged with those before it: absent does not exist"),
            (("network", "one"), "weights of a network cannot be merged"),
            (("one", "network"), "network cannot be merged with those before it: .* different values of"),
        ):
            code, out, err = onebyone("merge", *words, "--into", "other")
            assert (code, out) == (2, "")
            assert re.search(sentence, err)
            assert not Path("other").exists()


def test_a_merge_overwrites_only_what_it_is_told_to(digits: Dataset, onebyone: Call, tmp_path: Path) -> None:
    with registered():
        for number, name in enumerate(("one", "two", "mine")):
            OnlineClassifier("sums").partial_fit(digits.train_x[[number]], digits.train_y[[number]]).save(name)
        Path("same").symlink_to("one")
        before = Path("one").read_bytes()
        for files, into in ((("one", "two"), "mine"), (("one", "two"), "one"), (("same", "two"), "one")):
            code, out, err = onebyone("merge", *files, "--into", into)
            assert (code, out) == (2, "")
            assert err == (
                f"onebyone: {into} exists and would be overwritten; give another path, or --force to overwrite it\n"
            )
        assert Path("one").read_bytes() == before
        assert onebyone("merge", "same", "two", "--into", "one", "--force")[0] == 0
        assert OnlineClassifier.load("one").n_samples_seen_ == 2
        assert onebyone("merge", "one", "two", "--into", "mine", "--force")[0] == 0
        assert OnlineClassifier.load("mine").n_samples_seen_ == 3


@pytest.mark.parametrize(
    "words",
    [
        ("learn", "", "--into", "file"),
        ("learn", ".", "--into", ""),
        ("predict", "", "image.png"),
        ("predict", "file", ""),
        ("info", ""),
        ("merge", "one", "", "--into", "file"),
        ("merge", "one", "two", "--into", ""),
        ("serve", "--state", ""),
        ("run", "--out", ""),
        ("table", ""),
        ("run", "--out="),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_refused_and_is_not_the_current_folder(
    words: tuple[str, ...], refuse: Callable[..., str], tmp_path: Path
) -> None:
    said = refuse(*words)
    assert re.search(r"(--[a-z]+|an argument) is empty, perhaps because a variable is not set", said)
    assert not list(tmp_path.iterdir())
