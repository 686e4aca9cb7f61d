"""`onebyone recommend`: the best that fits, what its number is, and commands that work."""

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from onebyone import OnlineClassifier, Spec, UsageError, create, load
from onebyone.experiments.recommend import SPECS, Advice, Known, Question, commands, gather, packaged, recommend, to_csv

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parent.parent
CIFAR = SPECS["cifar10"]
ROWS = [
    Known("cifar10", 1, "patch-lda", 600_000, 3e7, 68.4, 0.0, 1, True),
    Known("cifar10", 1, "ccp", 600_000, 6e8, 36.7, 2.7, 5, False),
    Known("cifar10", 1, "ccp", 100_000, 6e8, 26.0, 1.7, 5, False),
    Known("cifar10", 1, "ccp", 9_000_000, 6e8, 80.0, 1.0, 5, False),
    Known("cifar10", 2, "supbyol", 100_000, 7e8, 24.7, 1.0, 5, False),
    Known("cifar100", 1, "ccp", 100_000, 6e8, 11.0, 1.0, 5, False),
]


def ask(size: int, **more: object) -> Advice:
    given = {"dataset": "cifar10", "spec": CIFAR} | more
    return recommend(Question(size, **given), ROWS)  # type: ignore[arg-type]


def test_the_most_accurate_that_fits() -> None:
    assert ask(1_000_000).method == "patch-lda"
    assert ask(599_999).method == "ccp"
    assert ask(10_000_000).sentence == (
        "Use ccp: on cifar10, one class at a time, it reached 80.0 ± 1.0 % (test set, 5 seeds) with 9 MB, and the next "
        "best that fits, patch-lda, 68.4 % (held-out tenth of the training set, one seed)."
    )


def test_with_more_classes_a_task_what_was_measured_so_and_what_does_not_depend_on_it() -> None:
    assert ask(200_000, classes_per_task=2).method == "supbyol"
    assert ask(1_000_000, classes_per_task=2).sentence.startswith("Use patch-lda: on cifar10, one class at a time, it")


def test_compute_is_a_limit() -> None:
    """ER on CIFAR-10 takes 653 million operations a sample."""
    assert ask(10_000_000, compute=0.5).method == "patch-lda"
    assert ask(10_000_000, compute=0.5).bytes == 600_000  # more bytes are more operations
    assert ask(10_000_000, compute=0.95).method == "ccp"
    assert ask(100_000, compute=0.5).sentence == (
        "Use patch-lda, by rule of thumb: with so little, nothing was measured on cifar10."
    )
    with pytest.raises(UsageError, match=r"nothing is known that takes at most 0.001 times the operations of ER"):
        ask(100_000, compute=0.001)


def test_compute_is_compared_where_it_was_measured() -> None:
    """ER on larger images computes more; what the others compute on those was not measured."""
    dear = [*ROWS, Known("cifar10", 1, "mir", 3_000_000, 7e8, 90.0, 1.0, 5, False)]  # more than ER there
    spec = Spec((3, 64, 64), 10)
    assert recommend(Question(4_000_000, spec), dear).method == "mir"
    assert recommend(Question(4_000_000, spec, compute=1.0), dear).method == "patch-lda"
    # But the rule chooses for the samples at hand.
    alone = [row for row in dear if row.method == "mir"]
    assert recommend(Question(4_000_000, spec, compute=0.5), alone).sentence.startswith("Use patch-lda, by rule")


def test_without_numbers_the_rule_decides_and_it_is_said() -> None:
    assert "rule of thumb" in ask(20_000).sentence
    assert ask(20_000).method == "patch-lda"
    assert ask(500, spec=Spec((1, 8, 8), 10), dataset=None).method == "replay"
    with pytest.raises(UsageError, match=r"--bytes is 3 KB, and one sample has 3.07 KB"):
        ask(3_000)


@pytest.mark.parametrize(
    ("shape", "classes", "size", "sentence"),
    [
        (
            (200,),
            10,
            1_000,
            r"--bytes is 1 KB, too little: memory is '1000B', and a memory for one sample takes 17\d\d",
        ),
        ((64,), 40, 5_000, "Use replay, by rule of thumb"),  # statistics have no room for so many classes
        ((1, 8, 8), 17, 1_000, "Use replay, by rule of thumb"),
        ((1, 8, 8), 17, 9_000, "Use patch-lda, by rule of thumb"),
    ],
)
def test_what_the_rule_says_can_be_done(shape: tuple[int, ...], classes: int, size: int, sentence: str) -> None:
    spec = Spec(shape, classes, torch.uint8 if len(shape) == 3 else torch.float32)
    question = Question(size, spec)
    if sentence.startswith("--bytes"):
        with pytest.raises(UsageError, match=sentence):
            recommend(question, [])
        return
    advice = recommend(question, [])
    assert advice.sentence.startswith(sentence)
    (line,) = commands(advice, question)
    classifier = eval(line, {"OnlineClassifier": OnlineClassifier})
    classifier.partial_fit(torch.zeros(1, *shape, dtype=spec.dtype), [0], classes=range(classes))


