"""Every command in the README and on the pages of the documentation runs, as a reader of the page would type it."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from PIL import Image

from made_up import result
from onebyone import Dataset
from onebyone.cli import reproduce as reproduce_module
from onebyone.cli import sweep as sweep_module
from onebyone.cli.app import COMMANDS
from onebyone.data import CropFlip
from onebyone.data.registry import DATASETS
from onebyone.executors import Executor, Worker
from onebyone.methods.registry import METHODS
from onebyone.runs.run import finish
from photo_folders import write_images
from tiers import mostly_slow

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`onebyone ([^`]+)`")
YAML = re.compile(r"^```yaml\n# (\S+\.yaml)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
}
WITH_COMMANDS = sorted(page for page, text in PAGES.items() if BLOCK.search(text))
FAST = {page for page in WITH_COMMANDS if "/re" not in page}  # the others plan every run of the paper
PLANNED = ("sweep", "tune", "reproduce", "report", "table", "methods", "datasets", "streams")

# Commands that are not run here, by how they begin, and why.
ELSEWHERE = {
    "python3 -m venv": "the Makefile does it on every fresh machine",
    "pip install": "needs an index of packages; the Makefile does it",
    "make": "runs the tests, and others run the targets",
    "python -m build": "test_wheel.py",
    "python examples/": "test_examples.py",
    "jupyter lab": "opens a browser; test_examples.py runs the notebook",
    "ray ": "test_ray.py",
    "onebyone learn photos/ --into pets.onebyone --executor ray": "test_ray.py",
    "docker": "needs a daemon, and an index of images",
}
QUICKER = {"--workers 8": "--workers 2"}


def commands(page: str) -> list[str]:
    """The commands of a page, each on one line and without comments."""
    blocks = "\n".join(BLOCK.findall(PAGES[page])).replace("\\\n", " ")
    lines = [shlex.join(shlex.split(line, comments=True)) if ">" not in line else line for line in blocks.splitlines()]
    return [line for line in lines if line and not line.startswith(tuple(ELSEWHERE))]


def tiny(name: str, classes: int) -> Callable[..., Dataset]:
    """A data set of random photographs that is called as a real one, which would be downloaded."""

    def load(root: Path | None = None) -> Dataset:
        x = torch.randint(
            0, 256, (2 * classes, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
        )
        y = torch.arange(2 * classes) % classes
        names = tuple(f"class {label}" for label in range(classes))
        return Dataset(name, x, y, x[:classes], y[:classes], names, CropFlip(4, True))

    return load


class Inline(Executor):
    """Runs in this process, or only makes results up for them, once they have been planned and their code imported."""

    def __init__(self, learn: bool) -> None:
        self.learn = learn

    def device(self, name: str) -> str:
        return "cpu"

    def map(self, function: Any, items: Mapping[str, Any], **given: Any) -> Generator[tuple[str, Any]]:
        for name, item in items.items():
            if self.learn:
                yield name, finish(function(name, item, Worker(given["progressed"], Event())))
            else:
                outcome = result(item[0], 0.5)
                folder = function.out / name
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "result.json").write_text(outcome.to_json())
                (folder / "curve.csv").write_text("task,samples,accuracy\n1,10,0.5\n")
                yield name, outcome


@pytest.fixture
def reader(tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Types the commands of a page in a folder with what the pages speak of."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "results").symlink_to(ROOT / "results")
    (tmp_path / "mine.py").write_text((ROOT / "examples" / "own_method.py").read_text().replace("smooth-er", "mine"))
    for name, classes in {"cifar10": 10, "cifar10-quick": 10, "cifar100": 100, "cifar100-quick": 10}.items():
        entry = DATASETS.entries[name]
        monkeypatch.setitem(DATASETS.entries, name, type(entry)(tiny(name, classes), entry.summary, entry.about))
    (tmp_path / "grid.yaml").write_text("method: [er, ccp]\n")
    methods = METHODS.entries.copy()

    def type_all(page: str, chosen: list[str], learn: bool = False) -> None:
        for module in (reproduce_module, sweep_module):
            monkeypatch.setattr(module, "executor_named", lambda name, address=None: Inline(learn))
        for name, text in YAML.findall(PAGES[page]):
            (tmp_path / name).write_text(text)
        for command in chosen:
            for source in [name for name in sys.modules if name.endswith(".py")]:  # each command is a new process
                del sys.modules[source]
            METHODS.entries = methods.copy()
            words = shlex.split(command)
            assert words[0] == "onebyone", f"{page}: run {command!r} in a test, or say in ELSEWHERE why not"
            code, _, err = onebyone(*words[1:])
            assert code == 0, f"{page}: {command}\n{err}"
            assert "Traceback" not in err, command

    return type_all


@pytest.mark.parametrize("page", mostly_slow(WITH_COMMANDS, fast=FAST))
def test_commands_with_many_runs_plan_them(
    page: str, reader: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but the learning: methods are imported, options checked, results written, read and tabulated."""
    monkeypatch.setattr(reproduce_module, "publish", lambda *_: None)  # draws figures for seconds, as in test_report.py
    reader(page, ["onebyone sweep grid.yaml"])
    chosen = [line for line in commands(page) if re.match(rf"onebyone ({'|'.join(PLANNED)})\b", line)]
    reader(page, [re.sub(r" --track \S+", "", line) for line in chosen])


