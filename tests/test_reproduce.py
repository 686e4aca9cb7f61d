"""The whole way on digits: runs, records, tables, page."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from made_up import result, results
from onebyone import UsageError
from onebyone.cli import reproduce as commands
from onebyone.methods import registry
from onebyone.paper import printed
from onebyone.paper import reproduce as module
from onebyone.paper.printed import BEYOND, PARTS, Part, methods_of
from onebyone.paper.records import from_results, read, write
from onebyone.paper.report import markdown, publish
from onebyone.paper.reproduce import collect, configs, parts_of, protocols_of, reproduce
from onebyone.paper.study import Study
from onebyone.runs import RunConfig
from onebyone.runs.grid import plan
from onebyone.runs.record_files import protocol
from onebyone.runs.run import run
from onebyone.runs.table import render
from onebyone.runs.winners import Winner, winner, write_winners

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
        protocols_of("paper", parts_of("beyond"))
    with pytest.raises(UsageError, match="seeds is 0; it must be at least 1"):
        configs(PARTS, ["paper"], 0)


def test_the_runs_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "methods_of", methods_of)
    asked = []

    def winner(*arguments: object) -> dict[str, object]:
        asked.append(arguments)
        return {"learning_rate": 0.02}

    monkeypatch.setattr(module, "winner", winner)
    runs = plan(configs(parts_of("all"), ("paper", "joint"), 5), "cpu").values()
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
    configs(parts_of("table1", small=True), ("paper",), 1)
    assert {arguments[1] for arguments in asked} == {"cifar10"}  # a quick run uses what was tuned for the real one


def test_runs_beyond_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared in the joint protocol only; ER-AML and ER-ACE with one class per task too."""
    monkeypatch.setattr(module, "winner", lambda *_: {})
    runs = plan(configs(parts_of("beyond"), ("paper", "joint"), 5), "cpu").values()
    own = Counter((c.dataset, c.method, c.options.get("passes")) for c in runs if c.method in BEYOND)
    some = configs(parts_of("beyond"), ("paper", "joint"), 1, ["patch-lda"])
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