def test_the_rule_needs_no_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onebyone.estimator", None)  # importing it fails
    assert ask(20_000).method == "patch-lda"


@pytest.mark.parametrize("compute", [float("nan"), 0.0, -1.0])
def test_compute_is_above_nothing(compute: float) -> None:
    with pytest.raises(UsageError, match=r"--compute is \S+; it must be above 0"):
        ask(1_000_000, compute=compute)


def test_the_nearest_data_with_numbers() -> None:
    def asked(*shape: int, classes: int = 10) -> str:
        spec = type(CIFAR)(shape, classes)
        return recommend(Question(200_000, spec), ROWS).sentence

    assert asked(3, 48, 40).startswith("Use ccp: on cifar10, the nearest data with numbers, one class at a time, it")
    assert "on cifar100, the nearest" in asked(1, 28, 28, classes=60)
    for far in (asked(3, 224, 224), asked(3, 32, 65), asked(20)):
        assert far == "Use patch-lda, by rule of thumb: nothing was measured on data like these."


def test_what_is_recommended_can_be_done(onebyone: Call) -> None:
    code, out, err = onebyone("recommend", "--dataset", "digits", "--bytes", "13KB")
    assert (code, err) == (0, "")
    sentence, command, python = out.splitlines()
    assert sentence.startswith("Use patch-lda, by rule of thumb")
    code, said, err = onebyone(*shlex.split(command)[1:])
    assert (code, err) == (0, "")
    assert float(re.findall(r"^accuracy +([\d.]+)", said)[0]) > 90
    assert eval(python.strip(), {"OnlineClassifier": OnlineClassifier}).memory == "13000B"


def test_settings_that_were_tuned_are_part_of_the_command() -> None:
    question = Question(1_000_000, CIFAR, "cifar10")
    run, python = commands(Advice("ccp", 1_000_000, ""), question)
    assert run.startswith("onebyone run --method ccp --dataset cifar10 --memory-per-class 32 --set learning_rate=0.01")
    assert python.startswith('OnlineClassifier("ccp", memory="1000000B", options={\'learning_rate\': 0.01,')
    assert python.endswith('augment="crop+flip")')  # which the command line knows of cifar10
    assert "augment" not in commands(Advice("ccp", 1_000_000, ""), replace(question, dataset=None))[0]
    assert len(commands(Advice("replay", 4_000, ""), question)) == 1  # no whole sample a class


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "say what the data are: --dataset cifar10, or --shape 3x32x32 --classes 10"),
        ("--dataset foo", "nothing is known of 'foo'; use cifar10, cifar100 or digits, or give --shape"),
        ("--dataset cifar10 --classes 3", "cifar10 has a shape and classes of its own"),
        ("--shape 3x3", "--shape is '3x3'; write channels, height and width as 3x32x32"),
        ("--shape 3x0x3", "--shape is '3x0x3'"),
        ("--shape 20 --bytes much", "--bytes is 'much'; give a size as '3MB' or '500KB'"),
    ],
)
def test_wrong_words(words: str, sentence: str, onebyone: Call) -> None:
    code, out, err = onebyone("recommend", *words.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"onebyone: {sentence}")


def test_a_number_on_the_test_set_takes_the_place_of_one_on_held_out_data(tmp_path: Path) -> None:
    (tmp_path / "statistics").mkdir()
    (tmp_path / "statistics" / "held-out.csv").write_text(
        "dataset,classes_per_task,options,bytes,mflop,accuracy\n"
        "cifar10,1,,146032,21.2,64.1\ncifar10,1,,606492,27.9,68.0\ncifar10,1,patch=6,146032,21.2,99\n"
    )
    (tmp_path / "statistics" / "test.csv").write_text(  # one with bytes of which runs are on record
        "dataset,classes_per_task,options,bytes,mflop,accuracy\ncifar10,1,,146032,21.2,62\ncifar10,1,,1527524,30,70\n"
    )
    (tmp_path / "table1.csv").write_text(
        "protocol,dataset,method,classes_per_task,memory_bytes,flops,accuracy\n"
        "paper,cifar10,er,1,157088,6e8,0.2\npaper,cifar10,er,1,157088,6e8,0.3\n"
        "joint,cifar10,er,1,157088,6e8,0.9\nboth,cifar10,iid,1,0,6e8,0.6\n"
    )
    (tmp_path / "beyond.csv").write_text(
        "protocol,dataset,method,classes_per_task,memory_bytes,flops,accuracy\n"
        "both,cifar10,patch-lda,1,146032,2.12e7,0.60\nboth,cifar10,patch-lda,1,146032,2.12e7,0.62\n"
        "joint,cifar10,replay,1,157090,6e8,0.4\n"
    )
    joint, er, first, second, third, replay = gather(tmp_path)
    assert joint == Known("cifar10", 1, "er", 157_088, 6e8, 90.0, 0.0, 1, False, "joint")
    assert er == Known("cifar10", 1, "er", 157_088, 6e8, 25.0, 5.0, 2, False, "separate")
    assert first == Known("cifar10", 1, "patch-lda", 146_032, 2.12e7, 61.0, 1.0, 2, False)
    assert second == Known("cifar10", 1, "patch-lda", 606_492, 2.79e7, 68.0, 0.0, 1, True)
    assert third == Known("cifar10", 1, "patch-lda", 1_527_524, 3e7, 70.0, 0.0, 1, False)
    assert (replay.method, replay.accuracy, replay.what) == ("replay", 40.0, "replay")


