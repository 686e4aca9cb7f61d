"""The engine on a GPU: eager against captured, one run against a pack, and whether all give the same results.

Data are random images of CIFAR-10's shapes: the work does not depend on their content. Prints its progress, and writes
the numbers as JSON to --out; `python benchmarks/report.py` writes docs/benchmarks.md from them.

    python benchmarks/gpu.py --out results/benchmarks/gpu.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from onebyone import Dataset, create, methods, nets
from onebyone.data import CropFlip
from onebyone.engine import Captured, Eager, choose_device, more_queues, pack
from onebyone.evaluation import Result
from onebyone.methods import Options, method
from onebyone.nets import separate_batches
from onebyone.paper.printed import MORE_CLASSES
from onebyone.runs import Listener, RunConfig
from onebyone.runs.run import steps_in_folder, stop_signal

with more_queues():
    device = choose_device("cuda")
torch.backends.cudnn.deterministic = True  # as in a run
started = time.perf_counter()
numbers: dict[str, Any] = {}


def say(name: str, value: Any, text: str) -> None:
    numbers[name] = value
    print(f"[{time.perf_counter() - started:4.0f} s] {text}", flush=True)


def random_cifar(train: int = 50_000, test: int = 10_000) -> Dataset:
    generator = torch.Generator(device).manual_seed(0)

    def images(count: int) -> Tensor:
        return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, device=device, generator=generator)

    labels = [torch.arange(count, device=device) * 10 // count for count in (train, test)]
    names = tuple(str(label) for label in range(10))
    return Dataset("random", images(train), labels[0], images(test), labels[1], names, CropFlip(4, True))


def seconds(work: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    before = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - before


def engines(data: Dataset, count: int, kind: type[Eager], method: str = "ccp", **options: Any) -> list[Eager]:
    made = []
    for seed in range(count):
        learner = create(method, data.spec, seed=seed, device=device, **options)
        own = (data.train_x, data.train_y)
        made.append(Captured(learner, *own, batch_size=10) if kind is Captured else Eager(learner, *own))
    return made


def milliseconds(packed: list[Eager], steps: int, rounds: int = 3) -> float:
    """Milliseconds per step of one run, when all of these advance together."""
    batches = torch.randperm(50_000, device=device).split(10)

    def work() -> None:
        for index in batches[:steps]:
            for each in packed:
                each.step(index)

    work()
    return 1000 * median(seconds(work) for _ in range(rounds)) / steps / len(packed)


def single(data: Dataset) -> None:
    eager = milliseconds(engines(data, 1, Eager), 40)
    captured = milliseconds(engines(data, 1, Captured), 100)
    say(
        "single",
        {"eager": eager, "captured": captured},
        f"CCP, one run: eager {eager:.1f} ms a step, captured {captured:.2f}: {eager / captured:.1f} times faster",
    )


WAYS: dict[str, dict[str, Any]] = {  # of computing a step: without Triton's kernels, with them, and in bf16
    "before": {"channels_last": False},
    "float32": {},
    "bf16": {"precision": "bf16"},
}


def compared(data: Dataset, rounds: int = 4) -> None:
    """A step in a pack of 16 in three ways, measured in turn, so that what disturbs one disturbs all."""
    for name, passes in product(("ccp", "er"), ("joint", "separate")):
        packed = {way: engines(data, 16, Captured, name, passes=passes, **options) for way, options in WAYS.items()}
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        for _, way in product(range(rounds), WAYS):
            taken[way].append(milliseconds(packed[way], 50, rounds=1))
        for way, values in taken.items():
            low, middle, high = min(values), median(values), max(values)
            text = f"{name}, {passes}, {way}: {middle:.3f} ms a step and run ({low:.3f} to {high:.3f})"
            say(f"compared {name} {passes} {way}", {"median": middle, "least": low, "most": high}, text)


def same_in_a_pack(data: Dataset, steps: int = 300) -> None:
    """Whether a run alone and the same run in a pack of 16 have the same bits in all of their state."""
    batches = torch.randperm(50_000, device=device, generator=torch.Generator(device).manual_seed(2)).split(10)[:steps]
    for name, passes, way in product(("ccp", "er"), ("joint", "separate"), ("float32", "bf16")):
        states = []
        for width in (1, 16):
            packed = engines(data, width, Captured, name, passes=passes, **WAYS[way])
            for index, each in product(batches, packed):
                each.step(index)
            torch.cuda.synchronize()
            states.append(packed[0].learner.state_dict())
        same = all(torch.equal(tensor, states[1][key]) for key, tensor in states[0].items())
        what = f"{name} {passes} {way}"
        say(f"bits {what}", same, f"{what}: alone as in a pack, bit for bit: {same}")


KINDS = {  # of kernels, by a part of their names; the first that fits
    "weight gradients": ("wgrad", "weight_gradient"),
    "input gradients": ("dgrad", "input_gradient"),
    "BatchNorm": ("bn_", "batch_norm", "normalize", "gradient_sums"),
    "conversions": ("nchw", "nhwc"),
    "convolutions": ("convolve", "fprop", "conv"),
    "matrix products": ("gemm", "cutlass"),
    "reductions": ("reduce",),
    "elementwise": ("elementwise",),
}


def profiles(data: Dataset, steps: int = 5) -> None:
    """GPU time of the kernels of one step of CCP with a joint pass, alone."""
    index = torch.arange(10, device=device)
    for way, options in WAYS.items():
        (one,) = engines(data, 1, Captured, passes="joint", **options)
        one.step(index)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(steps):
                one.step(index)
            torch.cuda.synchronize()
        kinds: dict[str, list[float]] = {}
        for event in found.events():
            if event.device_type == DeviceType.CUDA:
                name = event.name.lower()
                kind = next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "other")
                entry = kinds.setdefault(kind, [0.0, 0.0])
                entry[0] += 1 / steps
                entry[1] += event.device_time / steps
        total = [sum(entry[n] for entry in kinds.values()) for n in range(2)]
        text = ", ".join(f"{kind} {count:.0f} / {time:.0f}" for kind, (count, time) in kinds.items())
        text = f"{way}: {total[0]:.0f} kernels, {total[1]:.0f} us: {text}"
        say(f"profile {way}", {kind: [round(n, 1) for n in entry] for kind, entry in kinds.items()}, text)


def packs(data: Dataset) -> None:
    for passes, width in product(("separate", "joint"), (4, 8, 16, 32)):
        taken = milliseconds(engines(data, width, Captured, passes=passes), 60)
        say(f"pack {width} {passes}", taken, f"CCP, {passes}, pack of {width}: {taken:.3f} ms a step and run")


def same_as_eager(data: Dataset, steps: int = 200) -> None:
    """After this many steps with TF32 off: the largest relative difference of any parameter, buffer or memory entry."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    batches = torch.randperm(50_000, device=device, generator=torch.Generator(device).manual_seed(1)).split(10)
    for name in with_a_network():
        pair = [engines(data, 1, kind, name, learning_rate=0.01)[0] for kind in (Eager, Captured)]
        for number, index in enumerate(batches[:steps], start=1):
            for each in pair:
                each.step(index)
            if number % 50 == 0:
                for each in pair:
                    each.synchronize()
                    each.learner.end_task()
        torch.cuda.synchronize()
        eager, captured = (each.learner.state_dict() for each in pair)
        worst = max(
            float(
                (eager[key].double() - captured[key].double()).abs().max()
                / eager[key].double().abs().max().clamp(min=1e-30)
            )
            for key in eager
            if eager[key].numel()  # statistics of images have an empty origin
        )
        say(f"same {name}", worst, f"{name}: captured differs from eager by {worst:.1e} after {steps} steps")
    torch.backends.cudnn.allow_tf32 = True


