"""All steps on digits: runs, records, tables, page."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from runpy import run_path

import pytest

from made_up import result
from onebyone import UsageError
from onebyone.executors import LocalExecutor
from onebyone.paper import printed
from onebyone.paper import reproduce as module
from onebyone.paper.comparison import table
from onebyone.paper.printed import BEYOND, PARTS, Part, methods_of
from onebyone.paper.records import CellKey, from_results, read, write
from onebyone.paper.report import Study, pages, publish
from onebyone.paper.reproduce import collect, configs, parts_of, protocols_of, reproduce
from onebyone.runs.grid import plan
from onebyone.runs.run import Interrupted, run

pytestmark = pytest.mark.usefixtures("_in_this_process")

Call = Callable[..., tuple[int, str, str]]
SHORT = {"encoder": "mlp", "augment": False}
SMALL = (
    Part("table1", "Table 1: digits", "digits", (5,), (2,)),
    Part("figure1", "Figure 1: digits", "digits", (5,), (3,)),
)


@pytest.fixture(autouse=True)
def two_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """And options that make a run short."""
    few = {"finetune": "fine-tuning", "er": "ER"}
    monkeypatch.setattr(printed, "methods_of", lambda classes: few)
    monkeypatch.setattr(module, "winner", lambda name, *_: {} if name == "patch-lda" else SHORT)


def test_targets_and_protocols() -> None:
    assert [part.name for part in parts_of("all")] == ["table1", "table2", "figure1", "appendix"]
    assert [part.name for part in parts_of("table1", small=True)] == ["table1-quick"]
    assert protocols_of("joint") == ("joint",)
    with pytest.raises(UsageError, match="unknown target 'tabel1'; did you mean 'table1'"):
        parts_of("tabel1")
    with pytest.raises(UsageError, match="unknown protocol 'papers'"):
        protocols_of("papers")
    with pytest.raises(UsageError, match="compared with joint passes only"):
        protocols_of("separate", parts_of("beyond"))
    with pytest.raises(UsageError, match="seeds is 0; it must be at least 1"):
        configs(PARTS, ["separate"], 0)


def test_the_runs_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "methods_of", methods_of)
    asked = []

    def winner(*arguments: object) -> dict[str, object]:
        asked.append(arguments)
        return {"learning_rate": 0.02}

    monkeypatch.setattr(module, "winner", winner)
    runs = plan(configs(parts_of("all"), ("separate", "joint"), 5), "cpu").values()
    assert Counter((c.dataset, c.classes_per_task) for c in runs) == {
        ("cifar10", 1): 5 * (2 + 2 * 6 * 4),
        ("cifar10", 2): 5 * (2 + 2 * 8 * 4),
        ("cifar100", 1): 5 * (2 + 2 * 6 * 3),
        ("cifar100", 5): 5 * (2 + 2 * 8 * 3),
    }
    assert {c.options["learning_rate"] for c in runs} == {0.02}
    assert not any(c.held_out for c in runs)
    assert {c.options.get("passes") for c in runs if c.method == "ccp"} == {"separate", "joint"}
    assert ("ccp", "cifar100", 5, ()) in asked
    asked.clear()
    configs(parts_of("table1", small=True), ("separate",), 1)
    assert {arguments[1] for arguments in asked} == {"cifar10"}  # a quick run uses what was tuned for the real one


def test_winners_in_bf16_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "winner", lambda *_: {"precision": "bf16"})
    with pytest.raises(UsageError, match=r"has precision bf16; the paper's tables need float32"):
        configs(parts_of("table1"), ("joint",), 1)


def test_runs_beyond_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared in the joint protocol only; ER-AML and ER-ACE with one class per task too."""
    monkeypatch.setattr(module, "winner", lambda *_: {})
    runs = plan(configs(parts_of("beyond"), ("separate", "joint"), 5), "cpu").values()
    own = Counter((c.dataset, c.method, c.options.get("passes")) for c in runs if c.method in BEYOND)
    some = configs(parts_of("beyond"), ("separate", "joint"), 1, ["patch-lda"])
    assert {c.method for c in some} == {"patch-lda"}
    with pytest.raises(UsageError, match="patch-lad"):
        configs(parts_of("beyond"), ("joint",), 1, ["patch-lad"])
    cells = 5 * 2 * 4  # seeds, S, M
    asymmetric = {c.classes_per_task for c in runs if c.method == "er-aml"}
    assert asymmetric == {1, 2, 5}
    assert {c.options.get("passes") for c in runs} == {"joint", None}
    assert own == {
        (dataset, *how): cells
        for dataset in ("cifar10", "cifar100")
        for how in (("replay", "joint"), ("hybrid", "joint"), ("patch-lda", None))
    }


