"""A run depends on the source code of a method, a data set or a stream that is not of this package."""

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from onebyone import Dataset, UsageError, read_results
from onebyone.executors import Worker
from onebyone.methods.registry import METHODS
from onebyone.runs import RunConfig, record_files
from onebyone.runs.grid import expand, plan
from onebyone.runs.results import Record
from onebyone.runs.run import finish
from onebyone.runs.sweep import DoRun
from onebyone.sources import code_hash, local_sources
from test_results import config as er
from test_results import put, result

Call = Callable[..., tuple[int, str, str]]
OWN = Path(__file__).parent / "own_method.py"
SHORT = ("--classes-per-task", 5, "--batch-size", 100)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file that registers the method `means`."""
    path = tmp_path / "mine.py"
    path.write_text(OWN.read_text())
    return path


def edit(path: Path, old: str, new: str) -> None:
    """Change a file, which is then imported anew, as by another process."""
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    METHODS.entries.pop("means")
    del sys.modules[str(path)]


def test_an_edited_method_is_run_again(mine: Path, onebyone: Call) -> None:
    words = ("run", "--method", "mine.py:means", *SHORT)
    _, first, _ = onebyone(*words)
    assert onebyone(*words)[1] == first
    edit(mine, "index_add_(0, y, features)", "index_add_(0, y, -features)")
    code, second, err = onebyone(*words)
    assert (code, err) == (0, "")
    accuracies = [text.splitlines()[0] for text in (first, second)]
    assert accuracies[0] != accuracies[1]
    folders = sorted(path.parent for path in Path("runs").rglob("result.json"))
    assert len(folders) == 2
    recorded = {json.loads((folder / "result.json").read_text())["config"]["code"] for folder in folders}
    assert code_hash(mine) in recorded
    code, out, err = onebyone("table", "runs")
    assert (code, out.splitlines()[-1].split()[0]) == (0, "means")  # without the path of the file
    assert err == ("onebyone: the runs of means come from different source code; name code in rows or columns\n")
    code, out, err = onebyone("table", "runs", "--rows", "method,code")
    assert (code, err) == (0, "")
    assert all(name in out for name in recorded)


def test_a_method_imports_a_module_beside_it(mine: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder, and without PYTHONPATH."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = mine.parent / "elsewhere"
    folder.mkdir()
    file = mine.rename(folder / "mine.py")
    file.write_text("import beside_mine\n" + file.read_text())
    words = ("run", "--method", "elsewhere/mine.py:means", *SHORT)
    with pytest.raises(ModuleNotFoundError):
        onebyone(*words)
    assert str(folder) not in sys.path
    (folder / "beside_mine.py").write_text("")
    code, _, err = onebyone(*words)
    assert (code, err) == (0, "")
    assert Path(sys.modules.pop("beside_mine").__file__ or "") == folder / "beside_mine.py"


def test_modules_of_one_name_beside_two_files_are_refused(
    tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python imports a name once: the second method would run with the code of the first."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "beside_both.py").write_text(f"NAME = {name!r}\n")
        (folder / "mine.py").write_text("import beside_both\n" + OWN.read_text().replace('"means"', f'"means-{name}"'))
    assert onebyone("run", "--method", "one/mine.py:means-one", *SHORT)[0] == 0
    code, _, err = onebyone("run", "--method", "two/mine.py:means-two", *SHORT)
    assert (code, err.count("\n")) == (2, 1)
    assert "imports beside_both, and" in err
    assert "has the same name; rename one of the two modules" in err
    del sys.modules["beside_both"]


@pytest.mark.slow
def test_a_sweep_runs_an_edited_method_again(mine: Path, onebyone: Call) -> None:
    grid = {"method": "mine.py:means", "classes_per_task": 5, "batch_size": 100}
    Path("grid.yaml").write_text(yaml.safe_dump(grid))
    for runs in (1, 2):
        code, out, err = onebyone("sweep", "grid.yaml", "--device", "cpu", "--jobs", 1)
        assert (code, err, "1 of 1 runs are finished" in out) == (0, "", True)
        assert len({run.metrics["accuracy"] for run in read_results("runs")}) == runs
        if runs == 1:
            edit(mine, "index_add_(0, y, features)", "index_add_(0, y, -features)")


def test_the_code_is_that_which_was_imported(mine: Path) -> None:
    """A process goes on with what it has imported, and says so in its results."""
    asked = RunConfig(method=f"{mine}:means")
    before = asked.code()
    assert before == code_hash(mine)
    mine.write_text(mine.read_text() + "\n# changed\n")
    assert asked.code() == before != code_hash(mine)
    assert RunConfig(method="er").code() == ""
    assert "code" not in RunConfig(method="er").resolved("cpu", "")


def test_a_worker_that_imports_other_code_than_was_planned_fails(mine: Path, digits: Dataset, tmp_path: Path) -> None:
    asked = RunConfig(method=f"{mine}:means", classes_per_task=5, batch_size=200)
    ((name, planned),) = plan([asked], "cpu").items()
    worker = Worker(lambda *_: None, threading.Event())
    codes, data = {name: planned.code()}, {("digits", False): digits}
    do_run = DoRun(tmp_path, None, "cpu", None, codes=codes, data=data)
    assert finish(do_run(name, (planned, {}), worker)).config["code"] == planned.code()
    edit(mine, "cosine(features, self.sums, 1.0)", "cosine(features, self.sums, 2.0)")
    with pytest.raises(UsageError, match=r"the code of .*means was changed after the sweep was started"):
        finish(do_run(name, (planned, {}), worker))


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


BESIDE = {
    "losses.py": "import main",  # around in a circle
    "broken.py": "def",
    "parts/__init__.py": "",
    "parts/head.py": "from . import deep",
    "parts/deep.py": "from ..losses import own",
    "plain/file.py": "",
    "other.py": "",
    "onebyone/methods.py": "",
    "../above.py": "",
}
HEAD = {"parts/__init__.py", "parts/head.py", "parts/deep.py", "losses.py"}


@pytest.mark.parametrize(
    ("main", "names"),
    [
        ("import losses", {"losses.py"}),
        ("import torch, onebyone.methods, json", set()),
        ("from losses import own", {"losses.py"}),
        ("def late():\n    from parts import head", HEAD),
        ("import parts.head as head", HEAD),
        ("import parts", {"parts/__init__.py"}),
        ("import broken", {"broken.py"}),
        ("import absent, plain.file", {"plain/file.py"}),
        ("from .. import above", set()),
    ],
)
def test_modules_beside_a_file_are_part_of_its_code(main: str, names: set[str], tmp_path: Path) -> None:
    folder = write(tmp_path / "code", BESIDE | {"main.py": main})
    assert local_sources(folder / "main.py").keys() == {"main.py", *names}


def test_installed_packages_do_not_include_their_neighbours(tmp_path: Path) -> None:
    files = {"plugin.py": "import other", "other.py": "", "own/__init__.py": "", "own/part.py": ""}
    folder = write(tmp_path / "site-packages", files | {"own/method.py": "import other, own.part"})
    assert local_sources(folder / "plugin.py").keys() == {"plugin.py"}
    assert local_sources(folder / "own" / "method.py").keys() == {"own/method.py", "own/__init__.py", "own/part.py"}


def test_the_hash_depends_on_contents_and_not_on_the_folder(tmp_path: Path) -> None:
    one, other = (
        write(tmp_path / name, {"main.py": "import losses", "losses.py": "a = 1"}) / "main.py" for name in ("x", "y")
    )
    assert code_hash(one) == code_hash(other)
    (tmp_path / "y" / "losses.py").write_text("a = 2")
    assert code_hash(one) != code_hash(other)


DATA = '''
import torch
from onebyone.data import Dataset, register
from onebyone.streams import StreamOptions, class_incremental, register as register_stream

@register("noise", about="not in the paper")
def noise(path=None):
    """Noise."""
    x, y = torch.zeros(20, 3), torch.arange(20) % 2
    return Dataset("noise", x, y, x, y, ("a", "b"))
'''


def test_a_sweep_sees_a_data_set_of_the_same_file(mine: Path) -> None:
    before = plan([RunConfig(method=f"{mine}:means")], "cpu")
    edit(mine, "from collections.abc", DATA + "\nfrom collections.abc")
    (name,) = plan(expand({"method": f"{mine}:means", "dataset": "noise"}), "cpu")
    assert name.startswith("means-noise-")
    with_ours = RunConfig(method="er", dataset="noise")
    assert with_ours.code() == code_hash(mine)
    assert before.keys() != plan([RunConfig(method=f"{mine}:means")], "cpu").keys()


def test_a_run_counts_once_in_whatever_form_it_is_found(tmp_path: Path) -> None:
    """A row of a CSV file, a folder with a prequential accuracy, and one from before an option existed."""
    plain = result(er(), 0.3)
    record_files.write(tmp_path, {"kept.csv": [Record.from_result(plain)]})
    prequential = replace(plain, config={**plain.config, "prequential": True}, prequential=0.5)
    options = {name: value for name, value in plain.config["options"].items() if name != "replay_from"}
    old = replace(plain, config={**plain.config, "options": options})
    put(tmp_path, prequential, old)
    (found,) = read_results(tmp_path)
    assert found.metrics["prequential"] == 0.5
    code = {"method": "/somewhere/mine.py:own", "code": "0123abcd"}
    own = replace(plain, config=plain.config | code)
    record_files.write(
        tmp_path, {"kept.csv": [Record.from_result(replace(own, config=own.config | {"method": "own"}))]}
    )
    put(tmp_path / "own", own)
    assert len(read_results(tmp_path)) == 2
