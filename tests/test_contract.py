"""A learner that breaks the contract is refused with a message that names the rule."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onebyone import UsageError
from onebyone.methods import Encoded, LeftOut, Options, ReplayOptions, registry
from onebyone.methods.er import ER
from onebyone.methods.finetune import FineTune
from onebyone.options import option
from onebyone.testing import BrokenContract, check_learner, rules
from onebyone.testing.situations import Method

L = TypeVar("L", bound=type[Any])
BROKEN: dict[type[Any], tuple[type[Any], str]] = {}


def broken(sentence: str, options: type[Any] | None = None) -> Callable[[L], L]:
    """Add a learner with the beginning of the expected message."""

    def add(learner: L) -> L:
        BROKEN[learner] = options or (ReplayOptions if issubclass(learner, ER) else Options), sentence
        return learner

    return add


@pytest.fixture(autouse=True)
def _registered() -> None:
    for learner, (options, _) in BROKEN.items():
        registry.register(learner.__name__, options)(learner)


LOOKS = "observe reads a value, or a shape that depends on one (aten."


@broken(LOOKS)
class Item(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        assert y.max().item() >= 0
        return super().observe(x, y)


@broken(LOOKS)
class Branch(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        scale = 1 if self.memory.seen > 100 else 2
        return super().observe(x, y) * scale


@broken(LOOKS)
class Mask(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        return super().observe(x[y >= 0], y[y >= 0])


@broken(LOOKS)
class Unique(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        values, positions = y.unique(return_inverse=True)
        return super().observe(x, values[positions])


@pytest.mark.parametrize("learner", [Item, Branch, Mask, Unique])
@pytest.mark.parametrize("rule", [rules.shapes_are_static, rules.no_value_is_read])
def test_a_step_that_reads_a_value_is_found_by_both_checks(learner: type[Any], rule: Callable[..., None]) -> None:
    """By the copy that has only shapes, and by the check on real tensors."""
    with pytest.raises(BrokenContract, match="reads a value"):
        rule(Method(learner.__name__), "full")


def test_the_message_names_the_line() -> None:
    with pytest.raises(BrokenContract, match=r"\[test_contract.py, line \d+: assert y.max\(\).item\(\) >= 0\]$"):
        check_learner(Item)


@broken(
    "a learner that loads the state_dict of another differs once it continues (its losses); keep all that changes in"
)
class PlainAttribute(ER):
    seen = 0

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        self.seen += 1
        return super().incoming_loss(incoming, *drawn) / self.seen


@broken("while it learns or answers it draws from torch's global generator")
class TorchNoise(ER):
    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        return super().incoming_loss(incoming, *drawn) * torch.rand(())


@broken("while it learns or answers it draws from numpy's global generator")
class NumpyNoise(ER):
    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        return super().incoming_loss(incoming, *drawn) * float(np.random.rand())  # noqa: NPY002


@broken("while it is made it draws from Python's random")
class PythonNoise(ER):
    def build(self) -> None:
        super().build()
        self.luck = random.random()


@broken("another learner with the same seed differs (encoder.layers.0.0.weight differs); give each draw")
class Unseeded(ER):
    def build(self) -> None:
        super().build()
        fresh = torch.Generator()
        fresh.seed()
        nn.init.normal_(self.head.weight, std=0.01, generator=fresh)  # type: ignore[arg-type]


@broken("the loss is nan; look for a division")
class Variance(ER):
    """A batch of one sample has no variance."""

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        centred = incoming.features - incoming.features.mean(0)
        return super().incoming_loss(incoming, *drawn) + centred.square().sum() / (len(centred) - 1)


@broken("the shape of kept is (0, 1, 8, 8) before a step and (")
class Growing(ER):
    def build(self) -> None:
        super().build()
        self.register_buffer("kept", torch.zeros(0, *self.spec.shape))

    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.kept = torch.cat([self.kept, x])
        return super().observe(x, y)


@broken("the memory holds 20 samples; its options allow 10")
class Greedy(ER):
    def __init__(self, options: ReplayOptions, *rest: Any) -> None:
        twice = ReplayOptions(memory_per_class=2 * options.memory_per_class)
        super().__init__(twice, *rest)
        self.options = options


@broken("the memory was offered 5 samples of 10; call self.memory.add once per step, with all of them")
class Picky(ER):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        add = self.memory.add
        self.memory.add = lambda x, y, *rest: add(x[::2], y[::2], *rest)  # type: ignore[method-assign]
        try:
            return super().observe(x, y)
        finally:
            del self.memory.add


@broken("observe changes the samples or the labels it is given; work on a copy")
class InPlace(FineTune):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        return super().observe(x.div_(2, rounding_mode="floor"), y)


@broken("observe does not count what it is given; call self.count(y)")
class NoCount(FineTune):
    def count(self, y: Tensor) -> None:
        pass


@broken("observe must give its loss as a tensor of one number without a gradient")
class Attached(FineTune):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        loss = nn.functional.cross_entropy(self.head(self.encoder(self.view(x))), y)
        self.descend(loss)
        return loss


@broken("observe changes no weight and no buffer; it learns nothing")
class Lazy(FineTune):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        self.count(y)
        return torch.zeros(())


@broken("% of others right, and guessing does 50 %; see that observe calls self.descend(loss)")
class Backwards(FineTune):
    def descend(self, loss: Tensor) -> None:
        super().descend(-loss.tanh())


@broken("it has an end_task, which is never called; set needs_boundaries = True")
class Unasked(ER):
    def end_task(self) -> None:
        self.ended = True


@broken("it sets needs_boundaries and has no end_task")
class NoEndTask(ER):
    needs_boundaries = True


@broken("it overrides left_out, which is never called; set leaves_out = True")
class Unsaid(FineTune):
    def left_out(self) -> LeftOut | None:
        return LeftOut(torch.zeros(0, 10), torch.zeros(0, dtype=torch.int64), torch.zeros(0))


@broken("its observe has no argument weight; add it, or set takes_weights = False")
class Unweighted(FineTune):
    def observe(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return super().observe(x, y)


class Bare(ReplayOptions):
    margin: float = 0.1


@broken("Bare is no dataclass; put @dataclass(frozen=True, kw_only=True) above it", Bare)
class NoDataclass(ER): ...


@dataclass(frozen=True, kw_only=True)
class Speechless(ReplayOptions):
    margin: float = 0.1


@broken("its option margin has no sentence; write margin: TYPE = option(", Speechless)
class NoSentence(ER): ...


@dataclass(frozen=True, kw_only=True)
class Widths(ReplayOptions):
    widths: tuple[int, ...] = option((3, 4), "of the layers")


@broken("its option widths is (3, 4), which as a text is read differently; use bool, int", Widths)
class NoText(ER): ...


@broken("Options is no ReplayOptions, which WrongOptions needs", Options)
class WrongOptions(ER): ...


Readout = Callable[[Tensor], Tensor]


@broken("samples have the shape (36, 9); readout must give 10 for each")
class TooFew(FineTune):
    def scores(self, x: Tensor, chunk: int = 1000) -> Tensor:
        return super().scores(x, chunk)[:, :9]


@broken("a score is not a number; look for a division by zero in readout")
class NotANumber(FineTune):
    def readout(self) -> Readout:
        return lambda features: self.head(features).mul(0) / 0


@broken("the score of a class it has seen is infinite")
class Silent(FineTune):
    def readout(self) -> Readout:
        rare = self.counts < 10
        return lambda features: self.head(features).masked_fill(rare, float("-inf"))


@broken("a class it has never seen has a score above minus infinity")
class Boastful(FineTune):
    def scores(self, x: Tensor, chunk: int = 1000) -> Tensor:
        return super().scores(x, chunk).clamp(min=-100)


@broken("predict does not give the class with the highest score")
class Contrary(FineTune):
    def predict(self, x: Tensor) -> Tensor:
        return self.scores(x).argmin(1)


@broken("answering changes it (asked differs); readout and embed may only read")
class Counting(FineTune):
    def build(self) -> None:
        super().build()
        self.register_buffer("asked", torch.zeros(()))

    def readout(self) -> Readout:
        self.asked += 1  # type: ignore[operator]
        return super().readout()


@broken("its answer to a sample depends on what else it is asked")
class Centred(FineTune):
    def readout(self) -> Readout:
        return lambda features: self.head(features - features.mean(0))


@broken("answering leaves a module in another mode than it was in")
class Stuck(FineTune):
    def readout(self) -> Readout:
        self.head.training = True
        return self.head

    def train(self, mode: bool = True) -> Any:
        return super().train(False)


@broken("again and head.weight are one tensor under two names; a checkpoint cannot hold it")
class Twice(FineTune):
    def build(self) -> None:
        super().build()
        self.register_buffer("again", self.head.weight.detach())


@broken("(vectors): it fails with IndexError: ")
class ImagesOnly(FineTune):
    def embed(self, view: Tensor) -> Tensor:
        return super().embed(view[:, :, : view.shape[2]])


class Refusing(FineTune):
    """It refuses data that it cannot learn, which the contract allows."""

    def __init__(self, options: Options, spec: Any, *rest: Any) -> None:
        if len(spec.shape) != 3:
            raise UsageError("learns images only")
        super().__init__(options, spec, *rest)


def test_a_kind_of_data_may_be_refused() -> None:
    registry.register("Refusing", Options)(Refusing)
    check_learner("Refusing")


def test_a_class_that_is_not_registered_is_refused() -> None:
    class Unknown(ER): ...

    with pytest.raises(UsageError, match="Unknown is not registered; put @register"):
        check_learner(Unknown)
    with pytest.raises(UsageError, match="unknown method 'cpp'; did you mean 'ccp'"):
        check_learner("cpp")


@pytest.mark.parametrize("learner", [pytest.param(learner, id=learner.__name__) for learner in BROKEN])
def test_a_broken_rule_is_named(learner: type[Any]) -> None:
    with pytest.raises(BrokenContract) as error:
        check_learner(learner)
    said = str(error.value)
    assert said.startswith(learner.__name__)
    assert BROKEN[learner][1] in said
