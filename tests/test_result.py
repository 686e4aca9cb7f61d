import json
from dataclasses import FrozenInstanceError, asdict, fields, replace
from pathlib import Path

import pytest

from onebyone import UsageError
from onebyone.engine import Cost
from onebyone.evaluation import Result, metrics

FULL = Result(
    accuracy=0.1 + 0.2,  # not 0.3: every bit has to come back
    forgetting=-1 / 3,
    anytime=(1.0, 0.5),
    average_anytime=0.75,
    learning_accuracy=2 / 3,
    backward_transfer=1e-17,
    worst_case=0.0,
    accuracy_matrix=((1.0, 0.0), (0.25, 0.75)),
    class_accuracy=(0.25, 0.5, 1.0),
    prequential=0.125,
    tasks=((2, 0), (1,)),
    disjoint=True,
    samples=1438,
    updates=144,
    cost=Cost(forward_passes=3.0, backward_passes=2.0, flops=1.5e9, network_bytes=4_500_000, memory_bytes=0),
    config={"method": "er", "memory_per_class": None, "held_out": False, "options": {"learning_rate": 0.1}},
    seconds={"training": 1.25, "evaluation": 0.1},
)
SPARSE = replace(
    FULL,
    forgetting=None,
    learning_accuracy=None,
    backward_transfer=None,
    prequential=None,
    class_accuracy=(None, 1.0, None),
    tasks=((0, 1, 2),),
    accuracy_matrix=((0.5, None), (0.5, 0.25)),
    disjoint=False,
)


@pytest.mark.parametrize("result", [FULL, SPARSE], ids=["full", "sparse"])
def test_a_result_is_read_from_json_as_it_was(result: Result) -> None:
    again = Result.from_json(result.to_json())
    assert again == result
    assert asdict(again) == asdict(result)
    assert again.to_json() == result.to_json()


def test_json_has_every_field() -> None:
    written = json.loads(FULL.to_json())
    assert written.keys() == {field.name for field in fields(Result)}
    assert written["accuracy_matrix"] == [[1.0, 0.0], [0.25, 0.75]]
    assert json.loads(SPARSE.to_json())["forgetting"] is None


def test_results_of_earlier_versions_are_read() -> None:
    paths = sorted((Path(__file__).parent.parent / "results" / "first-runs").glob("*.json"))
    assert len(paths) == 6
    for path in paths:
        result = Result.read(path)
        for name, value in vars(metrics(result.accuracy_matrix, result.disjoint)).items():
            assert value == pytest.approx(getattr(result, name), abs=1e-12)
        assert json.loads(path.read_text()) | {"environment": {}} == json.loads(result.to_json())  # it came later


def test_a_result_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        FULL.accuracy = 1.0  # type: ignore[misc]


def test_a_truncated_result_is_refused() -> None:
    text = FULL.to_json().strip()
    for length in range(len(text)):
        with pytest.raises(UsageError, match="delete it and run again"):
            Result.from_json(text[:length])


def changed(**changes: object) -> str:
    return json.dumps({key: value for key, value in {**asdict(FULL), **changes}.items() if value != "gone"})


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "3",
        "[]",
        "{}",
        b"\xff\xfe\x00",
        changed(accuracy_matrix="gone"),
        changed(cost="gone"),
        changed(config="gone"),
        changed(cost={"forward_passes": 1.0}),
        changed(cost=None),
        changed(one_more=1),
    ],
)
def test_what_is_not_a_result_is_refused(text: str | bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a result of onebyone"):
        Result.from_json(text)
    path = tmp_path / "result.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=f"^{path}: "):
        Result.read(path)
