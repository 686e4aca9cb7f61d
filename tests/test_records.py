from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_up import result, results
from onebyone import UsageError
from onebyone.evaluation import Result
from onebyone.files import atomic_write
from onebyone.paper.printed import FURTHER, PARTS, quick
from onebyone.paper.records import CellKey, Records, from_results, keep, read, write
from onebyone.runs import RunConfig, record_files
from onebyone.runs.claim import sole_use
from onebyone.runs.config import short_hash
from onebyone.runs.record_files import environment, settings
from onebyone.runs.results import Value

TABLE1 = PARTS[:1]


def config(seed: int = 0, **fields: object) -> RunConfig:
    return RunConfig(**({"method": "er", "dataset": "cifar10", "seed": seed, "protocol": "separate"} | fields))  # type: ignore[arg-type]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = from_results(results(PARTS[:2]), PARTS)
    assert len(made.rows) == 2 * (2 + 2 * 4 * 6) + 2 * (2 + 2 * 4 * 8)  # seeds x (no memory + protocols x M x methods)
    write(made, tmp_path, PARTS)
    assert files(tmp_path).keys() == {"table1.csv", "table2.csv", "settings.json", "environments.json"}
    assert read(tmp_path, PARTS) == made
    before = files(tmp_path)
    write(read(tmp_path, PARTS).merged(made), tmp_path, PARTS)
    assert files(tmp_path) == before


@given(st.permutations(range(8)), st.integers(0, 8))
def test_records_grow_run_by_run_in_any_order(order: Sequence[int], cut: int) -> None:
    some = [result(config(seed, protocol=p), 0.2) for p in ("separate", "joint") for seed in range(4)]
    first, second = ([some[i] for i in part] for part in (order[:cut], order[cut:]))
    grown = from_results(first, TABLE1).merged(from_results(second, TABLE1))
    assert grown == from_results(some, TABLE1)
    assert [(row.config["protocol"], row.config["seed"]) for row in grown] == [
        (p, s) for p in ("joint", "separate") for s in range(4)
    ]


def test_a_value_is_the_mean_over_the_seeds_of_one_protocol() -> None:
    made = from_results(
        [
            *(result(config(seed), accuracy, 0.3) for seed, accuracy in enumerate((0.1, 0.2, 0.6))),
            result(config(0, protocol="joint"), 0.9),
            result(config(0, method="finetune", protocol="both"), 0.1, 1.0),
            result(config(0, method="iid", protocol="both"), 0.6),
        ],
        TABLE1,
    )
    found = made.value(CellKey("separate", "cifar10", "er", 1, 20), "accuracy")
    assert found is not None
    assert (round(found.mean, 3), round(found.std, 3), found.runs) == (30.0, 26.458, 3)
    assert made.value(CellKey("joint", "cifar10", "er", 1, 20), "accuracy") == Value(90.0, 0.0, 1)
    forgetting = made.value(CellKey("separate", "cifar10", "er", 1, 20), "forgetting")
    assert forgetting is not None
    assert round(forgetting.mean, 3) == 30.0
    assert made.value(CellKey("separate", "cifar10", "er", 1, 50), "accuracy") is None
    assert made.value(CellKey("separate", "cifar10", "er", 2, 20), "accuracy") is None
    for name in ("separate", "joint"):  # a run without a memory counts for every M
        assert made.value(CellKey(name, "cifar10", "finetune", 1, 100), "accuracy") == Value(10.0, 0.0, 1)
        assert made.value(CellKey(name, "cifar10", "iid", 1, 5), "forgetting") is None
    assert made.value(CellKey("printed", "cifar10", "iid", 1, 5), "accuracy") is None  # it has other settings there
    growth = made.value(CellKey("separate", "cifar10", "finetune", 1, 5), "growth")
    assert growth is not None
    assert growth.mean < 0


def test_a_cell_never_holds_two_settings() -> None:
    old = from_results([result(config(seed), 0.2) for seed in range(3)], TABLE1)
    new = from_results([result(config(1, options={"learning_rate": 0.01}), 0.3)], TABLE1)
    assert [(row.config["seed"], row.metrics["accuracy"]) for row in old.merged(new)] == [(1, 0.3)]
    other = from_results([result(config(1, memory_per_class=50, options={"learning_rate": 0.01}), 0.3)], TABLE1)
    assert len(old.merged(other).rows) == 4  # another cell
    two = [result(config(0), 0.2), result(config(1, options={"learning_rate": 0.01}), 0.3)]
    with pytest.raises(UsageError, match=r"runs of er on cifar10 \(S = 1, M = 20\) with different settings; give only"):
        from_results(two, TABLE1)


