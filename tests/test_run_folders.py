"""One configuration has one folder, however it is written and whichever command runs it."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from onebyone import Dataset, UsageError
from onebyone.methods import find
from onebyone.runs import RunConfig, run
from onebyone.runs.claim import sole_use
from onebyone.runs.config import folder_name
from onebyone.runs.grid import plan
from onebyone.runs.run import Run

pytestmark = pytest.mark.usefixtures("_in_this_process")

Call = Callable[..., tuple[int, str, str]]
METHODS = ("finetune", "iid", "er", "ccp", "patch-lda")
SHORT = ("--method", "er", "--classes-per-task", 5, "--batch-size", 200)
GRID = {"method": "er", "classes_per_task": 5, "batch_size": 200}
CHANGES: list[dict[str, Any]] = [
    {"method": "mir"},
    {"dataset": "cifar10"},
    {"classes_per_task": 2},
    {"memory_per_class": 21},
    {"seed": 1},
    {"batch_size": 11},
    {"class_order": "random"},
    {"held_out": True},
    {"prequential": True},
    {"protocol": "separate"},
    {"stream": "blurry"},
    {"stream": "blurry:share=0.2"},
    {"stream": "class-incremental:imbalance=2"},
    {"options": {"learning_rate": 0.2}},
    {"options": {"replay_size": 11}},
]


def spelt(value: Any) -> st.SearchStrategy[Any]:
    """The ways to write the value of an option in a grid file or after --set."""
    if isinstance(value, bool):
        return st.sampled_from([value, "yes" if value else "no", str(value), "on" if value else "OFF"])
    if isinstance(value, float):
        return st.sampled_from([value, repr(value), f"{value:.17e}", f"0{value!r}", *([int(value)] * (value % 1 == 0))])
    if isinstance(value, int):
        return st.sampled_from([value, str(value), f"0{value}"])
    return st.just(value)


@st.composite
def spellings(draw: st.DrawFn, config: RunConfig) -> RunConfig:
    """The same run, written in another way."""
    kind = find(config.method).options
    defaults = asdict(kind())
    values = defaults | dict(config.options)
    options = {}
    for name in draw(st.permutations([name for name in values if name != "memory_per_class"])):
        if values[name] != defaults[name] or draw(st.booleans()):
            options[name] = draw(spelt(values[name]))
    keeps_nothing = "memory_per_class" not in defaults
    return RunConfig(
        **{item.name: getattr(config, item.name) for item in fields(config)}
        | {
            "method": draw(st.sampled_from([config.method, f"onebyone.methods:{config.method}"])),
            "device": draw(st.sampled_from(["auto", "cpu"])),
            "stream": draw(st.sampled_from([config.stream, config.full_stream()])),
            "memory_per_class": draw(st.integers(1, 9)) if keeps_nothing else config.memory_per_class,
            "options": options,
        }
    )


configurations = st.builds(
    lambda method, rate, **more: RunConfig(
        method=method,
        options={} if rate is None else {"threshold" if method == "patch-lda" else "learning_rate": rate},
        **more,
    ),
    method=st.sampled_from(METHODS),
    rate=st.sampled_from([None, 0.1, 0.25, 1.0]),
    stream=st.sampled_from(["auto", "iid:imbalance=2"]),
    seed=st.integers(0, 3),
    held_out=st.booleans(),
)


@given(st.data())
def test_two_spellings_of_one_configuration_have_one_name(data: st.DataObject) -> None:
    config = data.draw(configurations)
    other = data.draw(spellings(config))
    assert other.folder_name() == config.folder_name()
    assert other.resolved("cpu", "0") == config.resolved("cpu", "0")
    assert plan([other], "cpu") == plan([config], "cpu")
    assert list(plan([config], "cpu")) == [config.folder_name()]


@given(configurations, configurations)
def test_two_configurations_have_two_names(one: RunConfig, other: RunConfig) -> None:
    same = one.resolved("cpu", "0") == other.resolved("cpu", "0")
    assert (one.folder_name() == other.folder_name()) == same


def test_every_field_that_can_change_a_number_is_in_the_name() -> None:
    assert {name for change in CHANGES for name in change} | {"device"} == {item.name for item in fields(RunConfig)}
    configs = [RunConfig(method="er"), *(RunConfig(**{"method": "er"} | change) for change in CHANGES)]
    found = {folder_name(config.resolved(device, "0")) for config in configs for device in ("cpu", "cuda")}
    assert len(found) == 2 * len(configs)


def test_a_name_shows_a_stream_that_is_not_the_usual_one() -> None:
    assert RunConfig(method="iid").folder_name().startswith("iid-digits-s1-m20-seed0-")
    assert RunConfig(method="er", stream="iid").folder_name().startswith("er-digits-iid-s1-m20-seed0-")
    config = RunConfig(method="er", stream="blurry")
    assert config.folder_name().startswith("er-digits-blurry-s1-m20-seed0-")
    assert config.resolved("cpu", "0")["stream"] == "blurry:imbalance=1.0,share=0.1"


def results(folder: Path) -> dict[Path, int]:
    return {path.parent: path.stat().st_mtime_ns for path in folder.rglob("result.json")}


def test_equal_configurations_of_run_share_a_folder(onebyone: Call) -> None:
    code, said, _ = onebyone("run", *SHORT)
    assert code == 0
    first = results(Path("runs"))
    for words in (
        ("--device", "cpu"),
        ("--set", "learning_rate=0.1"),
        ("--set", "learning_rate=1e-1", "--set", "augment=yes"),
        ("--stream", "class-incremental"),
    ):
        assert onebyone("run", *SHORT, *words) == (0, said, "")
    assert results(Path("runs")) == first
    assert len(first) == 1


def test_a_sweep_finds_what_run_has_done(onebyone: Call) -> None:
    Path("grid.yaml").write_text(yaml.safe_dump(GRID))
    onebyone("run", *SHORT)
    ((folder, written),) = results(Path("runs")).items()
    for words in (("--out", "runs"), ()):
        code, out, err = onebyone("sweep", "grid.yaml", "--device", "cpu", *words)
        assert (code, err) == (0, "")
        assert out.startswith("1 of 1 runs are finished")  # and no line of a run that has ended
    copied = Path("runs/grid") / folder.name
    assert results(Path("runs")).keys() == {folder, copied}
    assert results(Path("runs"))[folder] == written
    assert (copied / "result.json").read_bytes() == (folder / "result.json").read_bytes()  # with the same seconds


@pytest.mark.slow
def test_run_finds_what_a_sweep_has_done(onebyone: Call) -> None:
    Path("grid.yaml").write_text(yaml.safe_dump(GRID))
    assert onebyone("sweep", "grid.yaml", "--device", "cpu", "--jobs", 1)[0] == 0
    first = results(Path("runs"))
    code, said, err = onebyone("run", *SHORT)
    assert (code, err) == (0, "")
    assert f"{next(iter(first))}/result.json" in said
    assert results(Path("runs")) == first


@pytest.mark.parametrize("text", ["method: 5", "[]", "{", "method: 2024-13-45", "\xff"])
def test_run_passes_over_the_config_of_another_program(text: str, onebyone: Call) -> None:
    """Where a sweep would have left the same run, and beside it."""
    name = RunConfig(**GRID, device="cpu").folder_name()
    for folder in (Path("runs/other") / name, Path("runs") / f"{name[:-8]}01234567"):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(text, encoding="latin-1")
    code, said, err = onebyone("run", *SHORT, "--device", "cpu")
    assert (code, err) == (0, "")
    assert f"runs/{name}/result.json" in said
    Path(f"runs/{name}/config.yaml").write_text(text, encoding="latin-1")
    code, _, err = onebyone("run", *SHORT, "--device", "cpu")
    assert (code, "holds a run of another configuration (its config.yaml is damaged)" in err) == (2, True)


def test_run_refuses_a_folder_in_which_another_process_works(few: Dataset, tmp_path: Path) -> None:
    config = RunConfig(method="finetune", classes_per_task=10)
    with (
        sole_use(tmp_path),
        pytest.raises(UsageError, match=r"another process works in .*; wait until it has finished"),
    ):
        run(config, data=few, out=tmp_path)
    assert run(config, data=few, out=tmp_path).samples == 120


def test_a_folder_that_another_process_creates_meanwhile_is_locked(
    few: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes start the same run: the folder appears after the first one has looked for it."""
    folder = tmp_path / "new"
    with ExitStack() as other:

        class SlowRun(Run):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                other.enter_context(sole_use(folder))

        monkeypatch.setattr(sys.modules[Run.__module__], "Run", SlowRun)
        with pytest.raises(UsageError, match="another process works in"):
            run(RunConfig(method="finetune", classes_per_task=10), data=few, out=folder)
    assert not (folder / "config.yaml").exists()
