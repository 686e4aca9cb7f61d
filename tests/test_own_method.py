"""Methods outside this package: found by file, module or entry point; run, swept and resumed by name."""

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from onebyone import OnlineClassifier, UsageError, class_incremental, create, load
from onebyone.data.registry import DATASETS
from onebyone.evaluation import Result
from onebyone.methods import ReplayOptions, find, methods, register, registry
from onebyone.methods.er import ER
from onebyone.nets.encoder import ENCODERS
from onebyone.registry import import_source
from onebyone.runs import Listener, RunConfig, run
from onebyone.runs.grid import expand
from onebyone.runs.sweep import sweep
from onebyone.streams.registry import STREAMS
from onebyone.testing import check_learner

Call = Callable[..., tuple[int, str, str]]
OWN = Path(__file__).parent / "own_method.py"
MEANS = f"{OWN}:means"
SMOOTH = Path(__file__).parent.parent / "examples" / "own_method.py"


@pytest.fixture(autouse=True)
def _modules_are_forgotten(tmp_path: Path) -> Iterator[None]:
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_method_of_30_lines_passes_the_contract() -> None:
    assert len(OWN.read_text().splitlines()) <= 30
    check_learner(find(MEANS).learner)


def test_on_the_command_line(onebyone: Call, tmp_path: Path) -> None:
    words = ("run", "--method", MEANS, "--classes-per-task", 2, "--set", "augment=no")
    code, out, err = onebyone(*words)
    assert (code, err) == (0, "")
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("means-digits-s2-m20-seed0-")
    assert yaml.safe_load((folder / "config.yaml").read_text())["method"] == MEANS
    assert Result.read(folder / "result.json").accuracy > 0.2  # by guessing: 0.1
    assert onebyone(*words) == (0, out, "")  # found again
    assert onebyone("methods", MEANS)[1].startswith(f"{MEANS}: The mean")


def test_a_relative_path_is_accepted(onebyone: Call, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN.read_text())
    code, _, err = onebyone("run", "--method", "mine.py:means", "--batch-size", 100)
    assert (code, err) == (0, "")


@pytest.mark.slow
def test_in_a_sweep(onebyone: Call, tmp_path: Path) -> None:
    """Worker processes have to import the method themselves."""
    grid = {"method": ["finetune", MEANS, f"{SMOOTH}:smooth-er"], "classes_per_task": 5, "batch_size": 50}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    code, out, err = onebyone("sweep", "grid.yaml", "--jobs", 2, "--device", "cpu")
    assert (code, err) == (0, "")
    assert "3 of 3 runs are finished" in out
    found = {path.parent.name.split("-digits")[0]: Result.read(path) for path in tmp_path.rglob("result.json")}
    assert found.keys() == {"finetune", "means", "smooth-er"}
    assert found["means"].accuracy == run(RunConfig(**{**grid, "method": MEANS})).accuracy  # type: ignore[arg-type]


def test_in_the_classifier(tmp_path: Path) -> None:
    """By its name, with classes that were not announced."""
    import_source(str(OWN))
    digits = load("digits")
    names = np.array([f"digit {label}" for label in range(10)])
    clf = OnlineClassifier("means", augment="none")
    for index in class_incremental(digits.train_y, 10, 2):
        clf.partial_fit(digits.train_x[index], names[digits.train_y[index].numpy()])
    assert clf.score(digits.test_x, names[digits.test_y.numpy()]) > 0.2  # by guessing: 0.1
    clf.save(tmp_path / "means.safetensors")
    loaded = OnlineClassifier.load(tmp_path / "means.safetensors")
    assert (loaded.predict_proba(digits.test_x) == clf.predict_proba(digits.test_x)).all()


def test_in_a_sweep_by_its_name_alone(tmp_path: Path) -> None:
    """As in a script or notebook that has imported the method."""
    import_source(str(OWN))
    (outcome,) = sweep(expand({"method": "means", "batch_size": 50}), tmp_path, device="cpu").values()
    assert isinstance(outcome, Result), outcome
    assert create("means", load("digits").spec).spec.num_classes == 10