def test_replaced_records_are_returned(tmp_path: Path) -> None:
    def put(*made: Result) -> list[tuple[str, float | None]]:
        return [
            (str(CellKey.of(row.config)), row.metrics["accuracy"])
            for row in keep(from_results(made, PARTS), tmp_path, PARTS)[1]
        ]

    first = [result(config(seed), 0.2) for seed in range(3)]
    assert put(*first) == []
    assert put(result(config(3), 0.2), first[0]) == []
    assert put(result(config(1), 0.3)) == [("er on cifar10 (S = 1, M = 20)", 0.2)]  # the same run with another result
    other_settings = result(config(0, options={"learning_rate": 0.01}), 0.2)
    assert [accuracy for _, accuracy in put(other_settings)] == [0.2, 0.3, 0.2, 0.2]
    assert len(read(tmp_path, PARTS).rows) == 1
    assert put(result(config(0, method="iid", protocol="both"), 0.5)) == []
    assert put(result(config(0, method="iid", protocol="both"), 0.6)) == [("iid on cifar10 (S = 1)", 0.5)]


def test_records_are_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    made = [from_results([result(config(seed), 0.2)], PARTS) for seed in range(2)]
    with sole_use(tmp_path):
        other = Thread(target=keep, args=(made[0], tmp_path, PARTS))
        other.start()
        other.join(0.2)
        assert other.is_alive()
        write(made[1], tmp_path, PARTS)
    other.join()
    assert [row.config["seed"] for row in read(tmp_path, PARTS)] == [0, 1]


@pytest.mark.parametrize(
    "other",
    [
        {"held_out": True},
        {"class_order": "random"},
        {"batch_size": 5},
        {"dataset": "cifar100"},
        {"memory_per_class": 7},
        {"classes_per_task": 5},
        {"stream": "blurry:share=0.3"},
        {"options": {"memory_samples": 50}},
        {"method": "patch-lda", "options": {"budget": 100_000}},
    ],
)
def test_only_runs_of_the_paper_are_recorded(other: dict[str, object]) -> None:
    assert from_results([result(config(**other), 0.2)], (*PARTS[:2], FURTHER[0])) == Records()


def test_methods_the_paper_calls_inapplicable_are_recorded_beyond_it() -> None:
    runs = [result(config(method="er-aml", protocol=protocol), 0.2) for protocol in ("separate", "joint")]
    assert from_results(runs, PARTS) == Records()
    assert [(row.config["method"], row.config["protocol"]) for row in from_results(runs, FURTHER)] == [
        ("er-aml", "joint")
    ]


def test_a_user_method_is_not_part_of_the_paper() -> None:
    """It is not registered where records are read: its file was named on the command line of the run."""
    run = result(config(), 0.2)
    own = replace(run, config=run.config | {"method": "mine.py:own"})
    assert from_results([own, run], TABLE1) == from_results([run], TABLE1)


def test_recorded_runs_are_recognised(tmp_path: Path) -> None:
    write(from_results([result(config(1), 0.2), result(config(2, method="iid"), 0.2)], PARTS), tmp_path, PARTS)
    known = read(tmp_path, PARTS)
    assert known.holds(config(1))
    assert known.holds(config(1, device="cuda", options={"learning_rate": 0.1, "passes": "separate"}))
    assert known.holds(config(2, method="iid"))
    assert not known.holds(config(0))
    assert not known.holds(config(1, options={"learning_rate": 0.2}))
    assert not known.holds(config(1, protocol="joint"))
    assert not known.holds(config(1, memory_per_class=5))


def test_the_machine_is_not_part_of_the_settings() -> None:
    first = result(config(0), 0.2)
    second = replace(result(config(1), 0.2), config=config(1).resolved("cuda", "11111111"))
    made = from_results([first], TABLE1).merged(from_results([second], TABLE1))
    assert [row.config["seed"] for row in made] == [0, 1]
    assert {found["type"] for found, _ in made.environments.values()} == {"cpu", "cuda"}


def test_prequential_is_not_part_of_the_settings() -> None:
    usual, with_it = (result(config(seed, prequential=bool(seed)), 0.2) for seed in range(2))
    made = from_results([usual], TABLE1).merged(from_results([with_it], TABLE1))
    assert [row.config["seed"] for row in made] == [0, 1]
    assert made.holds(config(1))


