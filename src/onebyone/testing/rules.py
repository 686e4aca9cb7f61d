"""The rules: each is a function that raises what is wrong with a method."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import fields
from inspect import signature
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from onebyone import streams
from onebyone.data import load
from onebyone.engine.static import blank_batch, shapes_only
from onebyone.errors import UsageError
from onebyone.methods import Learner, NetworkLearner, Options, ReplayLearner, ReplayOptions
from onebyone.methods.registry import AnyLearner
from onebyone.options import Checked, parse
from onebyone.testing.errors import require
from onebyone.testing.situations import Method, Situation, Tasks, few, tasks_of
from onebyone.testing.steps import answer, learn, observe, require_same, state
from onebyone.testing.watch import NoValueReads, reads_a_value

# Checks without a step.


def options_are_a_dataclass(subject: Method) -> None:
    kind, learner = subject.entry.options, subject.entry.learner
    base: type[Checked] = Checked
    if issubclass(learner, NetworkLearner):
        base = ReplayOptions if issubclass(learner, ReplayLearner) else Options
    require(issubclass(kind, base), f"{kind.__name__} is no {base.__name__}, which {learner.__name__} needs; derive it")
    known = {item.name: item for item in fields(kind)}
    for name in vars(kind).get("__annotations__", {}):
        require(name in known, f"{kind.__name__} is no dataclass; put @dataclass(frozen=True, kw_only=True) above it")
    default = kind()
    for name, item in known.items():
        require(
            bool(item.metadata.get("help")),
            f"its option {name} has no sentence; write {name}: TYPE = option(DEFAULT, 'what it is')",
        )
        value = getattr(default, name)
        require(
            getattr(parse(kind, {name: str(value)}), name) == value,  # as the command line and sweeps make it
            f"its option {name} is {value!r}, which as a text is read differently; "
            "use bool, int, float, str or a Literal of texts",
        )


def boundaries_are_asked_for(subject: Method) -> None:
    learner = subject.entry.learner
    has_end_task = learner.end_task is not Learner.end_task
    require(
        learner.needs_boundaries or not has_end_task,
        "it has an end_task, which is never called; set needs_boundaries = True, or remove it",
    )
    require(
        has_end_task or not learner.needs_boundaries,
        "it sets needs_boundaries and has no end_task; write one, or remove needs_boundaries",
    )


def abilities_are_said(subject: Method) -> None:
    """Callers ask the attributes, so these must agree with the methods."""
    learner = subject.entry.learner
    for attribute, name in (("mergeable", "merge"), ("leaves_out", "left_out"), ("own_typicality", "typicality")):
        said, overridden = getattr(learner, attribute), getattr(learner, name) is not getattr(Learner, name)
        require(said or not overridden, f"it overrides {name}, which is never called; set {attribute} = True")
        require(overridden or not said, f"it sets {attribute} and does not override {name}; write it")
    require(
        not learner.takes_weights or "weight" in signature(learner.observe).parameters,
        "its observe has no argument weight; add it, or set takes_weights = False",
    )


def nothing_seen_is_no_answer(subject: Method) -> None:
    answer(subject.make(), few().test_x)


# Data and streams.


def digits_are_learnt(subject: Method, classes_per_task: int) -> None:
    make = streams.iid if subject.entry.learner.stream == "iid" else streams.class_incremental
    learner = subject.make()
    learn(learner, tasks_of(few(), make(few().train_y, 10, classes_per_task)))
    answer(learner, few().test_x)


def situation_is_learnt(subject: Method, situation: Situation) -> None:
    try:
        learner = subject.make(situation.spec)
    except UsageError:
        return  # it may refuse data that it cannot learn
    tasks = situation.tasks()
    learn(learner, tasks)
    answer(learner, torch.cat([x for task in tasks for x, _ in task]))


def something_is_learnt(subject: Method) -> None:
    """Two digits, shuffled, are classified better than by guessing."""
    digits = load("digits")
    order = torch.cat(list(streams.iid(digits.train_y, 10, 10)))
    order = order[digits.train_y[order] < 2]
    learner = subject.make(digits.spec)
    before = state(learner)
    learn(learner, [[(digits.train_x[index], digits.train_y[index]) for index in order.split(10)]])
    after = learner.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    require(
        not changed <= {"counts", "steps", "_extra_state"}, "observe changes no weight and no buffer; it learns nothing"
    )
    asked = digits.test_y < 2
    answer(learner, digits.test_x[asked])
    right = float((learner.predict(digits.test_x[asked]) == digits.test_y[asked]).float().mean())
    require(
        right > 0.75,
        f"after {len(order)} shuffled samples of two digits it gets {100 * right:.0f} % of others right, and guessing "
        "does 50 %; see that observe calls self.descend(loss) and that readout uses what is trained",
    )


# Static shapes.

FILLS = {"empty": 0, "half-empty": 10, "full": 40}  # samples seen by a memory of 20


def shapes_are_static(subject: Method, fill: str) -> None:
    """On a copy that has shapes but no values."""
    learner = _filled(subject, fill)
    before = state(learner)
    try:
        with shapes_only(learner) as copy:
            loss = copy.observe(*blank_batch(copy, 10))
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise reads_a_value(error.func) from error
    require(loss.shape == (), f"observe gives a loss of the shape {tuple(loss.shape)}; it must be one number")
    require_same(before, state(learner), "a step of a copy changes the learner", "share no tensor between learners")


def no_value_is_read(subject: Method, fill: str) -> None:
    learner = _filled(subject, fill)
    with NoValueReads():  # type: ignore[no-untyped-call]
        learner.observe(few().train_x[::12], few().train_y[::12])


def _filled(subject: Method, fill: str) -> AnyLearner:
    learner = subject.make(memory_per_class=2)
    order = torch.randperm(len(few().train_y), generator=torch.Generator().manual_seed(0))[: FILLS[fill]]
    for index in order.split(20) if FILLS[fill] else ():
        observe(learner, few().train_x[index], few().train_y[index])
    if learner.needs_boundaries:
        learner.end_task()
    return learner


# One random source, and a complete state.


def random_numbers_are_its_own(subject: Method) -> None:
    before = _global_random_states()

    def untouched(when: str, advice: str) -> None:
        for source, now in _global_random_states().items():
            require(now == before[source], f"{when} it draws from {source}, which no seed of a run reaches; {advice}")

    learner = subject.make()
    untouched("while it is made", "draw first weights in build, where torch's own are seeded")
    learn(learner, tasks_of(few(), streams.class_incremental(few().train_y, 10, 5)))
    learner.scores(few().test_x)
    untouched("while it learns or answers", "give each draw generator=self.generator (dropout has none: draw a mask)")


def _global_random_states() -> dict[str, Any]:
    return {
        "torch's global generator": torch.get_rng_state().tolist(),
        "numpy's global generator": str(np.random.get_state(legacy=False)),  # noqa: NPY002  (the old one is what is watched)
        "Python's random": random.getstate(),
    }


def the_state_is_all(subject: Method, how: Literal["state_dict", "copy", "seed"]) -> None:
    """A second learner that is the same as the first continues with the same bits."""
    learner, rest = _halfway(subject)
    _is_savable(learner)
    advice = "keep all that changes in parameters and buffers (register_buffer), nothing in plain attributes"
    match how:
        case "state_dict":
            other = subject.make(seed=1, memory_per_class=1)
            problem = "a learner that loads the state_dict of another differs"
            other.load_state_dict(state(learner))
        case "copy":
            other, problem = deepcopy(learner), "a copy differs"
        case "seed":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(123)  # which must not affect a learner
                other, problem = _halfway(subject)[0], "another learner with the same seed differs"
            advice = "give each draw generator=self.generator, and begin with nothing but the options and the seed"
    require_same(state(learner), state(other), problem, advice)
    before = state(learner)
    losses = learn(learner, rest)
    require_same(before, state(other), "one learner changes while another learns", "share no tensor between learners")
    same_losses = torch.equal(torch.stack(losses), torch.stack(learn(other, rest)))
    require(same_losses, f"{problem} once it continues (its losses); {advice}")
    require_same(state(learner), state(other), f"{problem} once it continues", advice)
    require(
        torch.equal(learner.scores(few().test_x), other.scores(few().test_x)),
        f"{problem} once it continues (its answers); {advice}",
    )


def _is_savable(learner: AnyLearner) -> None:
    owners: dict[int, str] = {}
    for name, tensor in learner.state_dict().items():
        require(isinstance(tensor, Tensor), f"{name} in its state_dict is no tensor; a checkpoint holds tensors only")
        other = owners.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
        require(other == name, f"{other} and {name} are one tensor under two names; a checkpoint cannot hold it")


def answers_change_nothing(subject: Method) -> None:
    learner, rest = _halfway(subject)
    silent, x, advice = deepcopy(learner), few().test_x, "readout and embed may only read"
    before, modes = state(learner), [module.training for module in learner.modules()]
    scores = answer(learner, x)
    require(torch.equal(learner.scores(x), scores), f"asked twice, it answers differently; {advice}")
    require_same(before, state(learner), "answering changes it", advice)
    require(
        [module.training for module in learner.modules()] == modes,
        "answering leaves a module in another mode than it was in (train or eval); put it back",
    )
    largest = float(scores.nan_to_num(neginf=0).abs().max())  # a score near 0 is rounded like the others
    require(
        torch.allclose(learner.scores(x, chunk=7), scores, rtol=1e-4, atol=1e-5 * max(1.0, largest)),
        "its answer to a sample depends on what else it is asked; score each sample by itself",
    )
    learn(learner, rest)
    learn(silent, rest)
    require_same(state(silent), state(learner), "asked something, it learns differently from then on", advice)


def _halfway(subject: Method) -> tuple[AnyLearner, Tasks]:
    """A learner with a full memory in the middle of its second task, and the remaining tasks."""
    tasks = tasks_of(few(), streams.class_incremental(few().train_y, 10, 2, batch_size=7, seed=4))
    learner = subject.make(memory_per_class=1)
    learn(learner, tasks[:1])
    observe(learner, *tasks[1][0])
    return learner, [tasks[1][1:], tasks[2]]