def test_a_table_beyond_the_paper(tmp_path: Path, onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on digits, and what the terminal, the page and the text say of them."""
    wide = (Part("beyond", "Equal bytes: digits", "digits", (5,), (20, 40), beyond=True),)
    monkeypatch.setattr(module, "winner", lambda name, *_: {} if name == "patch-lda" else {"encoder": "mlp"})
    monkeypatch.setattr(printed, "MORE_CLASSES", {"finetune": "fine-tuning", "er": "ER"})
    monkeypatch.setattr(printed, "BEYOND", {"patch-lda": "patch-lda"})
    monkeypatch.setitem(printed.BYTES, "digits", 640)
    made, _, failed = reproduce(wide, tmp_path, seeds=2, device="cpu", jobs=1, everything=wide)
    assert not failed
    study = Study(made, wide, ("paper", "joint"), command="again")
    assert not study.tables
    (table,) = (table for table in study.beyond if table.metric == "accuracy")
    assert table.protocol == "joint"
    assert list(table.rows) == ["patch-lda", "fine-tuning", "ER"]
    for cell in (cell for row in table.rows.values() for cell in row):
        assert cell.ours is not None
        assert (cell.ours.runs, cell.paper, cell.verdict) == (2, None, "not printed")
    text = render(table.table())
    assert "Equal bytes: digits, 5 classes per task, accuracy" in text
    assert "M = 20, 13 KB" in text
    assert "patch-lda" in markdown(study)
    publish(study, tmp_path / "report.html")
    assert "at equal bytes" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "report" / "beyond-s5-accuracy-joint.tex").exists()
    (panel,) = study.drawings["flops"]["digits"]["joint"]["M = 20"]
    cost = {line.method: line.x[0] for line in panel.lines}
    assert cost["er"] == 1
    assert cost["patch-lda"] < 1
    (panel,) = study.drawings["bytes"]["digits"]["joint"][""]
    assert [line.kind for line in panel.lines] == ["level", "points", "points"]


def test_only_what_is_missing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, failed = reproduce(SMALL[:1], tmp_path, seeds=1, device="cpu", jobs=1, everything=SMALL)
    assert not failed
    assert [(row.config["method"], protocol(row.config)) for row in made] == [
        ("finetune", "both"),
        ("er", "joint"),
        ("er", "paper"),
    ]
    assert read(tmp_path, SMALL) == made
    config = configs(SMALL[:1], ["joint"], 1)[1]
    assert made.value("joint", "digits", "er", 5, 2, "accuracy") is not None
    again = run(replace(config, device="cpu"))
    assert made.runs("joint", "digits", "er", 5, 2)[0].metrics["accuracy"] == round(again.accuracy, 5)
    assert collect([tmp_path / "runs"], SMALL) == made  # the folders say the same as the records

    done: list[str] = []
    sweep = module.sweep

    def spy(configs: list[object], *args: object, **more: object) -> object:
        done.extend(str(c.seed) + c.method for c in configs)  # type: ignore[attr-defined]
        return sweep(configs, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "sweep", spy)
    other = tmp_path / "other machine"
    write(made, other, SMALL)  # the records alone, without the folders
    again = partial(reproduce, SMALL[:1], other, protocols=["paper"], device="cpu", jobs=1, everything=SMALL)
    grown, replaced, _ = again(seeds=2)
    assert not replaced
    assert done == ["1finetune", "1er"]
    assert len(grown.rows) == 5
    again(seeds=2)
    assert len(done) == 2
    assert collect([tmp_path / "runs", other], SMALL) == grown

    monkeypatch.setattr(module, "winner", lambda *_: {"encoder": "mlp", "augment": False, "learning_rate": 0.01})
    changed, replaced, _ = again(seeds=1)
    assert replaced == [row for row in grown if protocol(row.config) != "joint"]
    assert read(other, SMALL) == changed


def test_two_at_once_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each puts its runs on record beside those that the other has put there meanwhile."""
    sweep = module.sweep
    begin = partial(reproduce, out=tmp_path, seeds=1, device="cpu", jobs=1, everything=SMALL)

    def meanwhile(*args: object, **more: object) -> object:
        monkeypatch.setattr(module, "sweep", sweep)
        begin(SMALL[1:], protocols=["joint"])
        begin(SMALL[:1], protocols=["joint"])
        return sweep(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "sweep", meanwhile)
    made, replaced, _ = begin(SMALL[:1], protocols=["paper"])
    assert not replaced
    assert read(tmp_path, SMALL) == made
    ran = [(row.config["method"], protocol(row.config), row.config["memory_per_class"]) for row in made]
    assert ran == [("finetune", "both", None), ("er", "joint", 2), ("er", "joint", 3), ("er", "paper", 2)]


def test_a_run_that_fails_is_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "winner", lambda *_: {"encoder": "mlp", "learning_rate": 1e30})
    made, _, failed = reproduce(SMALL[:1], tmp_path, protocols=["paper"], seeds=1, device="cpu", everything=SMALL)
    assert made.rows == ()
    assert len(failed) == 2


def test_records_say_which_runs_below_them_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = partial(reproduce, out=tmp_path, protocols=["paper"], seeds=1, device="cpu", jobs=1, everything=SMALL)
    begin(SMALL)
    monkeypatch.setattr(module, "winner", lambda *_: {"encoder": "mlp", "augment": False, "learning_rate": 0.01})
    newer, _, _ = begin(SMALL[:1])
    assert collect([tmp_path], SMALL) == newer
    assert len({name for cell, name in newer.set_to.items() if "er" in cell}) == 2  # one for each cell
    (tmp_path / "table1.csv").unlink()
    with pytest.raises(UsageError, match=r"digits \(S = 5.*\) with different settings"):
        collect([tmp_path], SMALL)


@pytest.mark.parametrize("small", [False, True])
def test_a_report_of_what_goes_beyond_the_paper_only(small: bool, onebyone: Call, tmp_path: Path) -> None:
    parts = parts_of("beyond", small)
    made = [result(config, 0.6) for config in configs(parts[:1], ["joint"], 2, ["patch-lda"])]
    write(from_results(made, parts), tmp_path / "kept", parts)
    code, out, err = onebyone("report", "kept", "--markdown", "found.md")
    assert (code, out, err) == (0, "16 runs; see: found.md\n", "")
    text = Path("found.md").read_text()
    assert "## Beyond the paper" in text
    assert "## Which of the paper's claims hold" not in text
    assert "## Tables" not in text
    assert ("QUICK" in text) == small
    assert "\n\n\n" not in text
    assert onebyone("report", "kept")[0] == 0


