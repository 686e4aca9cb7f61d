"""The commands `reproduce` and `report` on digits."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from made_up import result, results
from onebyone.cli import reproduce as commands
from onebyone.methods import registry
from onebyone.paper import reproduce as module
from onebyone.paper.printed import Part
from onebyone.paper.records import from_results, read, write
from onebyone.paper.reproduce import collect, configs, parts_of, reproduce
from onebyone.runs.grid import plan
from onebyone.runs.winners import Winner, winner, write_winners
from test_reproduce import SHORT, SMALL, Call, two_methods

pytestmark = pytest.mark.usefixtures("_in_this_process")

__all__ = ["two_methods"]  # a fixture that every test here uses


def in_one_line(page: str) -> str:
    """A page whose commands are not divided among lines."""
    return re.sub(r" \\\n *", " ", page)


@pytest.mark.slow
def test_the_commands(onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "parts_of", lambda target, small=False: SMALL[:1] if target == "table1" else SMALL)
    monkeypatch.setattr(commands, "EVERYTHING", SMALL)
    monkeypatch.setattr(commands, "reproduce", partial(reproduce, everything=SMALL))
    monkeypatch.setattr(commands, "collect", partial(collect, everything=SMALL))
    words = ["reproduce", "table1", "--protocol", "separate", "--seeds", 2, "--device", "cpu", "--jobs", 1]
    code, out, err = onebyone(*words)
    assert (code, err) == (0, "")
    assert "[4/4] " in out
    assert "Table 1: digits: accuracy, in per cent" in out
    assert out.endswith("The page: reproduction/report.html\n")
    assert {p.name for p in Path("reproduction").iterdir()} == {
        *("table1.csv", "settings.json", "environments.json", "runs", "report", "report.html")
    }
    first = Path("reproduction/report.html").read_text()
    again = ["reproduce", "table1", "--protocol", "separate", "--from", "reproduction"]
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
    sentence = "unknown method of table1 (separate and joint) 'er-aml'; did you mean 'er'? Known: er, finetune"
    assert (code, err) == (2, f"onebyone: {sentence}\n")
    assert onebyone(*words, "--method", "er")[0] == 0
    assert (
        "onebyone reproduce table1 --protocol separate --seeds 2 --method er\n"
        in Path("reproduction/report.html").read_text()
    )

    code, out, err = onebyone("report", "reproduction/runs", "--records", "kept", "--markdown", "docs/found")
    assert (code, out, err) == (0, "4 runs; see: docs/found\n", "")
    assert read(Path("kept"), SMALL) == read(Path("reproduction"), SMALL)
    assert "## Which of its claims hold" in Path("docs/found/claims.md").read_text()
    code, out, err = onebyone("report", "kept", "--out", "page/index.html")
    assert (code, err) == (0, "")
    assert Path("page/index.html").exists()
    assert Path("page/index/anytime-digits-5-M2.svg").exists()
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


def test_one_run_with_other_settings_does_not_replace_all_seeds_on_record(onebyone: Call) -> None:
    part = Part("beyond-quick", "Equal bytes", "cifar10-quick", (1,), (5,), beyond=True)
    write(from_results(results([part], ["joint"]), [part]), Path("kept"), [part])
    config = replace(configs([part], ["joint"], 1, ["patch-lda"])[0], options={"shrinkage": 0.5})
    Path("runs/one").mkdir(parents=True)
    Path("runs/one/result.json").write_text(result(config, 0.5).to_json())
    before = Path("kept/beyond-quick.csv").read_bytes()
    code, _, err = onebyone("report", "kept", "runs", "--records", "kept")
    assert (code, Path("kept/beyond-quick.csv").read_bytes()) == (2, before)
    assert "patch-lda on cifar10-quick (S = 1, M = 5) has 2 runs on record, and 1 with other settings" in err


@pytest.mark.slow
def test_the_winners_of_tune_are_used(onebyone: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "--seeds 1 --method er --winners winners.json\n" in in_one_line(page)
    (tmp_path / "wrong.json").write_text('[{"dataset": "digits"}]')
    for name in ("wrong.json", "reproduction/table1.csv"):
        code, _, err = onebyone(*words, "--winners", name)
        assert (code, err.split(";")[0]) == (2, f"onebyone: {name} does not hold winners")


def test_a_run_of_the_paper_s_methods_that_only_goes_beyond_it_is_reported(onebyone: Call, tmp_path: Path) -> None:
    parts = parts_of("beyond")
    made = [c for c in configs(parts, ["joint"], 1, ["er"]) if c.dataset == "cifar100" and c.memory_per_class == 5]
    write(from_results([result(config, 0.5) for config in made], parts), tmp_path / "kept", parts)
    code, out, err = onebyone("report", "kept", "--markdown", "found")
    assert (code, out, err) == (0, "2 runs; see: found\n", "")


def test_the_command_on_the_page_reproduces_it(onebyone: Call, tmp_path: Path) -> None:
    """Beyond the paper: the methods that are shown. Of the paper: all, as missing ones are empty cells."""
    parts = (*parts_of("all"), *parts_of("beyond"))
    made = configs(parts_of("table1"), ["separate"], 2)
    made += [c for c in configs(parts_of("beyond"), ["joint"], 1, ["patch-lda"]) if c.dataset == "cifar10"]
    found = from_results([result(config, 0.5) for config in plan(made, "cpu").values()], parts)
    write(found, tmp_path / "kept", parts)
    assert onebyone("report", "kept", "--markdown", "found")[0] == 0
    paper, further = Path("found/settings.md").read_text().splitlines()[5:7]
    assert paper == "onebyone reproduce all --protocol both --seeds 2"
    assert further == "onebyone reproduce beyond --protocol both --seeds 2 --method patch-lda"
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


@pytest.mark.slow
def test_a_user_method_is_a_row_of_the_tables(own_method: str, onebyone: Call, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert f"--method {own_method}\n" in in_one_line(Path("reproduction/report.html").read_text())
    assert onebyone(*words, "--method", own_method)[1].count("[1/") == 0  # it is on record

    registry.METHODS.entries.pop("means")  # as in another process, which shows the record without the file
    code, out, err = onebyone("report", "reproduction", "--markdown", "found", "--records", "reproduction")
    assert (code, err) == (0, "")
    assert re.search(rf"\| means \|.* {accuracy}", Path("found/tables.md").read_text())
    assert "--method FILE.py:means" in Path("found/settings.md").read_text()
    assert read(Path("reproduction"), SMALL).rows == rows  # written again, and nothing is lost
    assert onebyone("reproduce", "table1", "--protocol", "joint", "--from", "reproduction")[0] == 0


def test_runs_of_the_protocol_printed_are_reported_beside_the_others(onebyone: Call, tmp_path: Path) -> None:
    parts = parts_of("table1")
    made = [(c, 0.3) for c in configs(parts, ["printed"], 2, ["er", "finetune"])]
    made += [(c, 0.2) for c in configs(parts, ["separate"], 2, ["er", "finetune"])]
    found = from_results([result(config, accuracy) for config, accuracy in made], parts)
    write(found, tmp_path / "kept", parts)
    assert onebyone("report", "kept", "--markdown", "found")[0] == 0
    pages = {path.stem: path.read_text() for path in Path("found").glob("*.md")}
    table = pages["tables"].split("one class per task: accuracy")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith(("| ER |", "| fine"))]
    assert len(rows) == 4 + 1  # fine-tuning has no memory
    assert {row[3].split(" ±")[0] for row in rows} == {"30.0"}
    assert {row[4].split(" ±")[0] for row in rows} == {"20.0"}
    assert "- Protocol `printed`: The methods are run as the paper says." in pages["claims"]
    assert "onebyone reproduce all --protocol all --seeds 2" in pages["settings"]
    code, out, _ = onebyone("reproduce", "table1", "--protocol", "printed", "--from", "kept")
    assert (code, out.count("30.0 ± 0.0")) == (0, 5)
