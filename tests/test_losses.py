"""Every loss against its equation written out as loops, values and gradients."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import equations
from onebyone.methods import losses
from onebyone.nets import cosine, unit

CLASSES, DEPTH = 5, 3
labels = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=7)
seeds = st.integers(0, 2**32 - 1)
temperatures = st.sampled_from([0.07, 0.2, 1.0])


def normal(seed: int, *sizes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def agree(ours: Callable[..., Tensor], literal: Callable[..., Tensor], *inputs: Tensor) -> None:
    """The same value, and the same gradient for each of the inputs."""
    results = []
    for function in (ours, literal):
        leaves = [x.clone().requires_grad_() for x in inputs]
        value = function(*leaves) + sum(0 * leaf.sum() for leaf in leaves)  # so that every leaf has a gradient
        results.append([value, *torch.autograd.grad(value, leaves)])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@given(labels, seeds, temperatures)
def test_equation_1(y: list[int], seed: int, temperature: float) -> None:
    """With P(x) the batch mates; a sample without any adds nothing to the sum."""
    agree(
        lambda q, z: losses.byol(unit(q, temperature), unit(z, temperature), losses.batch_mates(torch.tensor(y))),
        lambda q, z: equations.equation_1(q, z, [equations.mates(i, y) for i in range(len(y))], temperature),
        *normal(seed, (len(y), DEPTH), (len(y), DEPTH)),
    )


@given(labels, seeds, st.data())
def test_equation_1_with_any_positives(y: list[int], seed: int, data: st.DataObject) -> None:
    """Any choice of positives: SupBYOL may draw them from the memory, or use the sample itself."""
    count = data.draw(st.integers(1, 6))
    positives = [data.draw(st.lists(st.integers(0, count - 1), unique=True)) for _ in y]
    mask = torch.tensor([[p in own for p in range(count)] for own in positives])
    agree(
        lambda q, z: losses.byol(unit(q, 0.2), unit(z, 0.2), mask),
        lambda q, z: equations.equation_1(q, z, positives, 0.2),
        *normal(seed, (len(y), DEPTH), (count, DEPTH)),
    )


@given(labels, seeds, temperatures, st.sampled_from(["mean", "sum"]), st.data())
def test_equation_2(y: list[int], seed: int, temperature: float, reduction: losses.Reduction, data: st.DataObject):
    """The softmax runs over observed classes only; samples of weight zero do not count."""
    observed = sorted({*y, *data.draw(st.lists(st.integers(0, CLASSES - 1)))})
    there = data.draw(st.lists(st.booleans(), min_size=len(y), max_size=len(y)))
    kept = [i for i, yes in enumerate(there) if yes]
    among = torch.tensor([c in observed for c in range(CLASSES)])

    def ours(z: Tensor, prototypes: Tensor) -> Tensor:
        scores = cosine(z, prototypes, temperature)
        return losses.cross_entropy(scores, torch.tensor(y), torch.tensor(there).double(), reduction, among)

    def literal(z: Tensor, prototypes: Tensor) -> Tensor:
        total = equations.equation_2(z[kept], [y[i] for i in kept], prototypes, observed, temperature)
        return total if reduction == "sum" else total / max(1, len(kept))

    agree(ours, literal, *normal(seed, (len(y), DEPTH), (CLASSES, DEPTH)))


def test_cross_entropy_over_all_classes() -> None:
    y = [0, 4, 2, 2]
    agree(
        lambda logits: losses.cross_entropy(logits, torch.tensor(y), torch.ones(4)),
        lambda logits: (
            sum(equations.softmax_loss(row, c, range(CLASSES)) for row, c in zip(logits, y, strict=True)) / 4
        ),
        *normal(0, (4, CLASSES)),
    )


TERMS = {
    "pull": ((1, 0, 0), lambda z, y, c, seen: losses.pull(z, y, c)),
    "gather_mates": ((0, 1, 0), lambda z, y, c, seen: losses.gather_mates(z, z, losses.batch_mates(y))),
    "repel": ((0, 0, 1), lambda z, y, c, seen: losses.repel(c, seen)),
    "all": (
        (1, 1, 1),
        lambda z, y, c, seen: (
            losses.pull(z, y, c) + losses.gather_mates(z, z, losses.batch_mates(y)) + losses.repel(c, seen)
        ),
    ),
}


@pytest.mark.parametrize("term", TERMS)
@given(labels, seeds, temperatures, st.data())
def test_equation_3(term: str, y: list[int], seed: int, temperature: float, data: st.DataObject) -> None:
    observed = sorted({*y, *data.draw(st.lists(st.integers(0, CLASSES - 1)))})
    seen = torch.tensor([c in observed for c in range(CLASSES)])
    weights, ours = TERMS[term]
    agree(
        lambda z, prototypes: ours(unit(z, temperature), torch.tensor(y), unit(prototypes, temperature), seen),
        lambda z, prototypes: equations.equation_3(z, y, prototypes, observed, temperature, weights),
        *normal(seed, (len(y), DEPTH), (CLASSES, DEPTH)),
    )


@given(labels, labels, seeds, temperatures, st.data())
def test_supervised_contrast(y: list[int], drawn_y: list[int], seed: int, temperature: float, data: st.DataObject):
    """Unusable samples and anchors of weight zero do not count; if none is left, the loss is exactly 0."""
    usable = data.draw(st.lists(st.booleans(), min_size=len(drawn_y), max_size=len(drawn_y)))
    there = data.draw(st.lists(st.booleans(), min_size=len(y), max_size=len(y)))
    kept, used = ([i for i, yes in enumerate(flags) if yes] for flags in (there, usable))
    positive = torch.tensor(y)[:, None] == torch.tensor(drawn_y)

    def ours(anchor: Tensor, drawn: Tensor) -> Tensor:
        weight = torch.tensor(there).double()
        return losses.supervised_contrast(
            unit(anchor, temperature),
            unit(drawn, temperature),
            positive,
            torch.tensor(usable),
            weight,
            temperature,
        )

    def literal(anchor: Tensor, drawn: Tensor) -> Tensor:
        each = equations.contrast(
            anchor[kept], [y[i] for i in kept], drawn[used], [drawn_y[i] for i in used], temperature
        )
        return temperature / 0.07 * sum(each, torch.zeros((), dtype=torch.float64)) / max(1, len(kept))

    agree(ours, literal, *normal(seed, (len(y), DEPTH), (len(drawn_y), DEPTH)))


@pytest.mark.parametrize(("usable", "weight"), [(False, 1.0), (True, 0.0), (False, 0.0)])
def test_a_contrast_without_samples_is_exactly_zero(usable: bool, weight: float) -> None:
    anchor, drawn = (x.requires_grad_() for x in normal(0, (4, DEPTH), (6, DEPTH)))
    mask = torch.full((6,), usable)
    loss = losses.supervised_contrast(
        unit(anchor), unit(drawn), torch.ones(4, 6).bool(), mask, torch.full((4,), weight), 0.2
    )
    gradients = torch.autograd.grad(loss, (anchor, drawn))
    assert loss.item() == 0
    assert not any(gradient.any() for gradient in gradients)  # NaN would count as true


@given(labels, seeds, st.data())
def test_class_means(y: list[int], seed: int, data: st.DataObject) -> None:
    there = data.draw(st.lists(st.booleans(), min_size=len(y), max_size=len(y)))
    members = [[i for i, label in enumerate(y) if label == c and there[i]] for c in range(CLASSES)]
    arguments = torch.tensor(y)[:, None] == torch.arange(CLASSES), torch.tensor(there).double()
    agree(
        lambda z, w: (losses.class_means(z, *arguments)[0] * w).sum(),  # w: to compare each number separately
        lambda z, w: sum((sum(z[i] for i in own) / len(own) * w[c]).sum() for c, own in enumerate(members) if own),
        *normal(seed, (len(y), DEPTH), (CLASSES, DEPTH)),
    )
    assert losses.class_means(*normal(seed, (len(y), DEPTH)), *arguments)[1].tolist() == [bool(own) for own in members]


@given(st.lists(st.tuples(st.floats(-9, 9), st.sampled_from([0.0, 1.0]))), st.sampled_from(["mean", "sum"]))
def test_reduce(pairs: list[tuple[float, float]], reduction: losses.Reduction) -> None:
    values, weight = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2).T
    kept = [value for value, there in pairs if there]
    agree(
        lambda v: losses.reduce(v, weight, reduction),
        lambda v: (
            sum(x for x, there in zip(v, weight, strict=True) if there)
            / (max(1, len(kept)) if reduction == "mean" else 1)
        ),
        values,
    )


@given(labels, labels, seeds, temperatures, st.data())
def test_positives_among_replayed_samples(
    y: list[int], replay_y: list[int], seed: int, temperature: float, data: st.DataObject
) -> None:
    """The second term of equation 3 with P(x) the batch mates and the replayed samples of the class that exist."""
    there = data.draw(st.lists(st.booleans(), min_size=len(replay_y), max_size=len(replay_y)))
    drawn = [len(y) + i for i, yes in enumerate(there) if yes]
    both = [*y, *replay_y]

    def literal(z: Tensor, replay: Tensor) -> Tensor:
        every, total = torch.cat([z, replay]), torch.zeros((), dtype=z.dtype)
        for i, label in enumerate(y):
            own = [*equations.mates(i, y), *(p for p in drawn if both[p] == label)]
            for p in own:
                total = total - equations.sim(z[i], every[p], temperature) / len(own) / len(y)
        return total

    mask = losses.positives(torch.tensor(y), torch.tensor(replay_y), torch.tensor(there))
    agree(
        lambda z, replay: losses.gather_mates(unit(z, temperature), unit(torch.cat([z, replay]), temperature), mask),
        literal,
        *normal(seed, (len(y), DEPTH), (len(replay_y), DEPTH)),
    )
