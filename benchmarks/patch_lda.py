"""Accuracy of `patch-lda` with the bytes of the paper's memories, its cost, and an ablation.

    python benchmarks/patch_lda.py accuracy --data-dir DIR [--dataset cifar100] [--memory 5 20] [--seeds 5] [--jobs 8]
    python benchmarks/patch_lda.py orders   --data-dir DIR [--memory 100] [--orders 10]
    python benchmarks/patch_lda.py ablation --data-dir DIR [--memory 20] [--seeds 3]
    python benchmarks/patch_lda.py speed    [--memory 5 20 50 100] [--threads 2]

M stands for the bytes of M images per class. Accuracies are on a held-out tenth of the training set; `accuracy --test`
takes the test set instead, for the last run, with everything chosen before. Every run is a row of a table in
results/statistics: held-out.csv or test.csv, orders.csv, ablation.csv. `--jobs` are processes of one thread each.
Statistics do not depend on the size of batches, and large ones are faster, so batches have 500 samples here.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onebyone import Dataset, Spec, class_incremental, create, load
from onebyone.engine import measure_cost
from onebyone.evaluation import metrics
from onebyone.evaluation.metrics import accuracy_matrix
from onebyone.nets import Patches, patches
from onebyone.options import parse
from onebyone.runs.results import summarize
from onebyone.statistics.kept import KeptSample
from onebyone.statistics.patch_lda import PatchLDA, PatchLDAOptions
from onebyone.statistics.sums import Moments

RESULTS = Path(__file__).parent.parent / "results" / "statistics"
BATCH = 500
Row = dict[str, Any]


def budget(memory: int, spec: Spec) -> int:
    return memory * spec.num_classes * torch.Size(spec.shape).numel()


def make(spec: Spec, memory: int, options: dict[str, str], seed: int = 0, kind: type[PatchLDA] = PatchLDA) -> PatchLDA:
    texts = {"budget": str(budget(memory, spec)), **options}
    return kind(parse(PatchLDAOptions, texts), spec, seed)


@cache
def data(dataset: str, folder: Path | None, test: bool = False) -> Dataset:
    found = load(dataset, folder)
    return found if test else found.held_out()


def final_accuracy(learner: PatchLDA, found: Dataset, order: int) -> float:
    """In percent, after one pass over classes one at a time: by label for order 0, else random by that seed."""
    stream = class_incremental(
        found.train_y, found.num_classes, order="random" if order else "label", batch_size=BATCH, seed=order
    )
    for index in stream:
        learner.observe(found.train_x[index], found.train_y[index])
    return 100 * (learner.predict(found.test_x) == found.test_y).double().mean().item()


@torch.no_grad()
def accurate(dataset: str, folder: Path, test: bool, options: dict[str, str], job: tuple[int, int, int]) -> Row:
    """Evaluated after every task, as a run is. Filters never change, so features of the test set are computed once."""
    memory, classes_per_task, seed = job
    found = data(dataset, folder, test)
    learner = make(found.spec, memory, options, seed)
    features = torch.cat([learner.features(x) for x in found.test_x.split(BATCH)])
    stream = class_incremental(found.train_y, found.num_classes, classes_per_task, batch_size=BATCH, seed=seed)
    right, seconds = [], 0.0
    for task in stream.tasks:
        started = time.perf_counter()
        for index in task.batches(BATCH):
            learner.observe(found.train_x[index], found.train_y[index])
        seconds += time.perf_counter() - started
        answers = learner.readout()(features).masked_fill(~learner.observed, float("-inf")).argmax(1)
        right.append(found.test_y[answers == found.test_y].bincount(minlength=found.num_classes).tolist())
    total = found.test_y.bincount(minlength=found.num_classes).tolist()
    reached = metrics(accuracy_matrix(right, total, [task.classes for task in stream.tasks]))
    return {
        "dataset": dataset,
        "M": memory,
        "classes_per_task": classes_per_task,
        "seed": seed,
        "options": " ".join(f"{name}={value}" for name, value in options.items()),
        "bytes": learner.memory_bytes,
        "features": learner.extractor.width,
        "mflop": round(measure_cost(learner, BATCH).flops / 1e6, 1),
        "accuracy": round(100 * reached.accuracy, 2),
        "forgetting": round(100 * (reached.forgetting or 0), 2),
        "seconds": round(seconds, 1),
    }


def ordered(dataset: str, folder: Path, options: dict[str, str], job: tuple[int, int]) -> Row:
    """The same samples and the same learner in another order of classes."""
    memory, order = job
    found = data(dataset, folder)
    accuracy = final_accuracy(make(found.spec, memory, options), found, order)
    return {"dataset": dataset, "M": memory, "order": order, "accuracy": round(accuracy, 2)}


class Variant(Patches):
    def fit(self, seed: int) -> None:
        self.compute(torch.Generator().manual_seed(seed))  # not shared with the others


class NoWhitening(Variant):
    def compute(self, generator: torch.Generator) -> None:
        super().compute(generator)
        generator.manual_seed(generator.initial_seed())
        described = self.typical(generator)
        unit = described.square().mean().sqrt()
        self.filters.copy_(patches.clusters(described, self.count) * (described / unit).norm(dim=1).mean() / unit)


class NoGathering(Variant):
    def compute(self, generator: torch.Generator) -> None:
        before, patches.ROUNDS = patches.ROUNDS, 0
        super().compute(generator)
        patches.ROUNDS = before


class NoLeaves(Variant):
    """Filters from noise: random directions."""

    def compute(self, generator: torch.Generator) -> None:
        before, patches.dead_leaves = patches.dead_leaves, noise
        super().compute(generator)
        patches.dead_leaves = before


def noise(count: int, channels: int, side: int, generator: torch.Generator) -> Tensor:
    return torch.randn(count, channels, side, side, generator=generator)


class NoContrast(Variant):
    """Contrast normalised per image instead of per patch."""

    def described(self, x: Tensor) -> Tensor:
        x = x - x.mean((1, 2, 3), keepdim=True)
        x = x / (x.square().mean((1, 2, 3), keepdim=True) + 1e-12).sqrt()
        return nn.functional.conv2d(x, self.components).permute(0, 2, 3, 1).flatten(1, 2)  # the stride is 1 here


class OneSide(Variant):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.width //= 2

    def pooled(self, x: Tensor) -> Tensor:
        return super().pooled(x).unflatten(1, (-1, 2, self.count))[:, :, 0].flatten(1)


class WholeImage(Variant):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.width //= self.pooling.shape[1]
        self.pooling = self.pooling.mean(1, keepdim=True)


class NoMirror(Variant):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, mirrored=False)


class NoRoot(Variant):
    def pooled(self, x: Tensor) -> Tensor:
        return super().pooled(x).square()


class Means(Moments):
    """Without the covariance, whose bytes then go into filters."""

    def __init__(self, width: int, num_classes: int) -> None:
        super().__init__(width, num_classes)
        self.products = self.products[:0]

    def add_products(self, rows: Tensor, others: Tensor) -> None:
        pass

    def measure(self, keys: object = None) -> None:
        pass


class NearestMean(PatchLDA):
    def parts(self, filters: int, raw: bool = True) -> tuple[Any, Moments, KeptSample]:
        extractor, _, kept = super().parts(filters, raw)
        return extractor, Means(extractor.width, self.spec.num_classes), kept

    def readout(self) -> Callable[[Tensor], Tensor]:
        means = self.moments.means()
        return lambda features: features.double() @ means.T - means.square().sum(1) / 2


def with_patches(kind: type[Patches]) -> type[PatchLDA]:
    class Ablated(PatchLDA):
        def parts(self, filters: int, raw: bool = True) -> tuple[Any, Moments, KeptSample]:
            complete, moments, kept = super().parts(filters, raw)
            assert isinstance(complete, Patches)
            return kind(self.spec.shape, filters, complete.patch, complete.stride, complete.threshold), moments, kept

    return Ablated


ABLATIONS: dict[str, tuple[Callable[[], type[PatchLDA]], dict[str, str]]] = {
    "nothing": (lambda: PatchLDA, {}),
    "dead leaves -> noise": (partial(with_patches, NoLeaves), {}),
    "whitening": (partial(with_patches, NoWhitening), {}),
    "gathering -> patches as they come": (partial(with_patches, NoGathering), {}),
    "contrast of a patch -> of its image": (partial(with_patches, NoContrast), {}),
    "two sides -> one": (partial(with_patches, OneSide), {}),
    "threshold": (lambda: PatchLDA, {"threshold": "0"}),
    "square root": (partial(with_patches, NoRoot), {}),
    "quadrants -> whole image": (partial(with_patches, WholeImage), {}),
    "mirrored views": (partial(with_patches, NoMirror), {}),
    "every row -> every second (stride 2)": (lambda: PatchLDA, {"stride": "2"}),
    "shrinkage -> hardly any, 1e-5": (lambda: PatchLDA, {"shrinkage": "1e-5"}),
    "covariance -> none (nearest mean)": (lambda: NearestMean, {}),
}


def ablated(dataset: str, folder: Path, job: tuple[int, str, int]) -> Row:
    memory, removed, seed = job
    found = data(dataset, folder)
    kind, options = ABLATIONS[removed]
    learner = make(found.spec, memory, options, seed, kind())
    return {
        "dataset": dataset,
        "M": memory,
        "removed": removed,
        "seed": seed,
        "bytes": learner.memory_bytes,
        "filters": learner.extractor.count,
        "features": learner.extractor.width,
        "accuracy": round(final_accuracy(learner, found, order=0), 2),
    }


def run_all(work: Callable[[Any], Row], jobs: Iterable[Any], arguments: argparse.Namespace, table: str) -> list[Row]:
    """Do all jobs in processes of one thread each, and write every row when it is finished."""
    rows = []
    with ProcessPoolExecutor(
        arguments.jobs, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        for row in pool.map(work, jobs):
            print("  ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
            note(row, table)
            rows.append(row)
    return rows


def note(row: Row, name: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.csv"
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def speed(memory: int, batch: int, arguments: argparse.Namespace) -> None:
    """The data set's shapes, filled with noise: the time does not depend on the values."""
    spec = Spec((3, 32, 32), 100 if arguments.dataset == "cifar100" else 10)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (batch, *spec.shape), dtype=torch.uint8, generator=generator)
    y = torch.randint(spec.num_classes, (batch,), generator=generator)
    learner = make(spec, memory, arguments.options)
    learner.observe(x, y)
    times, busy, begun = [], time.process_time(), time.perf_counter()
    for _ in range(max(3, 5000 // batch)):
        started = time.perf_counter()
        learner.observe(x, y)
        times.append(time.perf_counter() - started)
    got = (time.process_time() - busy) / (time.perf_counter() - begun) / torch.get_num_threads()
    learner.refresh()
    started = time.perf_counter()
    learner.predict(x[:1])
    solved = time.perf_counter() - started
    own, er = measure_cost(learner, batch).flops, measure_cost(create("er", spec)).flops
    print(
        f"M = {memory:3}, batches of {batch}: {learner.extractor.width} features, at best "
        f"{batch / min(times):,.0f} images per second ({got:.0%} of the CPU time), solving {1000 * solved:.0f} ms, "
        f"{own / 1e6:.1f} MFLOP per sample, {own / er:.1%} of ER's",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "orders", "ablation", "speed"])
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--memory", type=int, nargs="+", metavar="M", help="20 for ablation, 5 20 50 100 for others")
    parser.add_argument("--classes-per-task", type=int, nargs="+", default=[1], metavar="S")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="options of patch-lda")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--threads", type=int, default=2, help="of speed")
    parser.add_argument("--test", action="store_true", help="accuracy on the test set: once, at the end")
    arguments = parser.parse_args()
    if arguments.test and arguments.what != "accuracy":
        parser.error("only accuracy is for the test set")
    arguments.options = options = dict(text.split("=") for text in arguments.set)
    dataset, folder, seeds = arguments.dataset, arguments.data_dir, range(arguments.seeds)
    memories = arguments.memory or ([20] if arguments.what == "ablation" else [5, 20, 50, 100])
    match arguments.what:
        case "speed":
            torch.set_num_threads(arguments.threads)
            for memory in memories:
                for batch in (10, BATCH):
                    speed(memory, batch, arguments)
        case "accuracy":
            jobs = [(m, s, seed) for m in reversed(memories) for s in arguments.classes_per_task for seed in seeds]
            work = partial(accurate, dataset, folder, arguments.test, options)
            rows = run_all(work, jobs, arguments, "test" if arguments.test else "held-out")
            for m in memories:
                for s in arguments.classes_per_task:
                    found = [row for row in rows if (row["M"], row["classes_per_task"]) == (m, s)]
                    accuracy, forgetting = (
                        summarize(row[name] for row in found) for name in ("accuracy", "forgetting")
                    )
                    print(f"| {dataset} | M = {m} | {s} per task | {accuracy} | forgetting {forgetting} |")
        case "orders":
            jobs = [(m, order) for m in memories for order in range(1, arguments.orders + 1)]
            rows = run_all(partial(ordered, dataset, folder, options), jobs, arguments, "orders")
            for m in memories:
                found = [row["accuracy"] for row in rows if row["M"] == m]
                print(f"M = {m}: {len(found)} orders, {min(found)} to {max(found)}: {max(found) - min(found):.2f}")
        case "ablation":
            jobs = [(m, removed, seed) for m in memories for removed in ABLATIONS for seed in seeds]
            rows = run_all(partial(ablated, dataset, folder), jobs, arguments, "ablation")
            for m in memories:
                print(f"| removed ({dataset}, M = {m}) | features | accuracy | cost in points |\n|---|---|---|---|")
                of = {
                    removed: [row for row in rows if (row["M"], row["removed"]) == (m, removed)]
                    for removed in ABLATIONS
                }
                accuracy = {removed: summarize(row["accuracy"] for row in found) for removed, found in of.items()}
                complete = accuracy["nothing"]
                for removed, reached in accuracy.items():
                    if complete and reached:
                        cost = complete.mean - reached.mean
                        print(f"| {removed} | {of[removed][0]['features']} | {reached} | {cost:.1f} |")


if __name__ == "__main__":
    main()
