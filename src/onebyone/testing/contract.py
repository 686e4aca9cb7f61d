"""Which rules are checked, with which options and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, cycle, product
from typing import Any

from onebyone.errors import UsageError
from onebyone.methods import method, methods
from onebyone.methods.registry import AnyLearner
from onebyone.testing import rules
from onebyone.testing.situations import BACK, ONE_BY_ONE, SITUATIONS, Method, bounds, combinations, memory_sizes, pairs
from onebyone.testing.words import run

Check = Callable[[], None]


def check_learner(learner: str | type[AnyLearner], *, thorough: bool = False) -> None:
    """Check a registered method, given by its name or class; the first thing that is wrong is raised as a sentence.

    Every stream it may meet, every pair of values of its options, static shapes, memory, answers, random numbers and
    resuming: a method that passes can be used wherever one of this package can. It takes some seconds, on the CPU.
    ``thorough`` tries every combination of its options, which can take minutes.

    A kind of data that the method cannot learn it may refuse with a ``UsageError`` when it is made.

    >>> check_learner("finetune")
    """
    for _, check in chain(checks(learner), thorough_checks(learner) if thorough else ()):  # one by one: a plan relies
        check()  # on what the checks before it have found


def checks(learner: str | type[AnyLearner]) -> Iterator[tuple[str, Check]]:
    """The checks of :func:`check_learner` with their titles, to be run one by one; the most informative come first.

    >>> dict(checks("finetune"))["boundaries"]()
    """
    return _titled(learner, _plan)


def thorough_checks(learner: str | type[AnyLearner]) -> Iterator[tuple[str, Check]]:
    """What ``check_learner(..., thorough=True)`` adds: every combination of options, and each option alone.

    >>> len(list(thorough_checks("finetune")))
    39
    """
    return _titled(learner, _thorough_plan)


def _titled(
    learner: str | type[AnyLearner], plan: Callable[[Method], Iterator[tuple[Any, ...]]]
) -> Iterator[tuple[str, Check]]:
    name = learner if isinstance(learner, str) else _name(learner)
    method(name)  # an unknown one is refused as anywhere
    for rule, title, options, *arguments in plan(Method(name)):
        words = ", ".join([title, *(f"{option}={value}" for option, value in options.items())])
        yield words, partial(run, rule, words, Method(name, options), *arguments)


def _plan(subject: Method) -> Iterator[tuple[Any, ...]]:
    """Rules with their titles, options and further arguments."""
    yield rules.options_are_a_dataclass, "options", {}
    kind = subject.entry.options  # from here on they can be relied on
    yield rules.boundaries_are_asked_for, "boundaries", {}
    yield rules.nothing_seen_is_no_answer, "nothing seen", {}
    for options, classes_per_task in zip(cycle(memory_sizes(kind)), (1, 2, 3), strict=False):
        yield rules.digits_are_met, f"digits, {classes_per_task} per task", options, classes_per_task
    yield rules.random_numbers_are_its_own, "random numbers", {}
    yield rules.something_is_learnt, "learning", {}
    for fill in rules.FILLS:
        yield rules.shapes_are_static, f"shapes, memory {fill}", {}, fill
        yield rules.no_value_is_read, f"values, memory {fill}", {}, fill
    for how in ("state_dict", "copy", "seed"):
        yield rules.the_state_is_all, f"continuing, same {how}", {}, how
    yield rules.answers_change_nothing, "answering", {}
    for title, situation in SITUATIONS.items():
        if subject.has(situation.options):
            yield rules.situation_is_met, title, situation.options, situation
    for options in pairs(kind):
        yield rules.shapes_are_static, "shapes, memory full", options, "full"
        yield rules.situation_is_met, ONE_BY_ONE, options, SITUATIONS[ONE_BY_ONE]


def _thorough_plan(subject: Method) -> Iterator[tuple[Any, ...]]:
    """What takes long: every pair of options in every rule, numbers at their bounds, and every combination."""
    kind = subject.entry.options
    for options, classes_per_task in product(memory_sizes(kind), (1, 2, 3)):
        yield rules.digits_are_met, f"digits, {classes_per_task} per task", options, classes_per_task
    for options in pairs(kind):
        for fill in rules.FILLS:
            yield rules.shapes_are_static, f"shapes, memory {fill}", options, fill
            yield rules.no_value_is_read, f"values, memory {fill}", options, fill
        yield rules.the_state_is_all, "continuing, same state_dict", options, "state_dict"
        yield rules.answers_change_nothing, "answering", options
    for title, options in product((ONE_BY_ONE, BACK), bounds(kind)):
        yield rules.situation_is_met, title, options, SITUATIONS[title]
    for options in combinations(kind):
        if options.get("precision") == "bf16":  # the pairs have it, and twice as many combinations take twice as long
            continue
        yield rules.situation_is_met, BACK, options, SITUATIONS[BACK]


def _name(learner: type[AnyLearner]) -> str:
    for name, entry in methods().items():
        if entry.learner is learner:
            return name
    raise UsageError(f"{learner.__name__} is not registered; put @register(NAME, OPTIONS) above it")