@pytest.mark.slow
def test_a_table_beyond_the_paper(tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on digits, and what the terminal, the page and the text say of them."""
    wide = (Part("beyond", "Equal bytes: digits", "digits", (5,), (20, 40), beyond=True),)
    monkeypatch.setattr(module, "winner", lambda name, *_: {} if name == "patch-lda" else {"encoder": "mlp"})
    monkeypatch.setattr(printed, "MORE_CLASSES", {"finetune": "fine-tuning", "er": "ER"})
    monkeypatch.setattr(printed, "BEYOND", {"patch-lda": "patch-lda"})
    monkeypatch.setitem(printed.BYTES, "digits", 640)
    made, _, failed = reproduce(wide, tmp_path, seeds=2, device="cpu", jobs=1, everything=wide)
    assert not failed
    study = Study(made, wide, ("separate", "joint"), command="again")
    assert not study.compared
    ((name, rows),) = ((name, rows) for name, rows in study.tables("beyond") if name.endswith("accuracy"))
    assert name == "Equal bytes: digits, 5 classes per task: accuracy"
    assert set(rows["protocol"]) == {"joint"}
    assert set(rows["verdict"]) == {"not printed"}
    assert {value.runs for value in rows["ours"]} == {2}
    text = table(rows)
    assert list(text["method"]) == ["patch-lda", "fine-tuning", "ER"]
    assert list(text) == ["method", "FLOPs, ER = 1", "M = 20, 13 KB", "M = 40, 26 KB"]
    assert "patch-lda" in pages(study)["tables"]
    publish(study, tmp_path / "report.html")
    assert "at equal bytes" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "report" / "beyond-s5-accuracy.tex").exists()
    assert (tmp_path / "report" / "memory-digits-5.svg").exists()


@pytest.mark.slow
def test_only_what_is_missing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, failed = reproduce(SMALL[:1], tmp_path, seeds=1, device="cpu", jobs=1, everything=SMALL)
    assert not failed
    assert [(row.config["method"], row.config["protocol"]) for row in made] == [
        ("finetune", "both"),
        ("er", "joint"),
        ("er", "separate"),
    ]
    assert read(tmp_path, SMALL) == made
    config = configs(SMALL[:1], ["joint"], 1)[1]
    assert made.value(CellKey("joint", "digits", "er", 5, 2), "accuracy") is not None
    again = run(replace(config, device="cpu"))
    assert made.runs(CellKey("joint", "digits", "er", 5, 2))[0].metrics["accuracy"] == round(again.accuracy, 5)
    assert collect([tmp_path / "runs"], SMALL) == made  # the folders say the same as the records

    done: list[str] = []
    sweep = module.sweep

    def spy(configs: list[object], *args: object, **more: object) -> object:
        done.extend(str(c.seed) + c.method for c in configs)  # type: ignore[attr-defined]
        return sweep(configs, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "sweep", spy)
    other = tmp_path / "other machine"
    write(made, other, SMALL)  # the records alone, without the folders
    again = partial(reproduce, SMALL[:1], other, protocols=["separate"], device="cpu", jobs=1, everything=SMALL)
    grown, replaced, _ = again(seeds=2)
    assert not replaced
    assert done == ["1finetune", "1er"]
    assert len(grown.rows) == 5
    again(seeds=2)
    assert len(done) == 2
    assert collect([tmp_path / "runs", other], SMALL) == grown

    monkeypatch.setattr(module, "winner", lambda *_: {"encoder": "mlp", "augment": False, "learning_rate": 0.01})
    changed, replaced, _ = again(seeds=1)
    assert replaced == [row for row in grown if row.config["protocol"] != "joint"]
    assert read(other, SMALL) == changed


def test_a_limited_machine_starts_no_run_after_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``benchmarks/tables.py``, in a pack, as on a GPU. What had ended before is on record."""
    program = run_path(str(Path(__file__).parents[1] / "benchmarks" / "tables.py"))
    own = LocalExecutor.map
    monkeypatch.setattr(LocalExecutor, "map", lambda *given, **more: own(*given, **more | {"gpu": True}))
    begin = partial(reproduce, SMALL[:1], tmp_path, protocols=["joint"], seeds=1, device="cpu", everything=SMALL)
    with pytest.raises(Interrupted):
        begin(executor=program["LimitedExecutor"](until=0.0))
    assert not list(tmp_path.rglob("result.json"))
    made, _, failed = begin(executor=program["LimitedExecutor"](until=float("inf")))
    assert (len(made.rows), failed) == (2, {})


@pytest.mark.slow
def test_two_processes_write_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each adds its runs to those that the other has recorded meanwhile."""
    sweep = module.sweep
    begin = partial(reproduce, out=tmp_path, seeds=1, device="cpu", jobs=1, everything=SMALL)

    def meanwhile(*args: object, **more: object) -> object:
        monkeypatch.setattr(module, "sweep", sweep)
        begin(SMALL[1:], protocols=["joint"])
        begin(SMALL[:1], protocols=["joint"])
        return sweep(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "sweep", meanwhile)
    made, replaced, _ = begin(SMALL[:1], protocols=["separate"])
    assert not replaced
    assert read(tmp_path, SMALL) == made
    ran = [(row.config["method"], row.config["protocol"], row.config["memory_per_class"]) for row in made]
    assert ran == [("finetune", "both", None), ("er", "joint", 2), ("er", "joint", 3), ("er", "separate", 2)]


@pytest.mark.slow
def test_a_failed_run_leaves_an_empty_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "winner", lambda *_: {"encoder": "mlp", "learning_rate": 1e30})
    made, _, failed = reproduce(SMALL[:1], tmp_path, protocols=["separate"], seeds=1, device="cpu", everything=SMALL)
    assert made.rows == ()
    assert len(failed) == 2


@pytest.mark.slow
def test_records_determine_which_runs_below_them_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = partial(reproduce, out=tmp_path, protocols=["separate"], seeds=1, device="cpu", jobs=1, everything=SMALL)
    begin(SMALL)
    monkeypatch.setattr(module, "winner", lambda *_: {"encoder": "mlp", "augment": False, "learning_rate": 0.01})
    newer, _, _ = begin(SMALL[:1])
    assert collect([tmp_path], SMALL) == newer
    assert len({name for cell, name in newer.set_to.items() if cell.method == "er"}) == 2  # one for each cell
    (tmp_path / "table1.csv").unlink()
    with pytest.raises(UsageError, match=r"digits \(S = 5.*\) with different settings"):
        collect([tmp_path], SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True])
def test_a_report_of_what_goes_beyond_the_paper_only(small: bool, onebyone: Call, tmp_path: Path) -> None:
    parts = parts_of("beyond", small)
    made = [result(config, 0.6) for config in configs(parts[:1], ["joint"], 2, ["patch-lda"])]
    write(from_results(made, parts), tmp_path / "kept", parts)
    code, out, err = onebyone("report", "kept", "--markdown", "found")
    assert (code, err) == (0, "")
    assert out.startswith("16 runs; see: ")
    pages = {path.stem: path.read_text() for path in Path("found").glob("*.md")}
    assert "## Beyond the paper" in pages["tables"]
    assert not any("## Which of its claims hold" in text for text in pages.values())
    assert ("QUICK" in pages["claims"]) == small
    assert not any("\n\n\n" in text for text in pages.values())
    assert onebyone("report", "kept")[0] == 0


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no run of the paper.*onebyone reproduce"):
        collect([tmp_path])
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        collect([tmp_path / "nowhere"])
