from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from made_up import results
from onebyone.paper.claims import CLAIMS, Claim, Comparison, check, from_paper, from_records
from onebyone.paper.printed import PARTS, methods_of, quick
from onebyone.paper.records import Records, from_results
from onebyone.runs.results import Value

CCP_FIRST = next(claim for claim in CLAIMS if "CCP is the most accurate" in claim.text)


def one(**fields: float) -> Comparison:
    return Comparison("table1", 1, 20, "accuracy", "ccp", "er", **fields)


def by_hand(c: Comparison, left: Value, right: Value) -> str:
    """The rule, written again: the standard error is that of a difference of two means."""
    sign = -1 if c.metric == "forgetting" else 1
    lead = sign * (left.mean - right.mean)
    error = (left.std**2 / left.runs + right.std**2 / right.runs) ** 0.5
    margin = c.points + c.deviations * max(left.std, right.std)
    if lead > margin + 2 * error:
        return "holds"
    return "fails" if lead < margin - 2 * error else "undecided"


@given(
    st.floats(20, 40),
    st.floats(0.1, 3),
    st.floats(0.1, 3),
    st.sampled_from([{}, {"points": -2.0}, {"deviations": 2.0}]),
    st.sampled_from(["accuracy", "forgetting"]),
)
def test_a_comparison_is_decided_by_two_standard_errors(
    mean: float, std: float, other: float, margin: dict[str, float], metric: str
) -> None:
    comparison = replace(one(**margin), metric=metric)
    left, right = Value(mean, std, 5), Value(30.0, other, 10)
    assert comparison.verdict(left, right) == by_hand(comparison, left, right)


def test_a_comparison_at_its_margin_is_undecided() -> None:
    same, ahead = Value(30, 0, 5), Value(32, 0, 5)
    assert one().verdict(same, same) == "undecided"  # a tie is no lead
    assert [one().verdict(ahead, same), one().verdict(same, ahead)] == ["holds", "fails"]
    assert [one(points=points).verdict(same, ahead) for points in (-3, -2, -1)] == ["holds", "undecided", "fails"]
    close = [c for claim in CLAIMS for c in claim.comparisons if c.points]
    assert {c.points for c in close} == {-2}  # "matches", "close to" and "competitive"


def test_one_failed_comparison_decides_and_a_missing_one_does_not() -> None:
    claim = Claim("", "", "", (one(), Comparison("table1", 1, 50, "accuracy", "ccp", "er")))
    numbers = {("ccp", 20): Value(2, 0, 1), ("er", 20): Value(1, 0, 1)}
    assert check(claim, lambda c, method: None).verdict == "not measured"
    assert check(claim, lambda c, method: numbers.get((method, c.memory_per_class))).verdict == "undecided"
    numbers[("er", 20)] = Value(3, 0, 1)
    found = check(claim, lambda c, method: numbers.get((method, c.memory_per_class)))
    assert (found.verdict, found.failed, found.missing) == ("fails", claim.comparisons[:1], 1)


def test_a_claim_of_several_comparisons() -> None:
    """It fails if one fails, holds if all hold, and is undecided otherwise."""
    comparisons = tuple(Comparison("table1", 1, memory, "accuracy", "ccp", "er") for memory in (5, 20, 50))
    claim = Claim("", "", "", comparisons)
    # The lead at each M, where two standard errors are 2.97; None is not measured.
    for leads, verdict, why in (
        ((3.1, 3.1, 3.1), "holds", "3 of 3 comparisons hold"),
        ((3.1, 2.9, -2.9), "undecided", "1 of 3 comparisons hold, 2 undecided"),
        ((3.1, 2.9, -3.1), "fails", "1 of 3 comparisons hold, 1 fail, 1 undecided (CCP and ER at M = 50)"),
        ((3.1, None, -3.1), "fails", "1 of 3 comparisons hold, 1 fail, 1 not measured (CCP and ER at M = 50)"),
        ((3.1, None, 3.1), "undecided", "2 of 3 comparisons hold, 1 not measured"),
        ((None, None, None), "not measured", "0 of 3 comparisons hold, 3 not measured"),
    ):
        of = dict(zip((5, 20, 50), leads, strict=True))

        def numbers(c: Comparison, method: str, of: dict[int, float | None] = of) -> Value | None:
            lead = of[c.memory_per_class]
            return None if lead is None else Value(20 + lead * (method == "ccp"), 2.35, 5)

        found = check(claim, numbers)
        assert (found.verdict, found.why) == (verdict, why)


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
    """In print, CCP is up to 5.7 points behind ER-AML, which the text calls close. No other claim fails."""
    found = {claim: check(claim, from_paper) for claim in CLAIMS}
    (failed,) = (claim for claim, finding in found.items() if finding.failed)
    assert failed.text == "With two classes per task, CCP is close to ER-AML and ER-ACE in accuracy."
    assert {(c.right, c.memory_per_class) for c in found[failed].failed} == {
        ("er-aml", 20),
        ("er-aml", 50),
        ("er-aml", 100),
    }
    assert Counter(finding.verdict for finding in found.values()) == {
        "holds": 2,
        "undecided": 7,
        "fails": 1,
        "not measured": 7,
    }
    assert found[CCP_FIRST].undecided == 1  # at M = 5, SupBYOL is ahead of CCP by 0.2


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
