"""What `patch-lda` reaches with the bytes of the paper's memories, what it costs, and whether order matters.

    python benchmarks/patch_lda.py accuracy --data-dir DIR [--dataset cifar100] [--memory 5 20 50 100] [--set patch=6]
    python benchmarks/patch_lda.py orders   --data-dir DIR [--memory 100] [--orders 10]
    python benchmarks/patch_lda.py speed    [--memory 5 20 50 100] [--threads 2]

M stands for the bytes of M images a class. Accuracies are on a held-out tenth of the training set; `--test` takes the
test set instead, for the last run, with everything chosen before. `--samples` learns from fewer, to explore.
Every accuracy is a row of results/statistics/held-out.csv (test.csv). Statistics do not depend on the size of batches,
and large ones are faster, so batches have 500 samples here.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import torch

from onebyone import Dataset, Spec, class_incremental, create, load
from onebyone.evaluation import measure_cost
from onebyone.methods.patch_lda import PatchLDA, PatchLDAOptions
from onebyone.options import parse

RESULTS = Path(__file__).parent.parent / "results" / "statistics"
BATCH = 500


def budget(memory: int, spec: Spec) -> int:
    return memory * spec.num_classes * torch.Size(spec.shape).numel()


def make(spec: Spec, memory: int, options: dict[str, str], seed: int = 0, device: str = "cpu") -> PatchLDA:
    texts = {"budget": str(budget(memory, spec)), **options}
    return PatchLDA(parse(PatchLDAOptions, texts), spec, seed, device)


def learn(data: Dataset, memory: int, arguments: argparse.Namespace, seed: int = 0) -> dict[str, Any]:
    """One class at a time, in label order for seed 0 and in a random one for others; a row of the table."""
    options = dict(text.split("=") for text in arguments.set)
    stream = class_incremental(
        data.train_y, data.num_classes, order="random" if seed else "label", batch_size=BATCH, seed=seed
    )
    keep = (arguments.samples or len(data.train_y)) / len(data.train_y)
    learner = make(data.spec, memory, options, seed, arguments.device)
    started = time.perf_counter()
    for task in stream.tasks:
        for index in task.indices[: round(keep * len(task.indices))].split(BATCH):
            learner.observe(data.train_x[index], data.train_y[index])
    seconds = time.perf_counter() - started
    right = learner.predict(data.test_x) == data.test_y
    row = {
        "dataset": data.name,
        "first_class": stream.tasks[0].classes[0],
        "seed": seed,
        "samples": int(learner.counts.sum()),
        "M": memory,
        "bytes": learner.memory_bytes,
        "features": learner.extractor.width,
        "filters": len(learner.extractor.filters),
        "options": " ".join(arguments.set),
        "accuracy": round(100 * right.double().mean().item(), 2),
        "seconds": round(seconds, 1),
    }
    print("  ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
    note(row, "test" if arguments.test else "held-out")
    return row


def note(row: dict[str, Any], name: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.csv"
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def speed(memory: int, arguments: argparse.Namespace) -> None:
    """CIFAR-10's shapes, filled with noise: time does not depend on what is seen."""
    spec = Spec((3, 32, 32), 10)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (BATCH, *spec.shape), dtype=torch.uint8, generator=generator)
    y = torch.randint(10, (BATCH,), generator=generator)
    learner = make(spec, memory, dict(text.split("=") for text in arguments.set))
    learner.observe(x, y)
    times, busy, begun = [], time.process_time(), time.perf_counter()
    for _ in range(arguments.rounds):
        started = time.perf_counter()
        learner.observe(x, y)
        times.append(time.perf_counter() - started)
    got = (time.process_time() - busy) / (time.perf_counter() - begun) / torch.get_num_threads()
    started = time.perf_counter()
    learner.solve()
    solved = time.perf_counter() - started
    own, er = measure_cost(learner, BATCH).flops, measure_cost(create("er", spec)).flops
    print(
        f"M = {memory:3}: {learner.extractor.width} features, at best {BATCH / min(times):,.0f} images a second "
        f"({got:.0%} of the CPU asked for), solving {1000 * solved:.0f} ms, {own / 1e6:.0f} MFLOP a sample, "
        f"{own / er:.1%} of ER's"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "orders", "speed"])
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--memory", type=int, nargs="+", default=[5, 20, 50, 100], metavar="M")
    parser.add_argument("--samples", type=int, help="learn from so many only")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="options of patch-lda")
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="of accuracy and orders; speed is that of the CPU")
    parser.add_argument("--test", action="store_true", help="examine on the test set: once, at the end")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.what == "speed":
        for memory in arguments.memory:
            speed(memory, arguments)
        return
    data = load(arguments.dataset, arguments.data_dir)
    data = (data if arguments.test else data.held_out()).to(arguments.device)
    for memory in arguments.memory:
        if arguments.what == "accuracy":
            learn(data, memory, arguments)
        else:
            found = [learn(data, memory, arguments, seed)["accuracy"] for seed in range(1, arguments.orders + 1)]
            print(
                f"M = {memory}: {len(found)} class orders, {min(found)} to {max(found)}: {max(found) - min(found):.2f}"
            )


if __name__ == "__main__":
    main()
