from made_up import results
from onebyone.paper.claims import CLAIMS, Claim, Comparison, check, from_paper, from_records
from onebyone.paper.printed import PARTS, methods_of, quick
from onebyone.paper.records import Records, from_results
from onebyone.runs.results import Value

CCP_FIRST = next(claim for claim in CLAIMS if "CCP is the most accurate" in claim.text)


def one(**fields: float) -> Comparison:
    return Comparison("table1", 1, 20, "accuracy", "ccp", "er", **fields)


def test_a_comparison_holds_beyond_its_margin() -> None:
    ahead, behind = Value(31, 0.4, 5), Value(30, 0.5, 5)
    assert one().holds(ahead, behind)
    assert not one().holds(behind, ahead)
    assert not one().holds(ahead, ahead)  # a tie is no lead
    assert not one(deviations=2).holds(ahead, behind)  # by twice the larger exactly, not by more
    assert one(deviations=1.9).holds(ahead, behind)
    assert one(points=-2).holds(behind, ahead)
    assert not one(points=-1).holds(behind, ahead)
    assert one(errors=-4).holds(behind, ahead)  # four standard errors are 1.28
    assert not one(errors=-3).holds(behind, ahead)
    less = Comparison("table1", 1, 20, "forgetting", "ccp", "er")
    assert less.holds(behind, ahead)
    assert not less.holds(ahead, behind)


def test_one_failed_comparison_decides_and_a_missing_one_does_not() -> None:
    claim = Claim("", "", "", (one(), Comparison("table1", 1, 50, "accuracy", "ccp", "er")))
    numbers = {("ccp", 20): Value(2, 0, 1), ("er", 20): Value(1, 0, 1)}
    assert check(claim, lambda c, method: None).verdict == "not measured"
    assert check(claim, lambda c, method: numbers.get((method, c.memory_per_class))).verdict == "partly measured"
    numbers[("er", 20)] = Value(3, 0, 1)
    found = check(claim, lambda c, method: numbers.get((method, c.memory_per_class)))
    assert (found.verdict, found.failed, found.missing) == ("fails", claim.comparisons[:1], 1)


def test_comparisons_that_hold_by_less_than_two_standard_errors_are_counted() -> None:
    claim = Claim("", "", "", (one(), Comparison("table1", 1, 50, "accuracy", "ccp", "er")))
    for lead, close in ((2.9, 2), (3.1, 0)):  # two standard errors are 2.97
        found = check(claim, lambda c, method, lead=lead: Value(20 + lead * (method == "ccp"), 2.1, 5))
        assert (found.verdict, found.close) == ("holds", close)


def test_claims_compare_only_methods_that_are_run() -> None:
    parts = {part.name: part for part in PARTS}
    for claim in CLAIMS:
        assert claim.comparisons
        for c in claim.comparisons:
            assert c.classes_per_task in parts[c.part].classes_per_task
            assert c.memory_per_class in parts[c.part].memories
            assert {c.left, c.right} <= set(methods_of(c.classes_per_task))
            assert c.left != c.right


def test_which_claims_hold_in_the_printed_numbers() -> None:
    """All claims about the tables hold in print, except one: at M = 5, SupBYOL is ahead of CCP by 0.2."""
    found = {claim: check(claim, from_paper) for claim in CLAIMS}
    assert [claim for claim, finding in found.items() if finding.failed] == [CCP_FIRST]
    (failed,) = found[CCP_FIRST].failed
    assert (failed.right, failed.memory_per_class) == ("supbyol", 5)
    assert {f.verdict for f in found.values()} == {"holds", "fails", "not measured"}
    assert sum(finding.verdict == "holds" for finding in found.values()) == 9


def test_claims_are_checked_against_records() -> None:
    assert check(CCP_FIRST, from_records(Records(), PARTS, "separate")).verdict == "not measured"
    made = from_results(results(PARTS[:2], ("separate",), ccp=1), PARTS)
    assert check(CCP_FIRST, from_records(made, PARTS, "separate")).verdict == "holds"
    assert check(CCP_FIRST, from_records(made, PARTS, "joint")).verdict == "not measured"
    small = from_results(results(quick(PARTS[:1]), ("separate",), ccp=-9), quick(PARTS))
    assert check(CCP_FIRST, from_records(small, quick(PARTS), "separate")).verdict == "fails"
    assert check(CCP_FIRST, from_records(small, PARTS, "separate")).verdict == "not measured"


def test_growth_compares_the_margins() -> None:
    claim = next(claim for claim in CLAIMS if "margins grow" in claim.text)
    values = {"ccp": Value(-10, 0, 1), "supbyol": Value(-12, 0, 1)}
    assert check(claim, lambda c, method: values.get(method, Value(-15, 0, 1))).verdict == "holds"
    assert check(claim, lambda c, method: values.get(method, Value(-11, 0, 1))).verdict == "fails"