def same_as_pytorch(data: Dataset) -> None:
    """Features, gradients and statistics of the ResNet in float32 against float64: by PyTorch, and by the kernels.

    Both have larger errors than one layer: a ReLU decides otherwise where a value is nearly zero.
    """
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    network = nets.create("resnet18", data.spec.shape).to(device)
    x, weight = data.train_x[:20] * (2 / 255) - 1, torch.randn(20, network.width, device=device)
    ways = {"exact": torch.float64, "PyTorch": torch.float32, "kernels": torch.float32}
    for sizes in ([], [10, 10]):
        found: dict[str, dict[str, Tensor]] = {}
        for way, dtype in ways.items():
            own = deepcopy(network).to(dtype)
            if way == "kernels":  # which need this layout
                own.to(memory_format=torch.channels_last)
            with separate_batches(sizes):
                features = own(x.to(dtype))
            (features * weight.to(dtype)).sum().backward()
            found[way] = {"features": features.detach(), **{name: value.grad for name, value in own.named_parameters()}}
            found[way] |= {name: value for name, value in own.named_buffers() if "running" in name}
        errors = {
            way: max(float((found[way][name] - exact).norm() / exact.norm()) for name, exact in found["exact"].items())
            for way in ("PyTorch", "kernels")
        }
        text = ", ".join(f"{way} {error:.1e}" for way, error in errors.items())
        say(f"error {len(sizes) or 1}", errors, f"largest error against float64, parts {sizes}: {text}")
    torch.backends.cudnn.allow_tf32 = True


