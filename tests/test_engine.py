"""How steps are run. benchmarks/gpu.py compares what needs a GPU; these are the other tests."""

import gc
import warnings
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from itertools import groupby
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from onebyone import Dataset, create, methods
from onebyone.engine import Eager, captured, measure_cost, pack, static, torch_settings
from onebyone.engine.pack import AHEAD, STEPS
from onebyone.methods import ReplayOptions
from onebyone.methods.er import ER
from onebyone.nets import Adapted

ER_OPTIONS = ReplayOptions(memory_per_class=2)


class Looks(ER):
    """Reads a value in its step."""

    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        return super().observe(x, y) * float(y.sum().item())


class Selects(ER):
    """Has shapes that depend on values in its step."""

    def observe(self, x: Tensor, y: Tensor) -> Tensor:
        return super().observe(x[y > 3], y[y > 3])


@pytest.mark.parametrize("name", methods())
def test_every_step_can_be_captured(digits: Dataset, name: str) -> None:
    assert static.capture_problem(create(name, digits.spec), batch_size=10) is None


@pytest.mark.parametrize(("kind", "operation"), [(Looks, "_local_scalar_dense"), (Selects, "nonzero")])
def test_the_operation_that_prevents_capture_is_named(digits: Dataset, kind: type[ER], operation: str) -> None:
    learner = kind(ER_OPTIONS, digits.spec)
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    assert operation in str(static.capture_problem(learner, batch_size=10))
    assert all(torch.equal(before[name], tensor) for name, tensor in learner.state_dict().items())


