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
from onebyone.testing.errors import run
from onebyone.testing.situations import BACK, ONE_BY_ONE, SITUATIONS, Method, bounds, combinations, memory_sizes, pairs

Check = Callable[[], None]


def check_learner(learner: str | type[AnyLearner], *, thorough: bool = False) -> None:
    """Check that a registered method fulfils the contract of a learner.

    The checks cover every stream, every pair of values of its options, static shapes, memory, answers, random numbers
    and resuming. A method that passes can be used wherever a method of this package can. The checks take some seconds
    on a CPU. A method may refuse a kind of data that it cannot learn with a ``UsageError`` when it is created.

    Parameters
    ----------
    learner
        The name of the method, or its class.
    thorough
        Whether to try every combination of its options, which can take minutes.

    Raises
    ------
    BrokenContract
        The first thing that is wrong, as a sentence.
    UsageError
        The method is not registered.

    >>> check_learner("finetune")
    """
    for _, check in chain(checks(learner), thorough_checks(learner) if thorough else ()):  # one by one: a plan relies
        check()  # on what the checks before it have found


def checks(learner: str | type[AnyLearner]) -> Iterator[tuple[str, Check]]:
    """The checks of :func:`check_learner`, to be run one by one. The most informative come first.

    Parameters
    ----------
    learner
        The name of the method, or its class.

    Returns
    -------
    Iterator of (str, Callable)
        The title of each check, and a function that raises a :class:`BrokenContract`.

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
        yield rules.digits_are_learnt, f"digits, {classes_per_task} per task", options, classes_per_task
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
            yield rules.situation_is_learnt, title, situation.options, situation
    yield rules.abilities_are_said, "abilities", {}
    for options in pairs(kind):
        yield rules.shapes_are_static, "shapes, memory full", options, "full"
        yield rules.situation_is_learnt, ONE_BY_ONE, options, SITUATIONS[ONE_BY_ONE]


def _thorough_plan(subject: Method) -> Iterator[tuple[Any, ...]]:
    """What takes long: every pair of options in every rule, numbers at their bounds, and every combination."""
    kind = subject.entry.options
    for options, classes_per_task in product(memory_sizes(kind), (1, 2, 3)):
        yield rules.digits_are_learnt, f"digits, {classes_per_task} per task", options, classes_per_task
    for options in pairs(kind):
        for fill in rules.FILLS:
            yield rules.shapes_are_static, f"shapes, memory {fill}", options, fill
            yield rules.no_value_is_read, f"values, memory {fill}", options, fill
        yield rules.the_state_is_all, "continuing, same state_dict", options, "state_dict"
        yield rules.answers_change_nothing, "answering", options
    for title, options in product((ONE_BY_ONE, BACK), bounds(kind)):
        yield rules.situation_is_learnt, title, options, SITUATIONS[title]
    for options in combinations(kind):
        if options.get("precision") == "bf16":  # the pairs have it, and twice as many combinations take twice as long
            continue
        yield rules.situation_is_learnt, BACK, options, SITUATIONS[BACK]


def _name(learner: type[AnyLearner]) -> str:
    for name, entry in methods().items():
        if entry.learner is learner:
            return name
    raise UsageError(f"{learner.__name__} is not registered; put @register(NAME, OPTIONS) above it")