def test_how_samples_pass_the_network_is_part_of_the_advice() -> None:
    """Joint passes are an option of ER, and what replay does by itself."""
    rows = [
        Known("cifar10", 1, "er", 600_000, 6e8, 47.0, 1.0, 5, False, "joint"),
        Known("cifar10", 1, "er", 600_000, 6e8, 30.0, 1.0, 5, False, "separate"),
        Known("cifar10", 1, "replay", 600_000, 6e8, 40.0, 1.0, 5, False, "joint"),
    ]
    question = Question(1_000_000, CIFAR, "cifar10")
    advice = recommend(question, rows)
    assert advice.sentence.startswith("Use er with joint passes: on cifar10, one class at a time, it reached 47.0")
    assert advice.sentence.endswith("and the next best that fits, replay, 40.0 ± 1.0 % (test set, 5 seeds).")
    run, python = commands(advice, question)
    assert run.endswith("--set passes=joint")
    assert "'passes': 'joint'}, " in python
    assert commands(recommend(question, rows[1:2]), question)[0].endswith("--set learning_rate=0.01")


def test_the_package_carries_what_is_on_record() -> None:
    again = "onebyone recommend --from results --write src/onebyone/experiments/recommendations.csv"
    assert to_csv(packaged()) == to_csv(gather(ROOT / "results")), f"there are new results; run: {again}"


def test_the_numbers_are_written_though_nothing_is_asked(onebyone: Call) -> None:
    code, out, err = onebyone("recommend", "--from", ROOT / "results", "--write", "numbers.csv")
    assert (code, out, err) == (0, f"{len(packaged())} numbers; see: numbers.csv\n", "")
    assert Path("numbers.csv").read_text() == to_csv(packaged())
    code, out, err = onebyone("recommend", "--from", ROOT / "results", "--write", "more.csv", "--dataset", "cifar10")
    assert (code, err) == (0, "")
    assert out.startswith("Use ")
    assert onebyone("recommend", "--write", "more.csv", "--classes", 3)[0] == 2


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no records in"):
        gather(tmp_path)


def test_no_class_a_task_is_refused(onebyone: Callable[..., tuple[int, str, str]]) -> None:
    code, _, said = onebyone("recommend", "--dataset", "cifar10", "--classes-per-task", "0")
    assert code == 2
    assert "--classes-per-task" in said


def test_statistics_are_quoted_of_the_stream_that_was_asked_for() -> None:
    """Any stream's number serves where there is no other; of two, it is the right one, even if it is lower."""
    one, five = (Known("cifar10", s, "patch-lda", 600_000, 2e7, a, 0.2, 5, False) for s, a in ((1, 44.1), (5, 44.2)))
    question = Question(1_000_000, CIFAR, "cifar10")
    assert "one class at a time, it reached 44.1" in recommend(question, [five, one]).sentence
    assert "5 classes at a time, it reached 44.2" in recommend(question, [five]).sentence


@pytest.mark.parametrize("damage", [lambda text: text[:-100], lambda text: text.replace("memory_bytes", "bytes"), None])
def test_a_damaged_record_is_named(damage: Callable[[str], str] | None, tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "results" / "beyond.csv").read_text()
    (tmp_path / "beyond.csv").write_bytes(damage(text).encode() if damage else b"protocol\n\xff\n")
    with pytest.raises(UsageError, match=r"beyond.csv is damaged .*; restore it"):
        gather(tmp_path)


def test_the_command_keeps_to_the_bytes() -> None:
    spec = load("digits").spec
    question = Question(1200, spec, "digits")
    assert "--memory-per-class 1" in commands(Advice("replay", 1200, ""), question)[0]
    assert create("replay", spec, memory_per_class=1).memory_bytes <= 1200
    assert len(commands(Advice("replay", 760, ""), question)) == 1  # no whole sample of every class fits


def test_more_classes_a_task_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--classes-per-task is 20; with 10 classes it must lie in 1\.\.10"):
        recommend(Question(10_000, load("digits").spec, "digits", classes_per_task=20), [])