def test_what_cannot_be_captured_runs_eagerly_with_one_warning(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnGPU(torch.Tensor):
        device = torch.device("cuda")

    x = digits.train_x.as_subclass(OnGPU)
    with pytest.warns(UserWarning, match="the step of Looks cannot be captured .*_local_scalar_dense.*slower") as found:
        engine = captured.engine_for(Looks(ER_OPTIONS, digits.spec), x, digits.train_y, batch_size=10)
    assert type(engine) is Eager
    assert len(found) == 1


def test_on_a_cpu_steps_are_eager_without_a_warning(digits: Dataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = captured.engine_for(Looks(ER_OPTIONS, digits.spec), digits.train_x, digits.train_y, batch_size=10)
    assert type(engine) is Eager


def test_the_cost_of_a_step_that_needs_values_is_measured(digits: Dataset) -> None:
    learner = Looks(ER_OPTIONS, digits.spec)
    assert measure_cost(learner) == measure_cost(ER(ER_OPTIONS, digits.spec))
    assert learner.steps == 0


def test_measured_steps_keep_nothing_alive(digits: Dataset) -> None:
    """Neither an encoder that was given nor a learner's class outlives its last user."""

    class Own(ER):
        pass

    encoder = Adapted(nn.Conv2d(1, 4, 8), (1, 8, 8))
    learners = [Own(ReplayOptions(encoder=encoder), digits.spec), Own(ER_OPTIONS, digits.spec)]
    alive = [ref(encoder), ref(Own), *map(ref, learners)]
    for learner in learners:
        measure_cost(learner)
        static.capture_problem(learner, batch_size=10)
    del encoder, Own, learner, learners
    gc.collect()
    assert [reference() for reference in alive] == [None] * 4


def test_a_step_is_measured_once_for_all_seeds(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(ER):
        pass

    encoder = Adapted(nn.Conv2d(1, 4, 8), (1, 8, 8))
    for options in (ER_OPTIONS, replace(ER_OPTIONS, encoder=encoder)):
        cost, problem = (measure(Own(options, digits.spec), 10) for measure in (measure_cost, static.capture_problem))
        with monkeypatch.context() as patch:
            patch.setattr(Own, "observe", None)
            again = Own(replace(options), digits.spec, seed=1)
            assert (measure_cost(again, 10), static.capture_problem(again, 10)) == (cost, problem)
        assert measure_cost(again, 20) != cost


def test_an_engine_calls_observe(few: Dataset) -> None:
    ours, theirs = create("ccp", few.spec), create("ccp", few.spec)
    engine = Eager(ours, few.train_x, few.train_y)
    for index in torch.arange(30).split(7):
        engine.step(index)
        theirs.observe(few.train_x[index], few.train_y[index])
    engine.synchronize()
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in ours.state_dict().items())


@pytest.mark.parametrize(("flops", "inside"), [(1e6, 1), (1e10, 3)])
@pytest.mark.parametrize("flushing", [False, True])
def test_torch_settings_are_restored(flops: float, inside: int, flushing: bool) -> None:
    def tiny_is_zero() -> bool:
        return not torch.tensor(1e-310, dtype=torch.float64).mul(1).any()

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    torch.set_flush_denormal(flushing)
    try:
        with torch_settings(flops):
            assert torch.get_num_threads() == inside
            assert tiny_is_zero()
        assert torch.get_num_threads() == 3
        assert tiny_is_zero() == flushing
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)


def test_a_pack_alternates_between_runs_and_starts_new_ones() -> None:
    log: list[str] = []

    def begin(name: str, steps: int) -> Callable[[], Generator[None, None, int]]:
        def go() -> Generator[None, None, int]:
            for _ in range(steps):
                log.append(name)
                yield
            return steps

        return go

    ended: dict[str, int] = {}
    pack({"a": begin("a", 9), "b": begin("b", 2), "c": begin("c", 5)}, 2, ended.__setitem__, pytest.fail)
    assert ended == {"a": 9, "b": 2, "c": 5}
    assert "".join(log) == "aaaa" + "aaaabb" + "acccc" + "c"  # four steps per turn, and one run starts per round


def test_on_a_gpu_the_others_queue_steps_before_a_run_is_constructed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    log: list[str] = []

    def count(name: str) -> Generator[None, None, None]:
        for _ in range(200):
            log.append(name)
            yield

    pack({name: partial(count, name) for name in "abc"}, 3, lambda *_: None, pytest.fail)
    turns = [(name, len(list(steps))) for name, steps in groupby(log)]
    first, second = [("a", 2 * STEPS + AHEAD), ("b", STEPS)], [("a", STEPS), ("b", STEPS)]
    assert turns[:7] == [*first, *second, ("a", AHEAD), ("b", AHEAD), ("c", STEPS)]
    assert sorted(log) == [name for name in "abc" for _ in range(200)]


def test_a_failing_run_does_not_affect_the_others() -> None:
    def go(error: Exception | None) -> Generator[None, None, str]:
        yield
        if error:
            raise error
        yield
        return "done"

    ended: dict[str, str] = {}
    failed: dict[str, Exception] = {}
    trouble = ValueError("mine alone")
    runs = {"good": lambda: go(None), "bad": lambda: go(trouble), "late": lambda: go(None)}
    pack(runs, 2, ended.__setitem__, failed.__setitem__)
    assert ended == {"good": "done", "late": "done"}
    assert failed == {"bad": trouble}


def test_a_pack_that_does_not_fit_in_memory_is_split() -> None:
    """A run that gets no memory waits until another has ended; a run that is alone and gets none has failed."""
    room, live, said = 2, 0, []

    def go(size: int) -> Generator[None, None, int]:
        nonlocal live
        if live + size > room:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        live += size
        for _ in range(30):
            yield
        live -= size
        return size

    ended: dict[str, int] = {}
    failed: dict[str, Exception] = {}
    runs = {name: lambda: go(1) for name in "abcde"} | {"huge": lambda: go(3)}
    pack(runs, 4, ended.__setitem__, failed.__setitem__, said.append)
    assert sorted(ended) == list("abcde")
    assert list(failed) == ["huge"]
    assert said[0] == "2 runs fill the memory of the GPU; the others wait for one of them to end"
