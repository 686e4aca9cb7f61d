"""Tuning: the same number of settings per method, never on the test set, and the best one wins."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onebyone import UsageError, methods
from onebyone.executors import Failed
from onebyone.runs import RunConfig, tune
from onebyone.runs.grid import plan, read_grid
from onebyone.runs.tune import (
    grids,
    read_record,
    tuning_rows,
    tuning_runs,
    winners,
    write_record,
)
from onebyone.runs.winners import Winner, read_winners, winner, write_winners

pytestmark = pytest.mark.usefixtures("_in_this_process")

REPOSITORY = Path(__file__).parents[1]
RECORDS = sorted((REPOSITORY / "results" / "tuning").glob("*.csv"))
DATASETS = ["cifar10", "cifar100", "digits"]


@pytest.mark.parametrize("dataset", DATASETS)
def test_no_run_is_evaluated_on_the_test_set(dataset: str) -> None:
    configs = tuning_runs(dataset)
    assert configs
    assert all(config.held_out for config in configs)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_no_record_used_the_test_set(path: Path) -> None:
    rows = read_record(path)
    assert rows
    assert all(row["held_out"] for row in rows)


def test_a_run_on_the_test_set_is_refused() -> None:
    with pytest.raises(UsageError, match="evaluated on the test set"):
        tuning_rows({"one": RunConfig(method="finetune")}, {"one": Failed("too fast")})


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_method_has_a_grid_of_the_same_size(dataset: str) -> None:
    """The same number of settings for each, with at least two seeds; those of hybrid come from a finer search."""
    configs = tuning_runs(dataset)
    assert {config.method for config in configs} == set(grids()["grids"])
    cells: dict[tuple[str, int], dict[str, set[int]]] = {}
    for config in configs:
        config.method_options()  # all options exist
        cell = cells.setdefault((config.method, config.classes_per_task), {})
        cell.setdefault(json.dumps(config.options), set()).add(config.seed)
    assert {len(cell) for (name, _), cell in cells.items() if name != "hybrid"} == {4}
    assert all(len(seeds) >= 2 for cell in cells.values() for seeds in cell.values())


def test_every_method_of_the_paper_is_tuned() -> None:
    assert set(grids()["grids"]) <= set(methods())
    assert {"er", "icarl", "mir", "der++", "er-aml", "er-ace", "supbyol", "ccp"} < set(grids()["grids"])


def test_the_ablation_removes_one_ingredient_at_a_time_on_held_out_data() -> None:
    runs = plan(read_grid(REPOSITORY / "benchmarks" / "replay_ablation.yaml"), "cpu").values()
    assert all(run.held_out for run in runs)
    defaults = vars(methods()["replay"].options(replay_size=30))
    removed = {frozenset(name for name in run.options if run.options[name] != defaults[name]) for run in runs}
    ingredients = {"replay_size", "memory_policy", "passes", "average", "readout"}
    assert removed == {frozenset(names) for names in [(), ["augment"], *([name] for name in ingredients), ingredients]}
    settings = {json.dumps(run.options) for run in runs}
    assert len(runs) == 2 * 3 * len(settings)  # sizes of the memory, and seeds


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="unknown data set to tune on 'cifar'"):
        tuning_runs("cifar")
    with pytest.raises(UsageError, match="unknown method 'err'"):
        tuning_runs("digits", ["err"])
    with pytest.raises(UsageError, match="there is no grid for patch-lda, which has no option learning_rate"):
        tuning_runs("digits", ["patch-lda"])
    with pytest.raises(UsageError, match="name at least one method"):
        tuning_runs("digits", grid=[{"learning_rate": 0.1}])


def row(rate: float, accuracy: float, method: str = "er", per_task: int = 1) -> dict[str, Any]:
    return {
        "dataset": "digits",
        "classes_per_task": per_task,
        "method": method,
        "options": {"learning_rate": rate},
        "memory_per_class": 20,
        "seed": 0,
        "held_out": True,
        "accuracy": accuracy,
        "forgetting": None,
    }


def test_the_best_mean_wins_in_every_cell(tmp_path: Path) -> None:
    rows = [
        row(0.1, 0.9),
        row(0.1, 0.1),
        row(0.01, 0.6),
        row(0.01, 0.6),
        row(0.1, 0.2, per_task=2),
        row(0.1, 0.3, "ccp"),
    ]
    assert winners(rows) == [
        Winner("digits", 1, "er", {"learning_rate": 0.01}, 0.6),
        Winner("digits", 2, "er", {"learning_rate": 0.1}, 0.2),
        Winner("digits", 1, "ccp", {"learning_rate": 0.1}, 0.3),
    ]
    write_record(tmp_path / "record.csv", rows)
    assert read_record(tmp_path / "record.csv") == rows


def test_winners_of_the_package_are_those_of_the_record() -> None:
    """The file in the package, the one in results/tuning and the records there agree."""
    rows = [row for path in RECORDS for row in read_record(path)]
    expected = winners(rows)
    for folder in (REPOSITORY / "results" / "tuning", REPOSITORY / "src" / "onebyone" / "runs"):
        found = read_winners((folder / "winners.json").read_text())
        assert write_winners(found) == write_winners(expected)


def test_winner_of_a_setting() -> None:
    best = {(w.method, w.dataset, w.classes_per_task): w.options for w in _record()}
    for (method, dataset, per_task), options in best.items():
        assert winner(method, dataset, per_task) == options
    assert winner("er", "cifar10", classes_per_task=10) == {}
    assert winner("iid", "cifar10", 2) == winner("iid", "cifar10", 1)
    own = [Winner("cifar10", 1, "iid", {"learning_rate": 7.0}, 0.9)]  # those of the user take precedence
    assert winner("iid", "cifar10", 2, own) == winner("iid", "cifar10", 1, own) == {"learning_rate": 7.0}
    assert winner("er", "cifar10", 1, own) == winner("er", "cifar10", 1)


def _record() -> list[Winner]:
    return read_winners((REPOSITORY / "results" / "tuning" / "winners.json").read_text())


@pytest.mark.slow
def test_the_command(
    onebyone: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = grids() | {"runs": [{"seed": seed, "batch_size": 200} for seed in (0, 1)]}
    monkeypatch.setattr(tune, "grids", lambda: grid)
    words = ["tune", "--dataset", "digits", "--method", "finetune", "--classes-per-task", 1, "--jobs", 1]
    code, out, _ = onebyone(*words)
    assert code == 0
    assert "what won: tuning/winners.json" in out
    rows = read_record(tmp_path / "tuning" / "digits.csv")
    assert len(rows) == 8
    best = read_winners((tmp_path / "tuning" / "winners.json").read_text())
    assert [(w.method, w.classes_per_task) for w in best] == [("finetune", 1)]
    # Another method is added to the record, and existing rows stay.
    words[4] = "iid"
    onebyone(*words)
    rows = read_record(tmp_path / "tuning" / "digits.csv")
    assert {row["method"] for row in rows} == {"finetune", "iid"}
    assert len(rows) == 16


@pytest.mark.slow
def test_a_setting_with_a_failed_run_is_recorded_and_cannot_win(
    onebyone: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = grids()
    grid["grids"] = {"finetune": [{"learning_rate": 1e30}, {"learning_rate": 0.01}]}
    monkeypatch.setattr(tune, "grids", lambda: grid)
    words = ["tune", "--dataset", "digits", "--classes-per-task", 5, "--jobs", 1, "--device", "cpu"]
    code, out, err = onebyone(*words)
    assert code == 1
    assert out.count("finetune    5 per task  failed  learning_rate 1e+30\n") == 1
    assert "2 of 4 runs are finished" in out
    assert err.startswith("onebyone: 2 of 4 runs failed, see error.txt in finetune-digits")
    rows = read_record(Path("tuning/digits.csv"))
    assert [row["accuracy"] is None for row in rows] == [row["options"]["learning_rate"] == 1e30 for row in rows]
    assert len(rows) == 4
    (best,) = read_winners(Path("tuning/winners.json").read_text())
    assert best.options == {"learning_rate": 0.01}
    grid["grids"]["finetune"].pop()  # now all fail
    assert onebyone(*words)[0] == 1
    assert read_winners(Path("tuning/winners.json").read_text()) == []


def test_one_failed_run_excludes_a_setting(tmp_path: Path) -> None:
    rows = [row(0.1, 0.9), row(0.1, 0.9) | {"accuracy": None}, row(0.01, 0.2)]
    assert [w.options for w in winners(rows)] == [{"learning_rate": 0.01}]
    write_record(tmp_path / "record.csv", rows)
    assert read_record(tmp_path / "record.csv") == rows


def test_a_folder_of_other_records_is_refused_before_anything_is_run(
    onebyone: Callable[..., tuple[int, str, str]],
) -> None:
    code, out, err = onebyone("tune", "--dataset", "digits", "--record", REPOSITORY / "results")
    assert (code, out) == (2, "")
    assert "is not a record of tuning, or is damaged; choose another folder for the record" in err
    assert not Path("runs").exists()


def test_a_user_method_tries_the_settings_of_the_baselines(own_method: str) -> None:
    runs = tuning_runs("digits", [own_method], [1])
    assert len(runs) == 8
    assert {config.method for config in runs} == {own_method}
    settings = [dict(config.options) for config in runs[::2]]
    assert settings == [dict(config.options) for config in tuning_runs("digits", ["er"], [1])[::2]]


@pytest.mark.slow
def test_a_user_method_is_tuned_over_its_own_grid(
    own_method: str, onebyone: Callable[..., tuple[int, str, str]]
) -> None:
    Path("grid.yaml").write_text("encoder: mlp\naugment: [yes, no]\n")
    words = ["tune", "--dataset", "digits", "--method", own_method, "--classes-per-task", 5, "--jobs", 1]
    code, out, err = onebyone(*words, "--grid", "grid.yaml")
    assert (code, err) == (0, "")
    assert "4 of 4 runs are finished" in out
    rows = read_record(Path("tuning/digits.csv"))
    assert {row["method"] for row in rows} == {"means"}
    assert [row["options"]["augment"] for row in rows] == [False, False, True, True]
    (best,) = read_winners(Path("tuning/winners.json").read_text())
    assert best.method == "means"
    assert winner("means", "digits", 5, [best]) == best.options
    Path("grid.yaml").write_text("augment: [")
    code, _, err = onebyone(*words, "--grid", "grid.yaml")
    assert (code, err[:35]) == (2, "onebyone: grid.yaml is not YAML (wh")