def test_every_number_can_be_traced() -> None:
    run = result(config(1, options={"learning_rate": 0.03}), 0.2, device="another machine")
    made = from_results([run, result(config(2, options={"learning_rate": 0.03}), 0.2)], PARTS)
    first, second = made.rows
    assert settings(first.config) == settings(second.config)
    assert first.config == run.config
    assert first.environment["device"] == "another machine"
    assert second.environment["device"] == "a made-up machine"
    assert [(found["device"], runs) for found, runs in made.environments.values()] == [
        (found["device"], 1) for found in map(environment, sorted(made, key=lambda row: short_hash(environment(row))))
    ]


def test_quick_and_full_runs_have_separate_files(tmp_path: Path) -> None:
    everything = (*PARTS, *quick(PARTS))
    both = from_results([result(config(), 0.2), result(config(dataset="cifar10-quick"), 0.9)], everything)
    write(both, tmp_path, everything)
    assert {"table1.csv", "table1-quick.csv"} <= files(tmp_path).keys()
    assert read(tmp_path, everything) == both
    assert [row.metrics["accuracy"] for row in both.of(PARTS)] == [0.2]


def test_a_missing_folder_has_no_records(tmp_path: Path) -> None:
    assert read(tmp_path, PARTS) == Records()
    assert read(tmp_path / "nowhere", PARTS) == Records()
    write(Records(), tmp_path, PARTS)
    assert read(tmp_path, PARTS) == Records()


@pytest.mark.parametrize("writes", range(6))
def test_records_can_be_read_after_writing_stops_anywhere(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is the old one or the new one."""
    cells = [{"classes_per_task": classes} for classes in (1, 2)]  # a file for each
    old = from_results([result(config(**cell), 0.2, device="old") for cell in cells], PARTS)
    new = from_results(
        [result(config(**cell, options={"learning_rate": 0.01}), 0.3, device="new") for cell in cells], PARTS
    )
    write(old, tmp_path, PARTS)
    budget = iter(range(writes))

    @contextmanager
    def until_killed(path: Path) -> Iterator[Path]:
        if next(budget, None) is None:
            raise KeyboardInterrupt
        with atomic_write(path) as temporary:
            yield temporary

    monkeypatch.setattr(record_files, "atomic_write", until_killed)
    with pytest.raises(KeyboardInterrupt):
        write(new, tmp_path, PARTS)
    found = read(tmp_path, PARTS)
    files_written = min(max(writes - 2, 0), 2)  # the JSON files are written first
    assert [row.metrics["accuracy"] for row in found] == [0.3] * files_written + [0.2] * (2 - files_written)
    monkeypatch.undo()
    write(found.merged(new), tmp_path, PARTS)
    assert read(tmp_path, PARTS) == new
    assert (tmp_path / "settings.json").read_text().count("learning_rate") == 2  # and nothing else is there


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table1.csv", "protocol,dataset\npaper,cifar10\n"),
        ("table1.csv", ""),
        ("settings.json", "{}"),
        ("settings.json", "{"),
        ("environments.json", "{}"),
    ],
)
def test_damaged_records_are_refused(name: str, text: str, tmp_path: Path) -> None:
    write(from_results([result(config(), 0.2)], PARTS), tmp_path, PARTS)
    path = tmp_path / name
    path.write_text(text or path.read_text().replace(",er,", ",err,"))
    with pytest.raises(UsageError, match="restore"):
        read(tmp_path, PARTS)


def test_the_oldest_results_can_be_read() -> None:
    """They were written before results had an environment, or a protocol."""
    found = [Result.read(path) for path in sorted(Path(__file__).parent.parent.glob("results/first-runs/*.json"))]
    assert len(found) == 6
    assert from_results(found, PARTS) == Records()  # a run of no protocol is in no table of the paper
    made = from_results([replace(one, config={**one.config, "protocol": "separate"}) for one in found], PARTS)
    assert len(made.rows) == 6
    assert list(made.environments.values()) == [({"type": "cuda", "data": "a38905a0"}, 6)]
    assert replace(found[0], environment={}) == found[0]


@pytest.mark.parametrize(("name", "content"), [("table1.csv", ""), ("settings.json", "[]"), ("table1.csv", "\xff")])
def test_a_damaged_file_is_named(name: str, content: str, tmp_path: Path) -> None:
    write(from_results(results(PARTS[:1]), PARTS), tmp_path, PARTS)
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(UsageError, match=f"{name} is damaged .*; restore it"):
        read(tmp_path, PARTS)
