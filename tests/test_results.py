"""Results as rows, from run folders and from CSV files."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import onebyone
from made_up import result, results
from onebyone import UsageError
from onebyone.evaluation import Result
from onebyone.paper.printed import PARTS
from onebyone.paper.records import from_results, write
from onebyone.paper.reproduce import collect
from onebyone.runs import Results, RunConfig, record_files
from onebyone.runs.results import METRICS, Record, Value, summarize

ROOT = Path(__file__).parent.parent


def config(seed: int = 0, method: str = "er", **fields: object) -> RunConfig:
    return RunConfig(**({"method": method, "dataset": "cifar10", "seed": seed, "protocol": "separate"} | fields))  # type: ignore[arg-type]


def put(folder: Path, *made: Result) -> Path:
    for number, one in enumerate(made):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "result.json").write_text(one.to_json())
    return folder


@given(st.lists(st.floats(-100, 100), min_size=1))
def test_mean_and_standard_deviation(numbers: list[float]) -> None:
    value = summarize(numbers)
    assert value is not None
    mean, degrees = sum(numbers) / len(numbers), max(len(numbers) - 1, 1)
    assert value.mean == pytest.approx(mean, abs=1e-9)
    assert value.std == pytest.approx((sum((n - mean) ** 2 for n in numbers) / degrees) ** 0.5, abs=1e-6)
    assert value.runs == len(numbers)
    assert summarize([*numbers, None]) is None


def test_no_runs_have_no_mean() -> None:
    assert summarize([]) is None
    assert Results().summarize("accuracy") is None
    assert str(Value(34.34, 1.06, 5)) == "34.3 ± 1.1"
    assert str(Value(34.34, 0, 1)) == "34.3"


def test_a_folder_of_runs(tmp_path: Path) -> None:
    made = [result(config(seed), accuracy) for seed, accuracy in enumerate((0.2, 0.4))]
    put(tmp_path / "runs", *made)
    put(tmp_path / "copies", made[0])
    (tmp_path / "runs" / "unfinished").mkdir()
    (tmp_path / "runs" / "unfinished" / "config.yaml").write_text("method: er\n")
    (tmp_path / "other.csv").write_text("name,value\na,1\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "folder.csv").mkdir()
    found = onebyone.read_results(tmp_path)
    assert sorted(row.config["seed"] for row in found) == [0, 1]
    assert all(set(row.metrics) == set(METRICS) for row in found)
    assert found.summarize("accuracy") == Value(pytest.approx(0.3), pytest.approx(0.02**0.5), 2)  # type: ignore[arg-type]
    (first,) = found.where(seed=1, learning_rate=made[1].config["options"]["learning_rate"])
    assert first == Record.from_result(made[1])
    assert onebyone.read_results(str(tmp_path / "runs" / "0" / "result.json")).rows == (Record.from_result(made[0]),)
    with pytest.raises(UsageError, match="unknown field 'sead'; did you mean 'seed'"):
        found.where(sead=1)
    with pytest.raises(UsageError, match="unknown metric 'acc'"):
        found.summarize("acc")


def test_csv_files_give_the_same_runs_as_their_folders(tmp_path: Path) -> None:
    made = results(PARTS[:1], seeds=1)
    write(from_results(made, PARTS), tmp_path / "kept", PARTS)
    folders = onebyone.read_results(put(tmp_path / "runs", *made))
    for path in (tmp_path / "kept", tmp_path / "kept" / "table1.csv"):
        found = onebyone.read_results(path)
        assert len(found) == len(folders) == 50
        for row in found:
            (same,) = (other for other in folders if other.config == row.config)
            assert row.fields == same.fields
            assert row.environment == same.environment
            for name, number in row.metrics.items():
                assert number == pytest.approx(same.metrics[name], abs=1e-5)
    put(tmp_path / "kept" / "runs", *made)
    both = onebyone.read_results(tmp_path / "kept")  # each run is there twice
    assert len(both) == 50
    assert all("seconds.training" in row.metrics for row in both)


def test_the_results_of_this_repository() -> None:
    found = onebyone.read_results(ROOT / "results")
    assert repr(found) == "Results(1490 runs)"
    ccp = found.where(method="ccp", dataset="cifar10", classes_per_task=1, memory_per_class=100, protocol="separate")
    value = ccp.summarize("accuracy")
    assert value is not None
    assert (f"{100 * value.mean:.1f}", f"{100 * value.std:.1f}", value.runs) == ("43.4", "4.0", 5)
    assert {row.fields["stream"] for row in found.where(method="iid")} == {"iid:imbalance=1.0"}


@pytest.mark.parametrize("name", ["auto.csv", "held-out-search.csv", "tuning/cifar10.csv", "tried.yaml", "README.md"])
def test_files_of_other_kinds_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"is neither a result\.json nor a CSV file of results"):
        onebyone.read_results(ROOT / "results" / name)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "nowhere.csv"):
        with pytest.raises(UsageError, match=r"there is no readable result\.json below"):
            onebyone.read_results(path)


def test_equal_runs_of_two_protocols_are_two(tmp_path: Path) -> None:
    made = [result(config(protocol=name), 0.2) for name in ("printed", "separate")]
    write(from_results(made, PARTS), tmp_path, PARTS)
    assert [row.config["protocol"] for row in onebyone.read_results(tmp_path)] == ["printed", "separate"]
    put(tmp_path / "runs", made[1])
    assert len(onebyone.read_results(tmp_path)) == 2


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write(from_results([result(config(), 0.2)], PARTS), tmp_path, PARTS)
    path = tmp_path / "table1.csv"
    header, line, _ = path.read_text().split("\n")
    for text in (f"{header}\n{line[:60]}\n", header.replace(",flops", "") + f"\n{line}\n", f"{header}\n{line}\nmore\n"):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"table1\.csv is damaged"):
            onebyone.read_results(tmp_path)
    path.write_text(f"{header}\n{line}\n")
    (tmp_path / "settings.json").unlink()
    with pytest.raises(UsageError, match=r"settings\.json or environments\.json beside .* does not say what"):
        onebyone.read_results(path)


def test_a_damaged_result_is_skipped_and_named_once(tmp_path: Path) -> None:
    folder = put(tmp_path, *(result(config(seed), 0.2) for seed in range(3)))
    broken = folder / "0" / "result.json"
    broken.write_text(broken.read_text()[:-20])
    for read in (onebyone.read_results, lambda path: collect([path])):
        with pytest.warns(UserWarning, match=r"^1 damaged result\.json skipped: .*0/result\.json: ") as warned:
            assert sorted(row.config["seed"] for row in read(tmp_path)) == [1, 2]
        assert len(warned) == 1
    with pytest.raises(UsageError, match=r"0/result\.json: this is not a result"):
        onebyone.read_results(broken)
    with (
        pytest.warns(UserWarning, match="skipped"),
        pytest.raises(UsageError, match=r"there is no readable result\.json"),
    ):
        onebyone.read_results(broken.parent)


def test_a_record_is_written_as_it_is_read() -> None:
    run = Record.from_result(result(config(3, options={"passes": "joint"}), 1 / 3))
    once = record_files.as_recorded(run)
    assert once.config == run.config
    assert once.metrics["accuracy"] == 0.33333
    assert record_files.as_recorded(once) == once
    assert record_files.line(once) == record_files.line(run)


def test_a_method_that_is_not_installed_can_be_read(tmp_path: Path) -> None:
    run = Record.from_result(result(config(), 0.2))
    own = replace(run, config=run.config | {"method": "mine.py:own"})
    record_files.write(tmp_path, {"own.csv": [own]})
    (found,) = onebyone.read_results(tmp_path)
    assert found.fields == own.fields


def test_a_data_frame_has_a_row_per_run() -> None:
    pytest.importorskip("pandas")
    made = [result(config(0), 0.2), result(config(1, method="finetune"), 0.1)]
    frame = Results.from_runs(made).to_pandas()
    assert frame["seed"].tolist() == [0, 1]
    assert frame["accuracy"].tolist() == pytest.approx([0.2, 0.1])
    assert frame["passes"].isna().tolist() == [False, True]  # an option that only one of the methods has
    assert frame["memory_per_class"].isna().tolist() == [False, True]
    assert frame["cost.flops"].tolist() == [4e8, 4e8]
    assert frame["prequential"].tolist() == [False, False]  # the field of the configuration
    asked = Results.from_runs([replace(made[0], prequential=0.5), made[1]]).to_pandas()
    assert asked["prequential"].tolist()[0] == 0.5
    assert asked.columns.is_unique
    assert len(frame["anytime"][0]) == 10
    assert frame.columns.is_unique
    assert list(Results().to_pandas().columns) == ["anytime", "class_accuracy"]


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install 'onebyone\[research\]'"):
        Results().to_pandas()
