"""Grids of configurations: every combination, and files that are refused."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebyone.runs import RunConfig
from onebyone.runs.grid import expand, plan, read_grid

Call = Callable[..., tuple[int, str, str]]

values = st.lists(st.integers(0, 9), min_size=1, max_size=3)


@given(seed=values, batch_size=values.map(lambda some: [n + 1 for n in some]), rates=st.lists(st.floats(0.1, 1)))
def test_a_grid_is_every_combination(seed: list[int], batch_size: list[int], rates: list[float]) -> None:
    grid: dict[str, Any] = {"method": "er", "seed": seed, "batch_size": batch_size}
    if rates:
        grid["options"] = {"learning_rate": rates, "augment": False}
    found = [(c.seed, c.batch_size, c.options.get("learning_rate")) for c in expand(grid)]
    assert found == list(product(seed, batch_size, rates or [None]))
    assert len(plan(expand(grid), "cpu")) == len(set(found))


def test_single_values_and_lists_of_options() -> None:
    (only,) = expand({"method": "er"})
    assert only == RunConfig(method="er")
    assert expand({"method": "er", "options": None}) == [only]
    two = expand({"method": "er", "options": [{"learning_rate": [1, 2]}, {"augment": False}]})
    assert [config.options for config in two] == [{"learning_rate": 1}, {"learning_rate": 2}, {"augment": False}]


def test_equal_runs_are_planned_once() -> None:
    grid = {"method": ["finetune", "iid", "er"], "memory_per_class": [5, 20], "seed": [0, 1, 1]}
    runs = plan(expand(grid), "cpu")
    assert [name.split("-digits")[0] for name in runs] == ["finetune"] * 2 + ["iid"] * 2 + ["er"] * 4
    default = plan(expand({"method": "er"}), "cpu")
    assert plan(expand({"method": "er", "options": {"learning_rate": "1e-1", "augment": "yes"}}), "cpu") == default
    assert plan(expand({"method": "finetune", "memory_per_class": 7}), "cpu") == plan(
        expand({"method": "finetune"}), "cpu"
    )
    assert plan([RunConfig(method="er", device="cuda")], "cpu") == default
    texts = ["auto", "class-incremental", "blurry", "blurry:share=0.1", "blurry:share=0.2"]
    assert len(plan(expand({"method": "er", "stream": texts}), "cpu")) == 3
    assert plan(expand({"method": "er"}), "cuda") != default


def test_a_file_is_a_grid_or_a_list_of_grids(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text("method: er\nseed: [0, 1]\n")
    assert read_grid(path) == [RunConfig(method="er", seed=0), RunConfig(method="er", seed=1)]
    path.write_text("- method: er\n- method: ccp\n  options:\n    temperature: [1e-1, 0.2]\n")
    assert [config.method for config in read_grid(path)] == ["er", "ccp", "ccp"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "grid.yaml holds no grid, which is a list of names with values; write for example: method: [er, ccp]"),
        ("[]", "grid.yaml holds no grid"),
        ("[{method: er}, {}]", "grid.yaml holds no grid"),
        ("er", "grid.yaml holds no grid"),
        ("method: [er", "grid.yaml is not YAML (while parsing a flow sequence"),
        ("\x00", "grid.yaml is not YAML ("),
        ("methud: er", "grid.yaml: unknown name in a grid 'methud'; did you mean 'method'? Known: batch_size,"),
        ("1: 2", "grid.yaml: unknown name in a grid '1'; Known: "),
        ("device: cpu", "grid.yaml: device belongs to the sweep, not to its runs; remove it, and give it to the sweep"),
        ("seed: []", "grid.yaml: seed is an empty list; give it a value"),
        ("options: {learning_rate: []}", "grid.yaml: learning_rate is an empty list; give it a value"),
        ("options: fast", "grid.yaml: options is 'fast'; it must hold names with values"),
        ("seed: [0, x]", "grid.yaml: seed is 'x'; it must be a whole number"),
        ("seed: {a: 1}", "grid.yaml: seed is {'a': 1}; it must be a whole number"),
        ("batch_size: 0", "grid.yaml: batch_size is 0; it must be at least 1"),
        ("method: [er, cpc]", "unknown method 'cpc'; did you mean 'ccp'?"),
        ("stream: [blurry, blury]", "unknown stream 'blury'; did you mean 'blurry'?"),
        ("stream: 3", "grid.yaml: stream is 3; it must be a name"),
        ("{method: [er, iid], stream: gaussian}", "iid learns a shuffled stream, not gaussian; leave stream out or"),
        ("dataset: digit", "unknown data set 'digit'; did you mean 'digits'?"),
        ("{method: er, options: {temperatur: 1}}", "unknown option of er 'temperatur'; "),
        ("options: {learning_rate: [0.1, -1]}", "learning_rate is -1.0; it must be above 0"),
        ("options: {memory_per_class: 5}", "memory_per_class is an option of the run, not of the method"),
        ("{dataset: arrays}", "arrays"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_written(text: str, sentence: str, onebyone: Call) -> None:
    Path("grid.yaml").write_text(text)
    code, out, err = onebyone("sweep", "grid.yaml")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"onebyone: [^\n]+\n", err)
    assert sentence in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere.yaml",), "nowhere.yaml cannot be used (No such file or directory)"),
        (("grid.yaml", "--jobs", 0), "jobs is 0; it must be at least 1"),
        (("grid.yaml", "--checkpoint-every", 0), "checkpoint_every is 0; it must be at least 1"),
        (("grid.yaml", "--device", "gpu"), "device 'gpu' cannot be used"),
        (("grid.yaml", "--data-dir", "here"), "digits is inside the package; leave --data-dir out"),
    ],
)
def test_bad_options_are_refused(words: tuple[object, ...], sentence: str, onebyone: Call) -> None:
    Path("grid.yaml").write_text("method: er")
    code, out, err = onebyone("sweep", *words)
    assert (code, out) == (2, "")
    assert err.startswith(f"onebyone: {sentence}")
    assert not Path("runs").exists()
