from made_up import results
from onebyone.paper.claims import CLAIMS, Claim, Comparison, check, from_paper, from_records
from onebyone.paper.printed import PARTS, methods_of, quick
from onebyone.paper.records import Records, from_results
from onebyone.runs.results import Value

CCP_FIRST = next(claim for claim in CLAIMS if "CCP is the most accurate" in claim.text)


def one(**fields: float) -> Comparison:
    return Comparison("table1", 1, 20, "accuracy", "ccp", "er", **fields)


def test_a_comparison() -> None:
    ahead, behind = Value(31, 0.4, 5), Value(30, 0.5, 5)
    assert one().holds(ahead, behind)
    assert not one().holds(behind, ahead)
    assert not one().holds(ahead, ahead)  # a tie is no lead
    assert not one(deviations=2).holds(ahead, behind)  # by twice the larger exactly, not by more
    assert one(deviations=1.9).holds(ahead, behind)
    assert one(points=-2).holds(behind, ahead)
    assert not one(points=-1).holds(behind, ahead)
    less = Comparison("table1", 1, 20, "forgetting", "ccp", "er")
    assert less.holds(behind, ahead)
    assert not less.holds(ahead, behind)


def test_a_failure_decides_and_a_hole_leaves_open() -> None:
    claim = Claim("", "", "", (one(), Comparison("table1", 1, 50, "accuracy", "ccp", "er")))
    numbers = {("ccp", 20): Value(2, 0, 1), ("er", 20): Value(1, 0, 1)}
    assert check(claim, lambda c, method: None).verdict == "not measured"
    assert check(claim, lambda c, method: numbers.get((method, c.memory_per_class))).verdict == "partly measured"
    numbers[("er", 20)] = Value(3, 0, 1)
    found = check(claim, lambda c, method: numbers.get((method, c.memory_per_class)))
    assert (found.verdict, found.failed, found.missing) == ("fails", claim.comparisons[:1], 1)


def test_every_claim_compares_what_the_study_runs() -> None:
    parts = {part.name: part for part in PARTS}
    for claim in CLAIMS:
        assert claim.comparisons
        for c in claim.comparisons:
            assert c.classes_per_task in parts[c.part].classes_per_task
            assert c.memory_per_class in parts[c.part].memories
            assert {c.left, c.right} <= set(methods_of(c.classes_per_task))
            assert c.left != c.right


def test_the_claims_in_the_papers_own_numbers() -> None:
    """All of those on the tables hold in print but one: at M = 5 it is SupBYOL that is first, by 0.2."""
    found = {claim: check(claim, from_paper) for claim in CLAIMS}
    assert [claim for claim, finding in found.items() if finding.failed] == [CCP_FIRST]
    (failed,) = found[CCP_FIRST].failed
    assert (failed.right, failed.memory_per_class) == ("supbyol", 5)
    assert {f.verdict for f in found.values()} == {"holds", "fails", "not measured"}
    assert sum(finding.verdict == "holds" for finding in found.values()) == 9


def test_the_claims_in_records() -> None:
    assert check(CCP_FIRST, from_records(Records(), PARTS, "paper")).verdict == "not measured"
    made = from_results(results(PARTS[:2], ("paper",), ccp=1), PARTS)
    assert check(CCP_FIRST, from_records(made, PARTS, "paper")).verdict == "holds"
    assert check(CCP_FIRST, from_records(made, PARTS, "joint")).verdict == "not measured"
    small = from_results(results(quick(PARTS[:1]), ("paper",), ccp=-9), quick(PARTS))
    assert check(CCP_FIRST, from_records(small, quick(PARTS), "paper")).verdict == "fails"
    assert check(CCP_FIRST, from_records(small, PARTS, "paper")).verdict == "not measured"


def test_growth_is_of_the_margin() -> None:
    claim = next(claim for claim in CLAIMS if "margins grow" in claim.text)
    values = {"ccp": Value(-10, 0, 1), "supbyol": Value(-12, 0, 1)}
    assert check(claim, lambda c, method: values.get(method, Value(-15, 0, 1))).verdict == "holds"
    assert check(claim, lambda c, method: values.get(method, Value(-11, 0, 1))).verdict == "fails"
