"""The protocols of the paper: what they fix, and that the runs of a table are so."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from onebyone import UsageError
from onebyone.nets import resnet
from onebyone.nets.creation import create
from onebyone.paper import reproduce as module
from onebyone.paper.protocols import NAMES, choice, choices, entries, fixed, protocols
from onebyone.paper.reproduce import configs, parts_of
from onebyone.runs.config import RunConfig
from onebyone.runs.winners import Winner, winner

PAPER = Path(__file__).parents[2] / "shared" / "paper" / "paper.tex"
PROTOTYPES = ("supbyol", "ccp")
# What the paper says, typed from it a second time: the line, the methods that it is about (all if none is named), and
# what a run has to have, in its own fields or in the options of its method.
SAID: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("We use SGD for optimization with a learning rate of 0.1", (), {"learning_rate": 0.1}),
    (
        r"with \textit{batch size} and the \textit{rehearsal batch size} of \textit{10} samples",
        (),
        {"batch_size": 10, "replay_size": 10},
    ),
    ("we use a reduced Resnet-18", (), {"encoder": "auto"}),
    ("a simple random crop followed by random horizontal flip", (), {"augment": True}),
    (r"to minimize $\mathcal{L}_{1}+\mathcal{L}_{2}$", (), {"incoming_weight": 1.0, "replay_weight": 1.0}),
    (
        r"\mathcal{L}_2(\mathbf{X}^{bf}) = -\sum_{x_{i} \in \mathbf{X}_{bf}}\log",
        PROTOTYPES,
        {"replay_reduction": "sum"},
    ),
    ("other samples of class $y$ in the batch, i.e. positive samples", PROTOTYPES, {"positives": "batch"}),
    (
        r"\mathcal{L}_{1}^{ccp} = -\frac{1}{N}\sum_{\mathbf{x}_i \in \mathbf{X}_{in}}\left(",
        ("ccp",),
        {"pull_weight": 1.0, "mates_weight": 1.0, "repel_weight": 1.0},
    ),
    (r"with respect to $\theta$ and $c \in \mathcal{C}^{in}$", ("ccp",), {"prototype_gradient": "incoming"}),
]


@pytest.fixture
def all_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the search were complete."""
    monkeypatch.setattr(module, "choice", lambda *cell: (found := choice(*cell)) and found | {"complete": True})


@pytest.mark.usefixtures("all_chosen")
def test_the_runs_of_printed_are_as_the_paper_says() -> None:
    """Every run of the tables and figures, value by value, as it is recorded."""
    lines = {entry["line"]: entry for entry in protocols()["printed"]["printed"]}
    assert list(lines) == [line for line, _, _ in SAID]
    runs = {
        (c.method, c.dataset, c.classes_per_task, c.memory_per_class): c.resolved("cpu", "")
        for c in configs(parts_of("all"), ["printed"], 1)
    }
    assert len(runs) == 4 * 8 + 4 * 10 + 3 * 8 + 3 * 10  # with iid and finetune once for each M
    for run in runs.values():
        assert (run["protocol"], run["class_order"], run["held_out"]) == ("printed", "label", False)
        found, compared = run["options"] | {name: run[name] for name in run if name != "options"}, 0
        for _, methods, values in SAID:
            if not methods or run["method"] in methods:
                wanted = {name: value for name, value in values.items() if name in found}  # iid has no replay_size
                assert {name: found[name] for name in wanted} == wanted, run
                compared += len(wanted)
        assert compared == {"iid": 4, "finetune": 4, "supbyol": 9, "ccp": 13}.get(run["method"], 7)
        assert found.get("passes", "separate") == "separate"
        assert found["stream"].partition(":")[0] == ("iid" if run["method"] == "iid" else "class-incremental")
    for (method, *_, classes, _), run in runs.items():
        chosen = choice("printed", method, classes)
        assert (chosen is None) == (method in ("iid", "finetune"))
        assert run["options"].items() >= (chosen["options"] if chosen else {}).items()
        assert run["options"] == runs[method, "cifar10", 2, 20]["options"]  # one setting for all cells


def test_the_network_for_images_of_this_size_is_a_resnet18() -> None:
    assert isinstance(create("auto", (3, 32, 32)), resnet.ResNet18)


@pytest.mark.parametrize("line", [entry["line"] for name in NAMES for entry in protocols()[name]["printed"]])
@pytest.mark.skipif(not PAPER.exists(), reason="the source of the paper is not part of the repository")
def test_the_paper_has_this_line(line: str) -> None:
    assert line in PAPER.read_text()


def test_a_method_whose_search_is_not_complete_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = choices()["printed"]
    mir = [known["mir"][0] | {"complete": False}]
    monkeypatch.setattr("onebyone.paper.protocols.choices", lambda: {"printed": known | {"mir": mir}})
    with pytest.raises(UsageError, match="the search for the open options of mir in the protocol printed is not compl"):
        configs(parts_of("table1"), ["printed"], 1, ["mir"])
    (run,) = {run.method for run in configs(parts_of("table1"), ["printed"], 1, ["ccp"])}
    assert run == "ccp"


def test_joint_has_the_settings_of_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its search once there is one, or else those of the tuning; a user's own winners come first."""
    tuned = configs(parts_of("table1"), ["separate", "joint"], 1, ["er"])
    assert {run.options["learning_rate"] for run in tuned} == {winner("er", "cifar10", 1)["learning_rate"]}
    one = {"classes_per_task": [1], "complete": True, "options": {"learning_rate": 0.3, "readout": "ncm"}}
    two = one | {"classes_per_task": [2], "options": {"learning_rate": 0.003, "readout": "head"}}
    monkeypatch.setattr("onebyone.paper.protocols.choices", lambda: {"separate": {"er": [one, two]}})
    runs = configs(parts_of("all"), ["separate", "joint"], 1, ["er"])
    found = {(r.protocol, r.classes_per_task, r.options["learning_rate"], r.options["readout"]) for r in runs}
    several = {(name, classes, 0.003, "head") for name in ("separate", "joint") for classes in (2, 5)}
    assert found == {(name, 1, 0.3, "ncm") for name in ("separate", "joint")} | several
    assert all(run.options["passes"] == run.protocol for run in runs)
    own = configs(parts_of("table1"), ["joint"], 1, ["er"], [Winner("cifar10", 1, "er", {"learning_rate": 0.5}, 0.9)])
    assert {run.options["learning_rate"] for run in own} == {0.5}


def test_a_method_without_replay_is_the_same_run_in_separate_and_joint() -> None:
    found = {name: configs(parts_of("table1"), [name], 1, ["iid"])[0] for name in NAMES}
    assert found["separate"] == found["joint"]
    assert [found[name].protocol for name in NAMES] == ["printed", "both", "both"]
    assert found["printed"].options == fixed("printed", "iid")


def test_what_a_protocol_fixes_are_options_of_some_method_or_fields_of_a_run() -> None:
    """A name that no method has would be passed over."""
    for protocol in NAMES:
        names = {name for method in ("er", *PROTOTYPES) for name in fixed(protocol, method)}
        for entry in entries(protocol):
            assert entry.get("options", {}).keys() <= names, entry
            assert entry.get("run", {}).keys() <= asdict(RunConfig()).keys(), entry