def test_nothing_to_collect(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no run of the paper.*onebyone reproduce"):
        collect([tmp_path])
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        collect([tmp_path / "nowhere"])


def test_the_commands(onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "parts_of", lambda target, small=False: SMALL[:1] if target == "table1" else SMALL)
    monkeypatch.setattr(commands, "EVERYTHING", SMALL)
    monkeypatch.setattr(commands, "reproduce", partial(reproduce, everything=SMALL))
    monkeypatch.setattr(commands, "collect", partial(collect, everything=SMALL))
    words = ["reproduce", "table1", "--protocol", "paper", "--seeds", 2, "--device", "cpu", "--jobs", 1]
    code, out, err = onebyone(*words)
    assert (code, err) == (0, "")
    assert "[4/4] " in out
    assert "Table 1: digits, accuracy in per cent, protocol “paper”" in out
    assert out.endswith("The page: reproduction/report.html\n")
    assert {p.name for p in Path("reproduction").iterdir()} == {
        *(".lock", "table1.csv", "settings.json", "environments.json", "runs", "report", "report.html")
    }
    first = Path("reproduction/report.html").read_text()
    again = ["reproduce", "table1", "--protocol", "paper", "--from", "reproduction"]
    code, out, err = onebyone(*again)
    assert (code, err) == (0, "")
    assert "[" not in out.split("Table 1")[0]  # no run
    assert Path("reproduction/report.html").read_text() == first
    code, _, err = onebyone(*again, "--seeds", 0, "--method", "er", "--jobs", 1)
    assert (code, err) == (
        2,
        "onebyone: --from shows what is on record and runs nothing; leave --seeds, --method, --jobs out\n",
    )
    code, _, err = onebyone("reproduce", "table1", "--method", "er-aml")
    sentence = "unknown method of table1 (paper and joint) 'er-aml'; did you mean 'er'? Known: er, finetune"
    assert (code, err) == (2, f"onebyone: {sentence}\n")
    assert onebyone(*words, "--method", "er")[0] == 0
    assert (
        "onebyone reproduce table1 --protocol paper --seeds 2 --method er<"
        in Path("reproduction/report.html").read_text()
    )

    code, out, err = onebyone("report", "reproduction/runs", "--records", "kept", "--markdown", "docs/found.md")
    assert (code, out, err) == (0, "4 runs; see: docs/found.md\n", "")
    assert read(Path("kept"), SMALL) == read(Path("reproduction"), SMALL)
    assert "## Which of the paper's claims hold" in Path("docs/found.md").read_text()
    code, out, err = onebyone("report", "kept", "--out", "page/index.html")
    assert (code, err) == (0, "")
    assert Path("page/index.html").exists()
    assert Path("page/index/anytime-digits-paper-M2.svg").exists()
    assert onebyone("report", "nowhere")[0] == 2

    monkeypatch.setattr(module, "winner", lambda *_: {"encoder": "mlp", "augment": False, "learning_rate": 0.01})
    said = "onebyone: replaced 4 of the runs on record: finetune on digits (S = 5); er on digits (S = 5, M = 2)\n"
    words[words.index("--seeds") + 1] = 1
    code, _, err = onebyone(*words)
    assert (code, err) == (0, said)
    newer = read(Path("reproduction"), SMALL)
    code, _, err = onebyone("report", "reproduction", "--records", "kept")  # the older runs are below it, too
    assert (code, err) == (0, said)
    assert read(Path("kept"), SMALL) == newer


def test_one_run_with_other_settings_does_not_take_the_place_of_all_seeds_on_record(onebyone: Call) -> None:
    part = Part("beyond-quick", "Equal bytes", "cifar10-quick", (1,), (5,), beyond=True)
    write(from_results(results([part], ["joint"]), [part]), Path("kept"), [part])
    config = RunConfig(method="patch-lda", dataset=part.dataset, memory_per_class=5, options={"shrinkage": 0.5})
    Path("runs/one").mkdir(parents=True)
    Path("runs/one/result.json").write_text(result(config, 0.5).to_json())
    before = Path("kept/beyond-quick.csv").read_bytes()
    code, _, err = onebyone("report", "kept", "runs", "--records", "kept")
    assert (code, Path("kept/beyond-quick.csv").read_bytes()) == (2, before)
    assert "patch-lda on cifar10-quick (S = 1, M = 5) has 2 runs on record, and 1 with other settings" in err


def test_what_tune_found_is_used(onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "winner", winner)
    monkeypatch.setattr(commands, "parts_of", lambda target, small=False: SMALL[:1])
    monkeypatch.setattr(commands, "reproduce", partial(reproduce, everything=SMALL))
    best = Winner("digits", 5, "er", SHORT | {"learning_rate": 0.02}, 0.9)
    (tmp_path / "winners.json").write_text(write_winners([best]))
    words = ["reproduce", "table1", "--protocol", "joint", "--seeds", 1, "--device", "cpu", "--jobs", 1]
    code, _, err = onebyone(*words, "--method", "er", "--winners", "winners.json")
    assert (code, err) == (0, "")
    made = read(Path("reproduction"), SMALL)
    (options,) = (row.config["options"] for row in made)
    assert options.items() >= {**SHORT, "learning_rate": 0.02, "passes": "joint"}.items()
    page = Path("reproduction/report.html").read_text()
    assert "--seeds 1 --method er --winners winners.json<" in page
    (tmp_path / "wrong.json").write_text('[{"dataset": "digits"}]')
    for name in ("wrong.json", "reproduction/table1.csv"):
        code, _, err = onebyone(*words, "--winners", name)
        assert (code, err.split(";")[0]) == (2, f"onebyone: {name} does not hold winners")


def test_the_command_on_the_page_makes_what_is_on_it(onebyone: Call, tmp_path: Path) -> None:
    """Of what goes beyond the paper, the methods that are shown; all of the paper, as it has holes for the rest."""
    parts = (*parts_of("all"), *parts_of("beyond"))
    made = configs(parts_of("table1"), ["paper"], 2)
    made += [c for c in configs(parts_of("beyond"), ["joint"], 1, ["patch-lda"]) if c.dataset == "cifar10"]
    found = from_results([result(config, 0.5) for config in plan(made, "cpu").values()], parts)
    write(found, tmp_path / "kept", parts)
    assert onebyone("report", "kept", "--markdown", "found.md")[0] == 0
    paper, further = Path("found.md").read_text().splitlines()[-2:]
    assert paper == "    onebyone reproduce all --protocol both --seeds 2"
    assert further == "    onebyone reproduce beyond --protocol both --seeds 2 --method patch-lda"
    code, _, err = onebyone("reproduce", "figure1", "--from", "kept")
    assert (code, err) == (2, "onebyone: there is no run of figure1 in kept; make some: onebyone reproduce figure1\n")
    (tmp_path / "kept.html").write_text("mine")
    for name, sentence in {
        "page": "page does not end in .html; call it page.html",
        "kept.html": "the figures of kept.html go into kept, and kept/beyond.csv is there; choose another name",
    }.items():
        code, _, err = onebyone("report", "kept", "--out", name, "--records", "more")
        assert (code, err) == (2, f"onebyone: {sentence}\n")
    assert (tmp_path / "kept.html").read_text() == "mine"
    assert not Path("page").exists()
    assert not Path("more").exists()


def test_a_method_of_ones_own_is_a_row_of_the_tables(
    own_method: str, onebyone: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "parts_of", lambda target, small=False: SMALL[:1])
    monkeypatch.setattr(commands, "EVERYTHING", SMALL)
    monkeypatch.setattr(commands, "reproduce", partial(reproduce, everything=SMALL))
    monkeypatch.setattr(commands, "collect", partial(collect, everything=SMALL))
    words = ["reproduce", "table1", "--protocol", "joint", "--seeds", 1, "--device", "cpu", "--jobs", 1]
    code, out, err = onebyone(*words, "--method", "er", "--method", own_method)
    assert (code, err) == (0, "")
    rows = read(Path("reproduction"), SMALL).rows
    assert [row.config["method"] for row in rows] == ["er", "means"]
    accuracy = f"{100 * rows[1].metrics['accuracy']:.1f}"
    assert any(line.split()[0] == "means" and accuracy in line for line in out.splitlines() if line.strip())
    assert f"--method {own_method}<" in Path("reproduction/report.html").read_text()
    assert onebyone(*words, "--method", own_method)[1].count("[1/") == 0  # it is on record

    registry.METHODS.entries.pop("means")  # as in another process, which shows the record without the file
    code, out, err = onebyone("report", "reproduction", "--markdown", "found.md", "--records", "reproduction")
    assert (code, err) == (0, "")
    assert f"| means | {accuracy}" in Path("found.md").read_text()
    assert "--method FILE.py:means" in Path("found.md").read_text()
    assert read(Path("reproduction"), SMALL).rows == rows  # written again, and nothing is lost
    assert onebyone("reproduce", "table1", "--protocol", "joint", "--from", "reproduction")[0] == 0