@contextmanager
def server(command: str) -> Iterator[str]:
    """The address of the server that a command starts, which is stopped after the block."""
    words = [sys.executable, "-m", *shlex.split(command), "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert process.stdout is not None
        said = ""
        while not (found := re.search(r"teach it at http://\S+:(\d+)/", said)):
            line = process.stdout.readline()
            assert line, f"{command}\n{said}"
            said += line
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of trackers
@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if page in FAST])
def test_all_commands_of_a_page_run_one_after_another(
    page: str, reader: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of sweeps are made up; everything else is done, on small photographs."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    write_images(tmp_path / "photos", 12)
    write_images(tmp_path / "more", 12, ("blue", "yellow"), seed=1)
    write_images(tmp_path / "new", 2, seed=2)
    for name in ("tom", "tim", "new"):
        Image.new("RGB", (40, 40), "red" if name == "new" else "blue").save(tmp_path / f"{name}.jpg")
    address = ""
    with ExitStack() as stack:
        for line in ["onebyone sweep grid.yaml", *commands(page)]:
            for given, quicker in QUICKER.items():
                line = line.replace(given, quicker)
            if line.startswith("onebyone serve"):
                stack.close()
                address = stack.enter_context(server(line))
            elif line.startswith("onebyone "):
                reader(page, [line])
            else:  # curl, and what makes a token
                line = re.sub("^python ", f"{sys.executable} ", line.replace("http://127.0.0.1:8000", address))
                done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
                assert done.returncode == 0, f"{line}\n{done.stderr}"
                assert '{"error"' not in done.stdout, f"{line}\n{done.stdout}"


@pytest.mark.slow
def test_an_own_method_is_compared_on_photographs(reader: Callable[..., None]) -> None:
    """The command of the README in its quick form, with real runs."""
    (command,) = [line for line in commands("README.md") if "reproduce" in line]
    reader("README.md", [f"{command} --quick --protocol joint"], learn=True)


def test_commands_within_sentences_have_their_options(onebyone: Call) -> None:
    known = {name: set(re.findall(r"(?m)^  (--[a-z-]+)", onebyone(name, "--help")[1])) for name in COMMANDS}
    found = [words for text in PAGES.values() for words in INLINE.findall(text) if re.match("[a-z]", words)]
    assert len(found) > 10
    for text in found:
        name, *_ = text.split()
        assert name in COMMANDS, text
        assert set(re.findall(r" (--[a-z-]+)", text)) <= known[name], text