def test_it_is_resumed(tmp_path: Path) -> None:
    class Crash(Listener):
        def stepped(self, task: int, samples: int) -> None:
            if task == 3:
                raise KeyError("crash")

    config = RunConfig(method=MEANS, classes_per_task=2)
    with pytest.raises(KeyError):
        run(config, out=tmp_path, checkpoint_every=10, listener=Crash())
    assert (tmp_path / "checkpoint.safetensors").exists()
    assert run(config, out=tmp_path).accuracy_matrix == run(config).accuracy_matrix


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.py:means", "there is no file nowhere.py"),
        ("nowhere:means", "there is no module 'nowhere'; install it, or give the path of a file.py"),
        ("onebyone.nowhere:means", "there is no module 'onebyone.nowhere'"),
        ("..nowhere:means", "there is no module '..nowhere'"),
        (f"{OWN}:mean", "unknown method 'mean'; did you mean 'means'?"),
        (f"{OWN}:", "unknown method ''"),
    ],
)
def test_a_wrong_source_is_refused(source: str, message: str, onebyone: Call) -> None:
    code, out, err = onebyone("run", "--method", source)
    assert (code, out) == (2, "")
    assert err.startswith(f"onebyone: {message}")


def test_a_missing_import_of_a_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking.py").write_text("import not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        find("lacking:means")
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        find(f"{tmp_path / 'lacking.py'}:means")
    assert str(tmp_path / "lacking.py") not in sys.modules  # so that a second attempt imports it again


def test_create_imports_nothing(tmp_path: Path) -> None:
    """The name of a method in a saved file must not run code."""
    with pytest.raises(UsageError, match="unknown method"):
        create(MEANS, load("digits").spec)


def test_a_name_cannot_be_registered_twice() -> None:
    class Other(ER):
        """Not ER."""

    with pytest.raises(UsageError, match=r"a method named 'er' is there already \(onebyone.methods.er.ER\)"):
        register("er", ReplayOptions)(Other)
    register("other", ReplayOptions)(Other)
    register("other", ReplayOptions)(Other)  # a cell of a notebook that is run again


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "a b"])
def test_a_name_that_cannot_name_a_folder_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a method; use letters"):
        register(name, ReplayOptions)(ER)


def test_the_source_is_not_part_of_the_folder_name() -> None:
    assert RunConfig(method=MEANS).folder_name().startswith("means-digits-")
    assert RunConfig(method=MEANS).folder_name() != RunConfig(method="means").folder_name()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Put a package with an entry point where Python finds it, as pip does."""

    def put(name: str, value: str, text: str) -> None:
        module = value.split(":")[0]
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(text))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[onebyone.methods]\n{name} = {value}\n")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry.METHODS, "plugins_loaded", False)
    return put


@pytest.mark.slow
def test_an_installed_package_is_found_by_name(install: Any, onebyone: Call) -> None:
    install("means", "installed:Means", OWN.read_text())
    assert "means" not in registry.METHODS.entries  # nothing is imported before it is asked for
    assert find("means").learner.__module__ == "installed"
    assert list(methods())[-1] == "means"
    assert re.search("^means +The mean direction", onebyone("methods")[1], re.MULTILINE)
    grid = {"method": "means", "batch_size": 50}
    (outcome,) = sweep(expand(grid), "swept", device="cpu").values()
    assert isinstance(outcome, Result), outcome


@pytest.mark.parametrize(
    ("value", "text", "reason"),
    [
        ("broken_a", "1 / 0", "division by zero"),
        ("broken_b:Means", "", "has no attribute 'Means'"),
        ("broken_c", "", "it registers no method named 'mine'"),
        ("broken_d", "import not_installed", "No module named 'not_installed'"),
    ],
)
def test_a_broken_package_is_named_and_ignored(install: Any, value: str, text: str, reason: str) -> None:
    install("mine", value, text)
    package = value.split(":")[0]
    assert any(point.name == "mine" for point in metadata.entry_points(group="onebyone.methods"))
    with pytest.warns(UserWarning, match=rf"the method 'mine' of {package} cannot be used \(.*{reason}"):
        assert "ccp" in methods()
    with pytest.raises(UsageError, match="unknown method 'mine'"):
        find("mine")


def test_the_code_of_contributing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it in one file: its method learns its stream and its data with its network."""
    for table in (DATASETS, STREAMS, ENCODERS):
        monkeypatch.setattr(table, "entries", table.all())
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    mine = tmp_path / "mine.py"
    mine.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    find(f"{mine}:smooth-er")
    options = {"encoder": "tiny", "smoothing": "0.2"}
    result = run(RunConfig(method=f"{mine}:smooth-er", dataset="noise", stream="backwards", options=options))
    assert result.tasks == ((1,), (0,))