def with_a_network() -> list[str]:
    return [name for name in methods() if issubclass(method(name).options, Options)]


def whole_runs(configs: list[RunConfig], data: Dataset, width: int) -> tuple[float, dict[str, Result]]:
    results: dict[str, Result] = {}
    data.fingerprint  # noqa: B018  (computed once, before the clock runs)

    def failed(name: str, error: Exception) -> None:
        raise error

    with tempfile.TemporaryDirectory() as folder, stop_signal() as stopped:
        runs = {
            str(n): (lambda n=n, c=c: steps_in_folder(c, data, Path(folder) / str(n), 10**9, Listener(), stopped))
            for n, c in enumerate(configs)
        }
        taken = seconds(lambda: pack(runs, width, done=results.__setitem__, failed=failed))
    return taken, results


def sixteen_runs(data: Dataset) -> None:
    configs = [RunConfig(method="ccp", dataset="random", seed=seed, device="cuda") for seed in range(16)]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    taken, together = whole_runs(configs, data, 16)
    memory = (torch.cuda.max_memory_reserved() - before) / 16 / 2**20
    say(
        "16 runs",
        {"seconds": taken, "megabytes each": memory},
        f"16 complete one-class runs of CCP with 10 evaluations each: {taken:.1f} s, {memory:.0f} MB per run",
    )
    _, alone = whole_runs(configs[:1], data, 1)
    same = alone["0"].accuracy_matrix == together["0"].accuracy_matrix
    say("alone as in the pack", same, f"the first of them alone gives the same accuracy matrix: {same}")


def tenth_of_the_tables(data: Dataset) -> None:
    """Every method, both settings, different M: 32 of about 320 runs."""
    sizes = [5, 20, 50, 100]
    replay = [name for name in MORE_CLASSES if name not in ("finetune", "iid")]
    cells = [(name, 2 - n % 2, sizes[n % 4]) for n, name in enumerate(replay * 4)][:30]
    cells += [("finetune", 1, 20), ("iid", 2, 20)]
    configs = [
        RunConfig(
            method=m,
            dataset="random",
            classes_per_task=s,
            memory_per_class=size,
            seed=n,
            device="cuda",
            options={"learning_rate": 0.01},
        )
        for n, (m, s, size) in enumerate(cells)
    ]
    taken, _ = whole_runs(configs, data, 16)
    minutes = taken / len(configs) * 320 / 60
    say(
        "tenth of the tables",
        {"runs": len(configs), "seconds": taken, "minutes for 320": minutes},
        f"{len(configs)} runs of all methods: {taken:.0f} s, so 320 take {minutes:.1f} minutes",
    )


SECTIONS = (
    single, packs, compared, profiles, same_in_a_pack, same_as_pytorch, sixteen_runs, same_as_eager,
    tenth_of_the_tables,
)  # fmt: skip


def main() -> None:
    sections = {f.__name__: f for f in SECTIONS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"by default all: {', '.join(sections)}")
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    data = random_cifar()
    name = torch.cuda.get_device_name()
    say("device", name, f"{name}, torch {torch.__version__}")
    for name in settings.sections or sections:
        sections[name](data)
        torch.cuda.empty_cache()
        if settings.out:
            settings.out.parent.mkdir(parents=True, exist_ok=True)
            settings.out.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()
