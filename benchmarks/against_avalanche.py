"""A step of ER here against the same step in Avalanche 0.6.0, on the same networks, both measured in one run.

The work: 10 incoming and 10 replayed samples, a reservoir of 200 samples (20 for each of 10 classes) written after the
step, plain SGD, the same number of threads, no augmentation. Avalanche is measured in three ways, all with a
class-incremental benchmark cut by ``split_online_stream`` into experiences of 10 samples, ``Naive``, ``ReplayPlugin``
and ``ReservoirSamplingBuffer``:

- ``as in its example``: as examples/online_replay.py of its repository does it. Images go through ``ToTensor`` and
  ``Normalize``, accuracy and loss of every batch are recorded, and ``train`` gets the complete stream. There is less
  work than in the example: no random crop, SGD instead of Adam, and a logger without a progress bar or output.
- ``one call per step``: the same, with one call of ``train`` per experience, as is needed for live data.
- ``optimized``: everything that makes it faster. Samples are float tensors, there are no metrics, ``train`` gets
  the complete stream with task boundaries (without them it checks the optimizer at every experience), and the memory
  is updated by ``post_adapt`` (the method that its plugin calls gives a deprecation warning at every step).

What is compared: Avalanche passes incoming and replayed samples through the network together; so does ``onebyone,
joint pass``. ``onebyone`` is the default, two passes, as in the paper: more work. Channels-last memory is the default
here and one line more in Avalanche, so the optimized one is shown with and without it. ``network alone`` is forward,
backward and SGD on 20 constant samples: a lower bound for every library with this network.

Avalanche has its own virtual environment, created on first use. torchvision, which it imports, has no release
for the CPU build of torch. Its Python part works once the two operators that it describes on import are
declared (``import_torchvision``). One process per side does blocks of steps on demand. Blocks alternate, so
that only one side works at a time and a busy machine slows all of them equally. Ratios are medians over the rounds.

One thread per side by default: with more, a core that another program uses delays every parallel region. The
fraction of the requested CPU time that was available is printed; if it is far below 100 %, the times are not reliable.

    python benchmarks/against_avalanche.py [--networks conv resnet18 mlp] [--rounds 9] [--threads 1] [--venv FOLDER]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onebyone import Spec, create, nets

CLASSES, CAPACITY, BATCH, SAMPLES = 10, 200, 10, 4000
SHAPES = {"conv": (1, 8, 8), "resnet18": (3, 32, 32), "mlp": (64,)}
STEPS = {"conv": 40, "resnet18": 5, "mlp": 60}  # in a block
WARM_UP = 25  # steps; 20 of them fill the memory
PACKAGES = ["torch==2.13.0", "torchvision==0.28.0", "avalanche-lib==0.6.0"]

Steps = Callable[[int], None]  # does that many steps


def classifier(network: str) -> nn.Sequential:
    torch.manual_seed(0)
    encoder = nets.create(network, SHAPES[network])
    return nn.Sequential(encoder, nn.Linear(encoder.width, CLASSES))


def samples(network: str) -> tuple[Tensor, Tensor]:
    """Random bytes, class after class."""
    x = torch.randint(0, 256, (SAMPLES, *SHAPES[network]), dtype=torch.uint8)
    return x, torch.arange(CLASSES).repeat_interleave(SAMPLES // CLASSES)


def network_alone(network: str) -> Steps:
    model = classifier(network)
    x = torch.randn(2 * BATCH, *SHAPES[network])
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    y = torch.arange(2 * BATCH) % CLASSES
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    return steps


def onebyone(network: str, **options: object) -> Steps:
    spec = Spec(shape=SHAPES[network], num_classes=CLASSES)
    options = {"encoder": network, "augment": False, "memory_per_class": CAPACITY // CLASSES, **options}
    learner = create("er", spec, **options)
    x, y = samples(network)

    def batches() -> Iterator[Tensor]:
        while True:
            yield from torch.arange(SAMPLES).split(BATCH)

    stream = batches()

    def steps(count: int) -> None:
        for index in islice(stream, count):
            learner.observe(x[index], y[index])

    return steps


def import_torchvision() -> list[torch.library.Library]:
    """Import torchvision with a torch it was not built for; keep a reference to what is returned."""
    declared = []
    try:
        import torchvision
    except RuntimeError:  # "operator torchvision::nms does not exist"
        operators = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        declared.append(operators)
        import torchvision  # noqa: F401
    return declared


def images(network: str) -> Any:
    """The same samples as pictures, made into tensors one by one as torchvision's data sets do."""
    from PIL import Image
    from torch.utils.data import Dataset
    from torchvision import transforms

    x, y = samples(network)
    pictures = (x if x.dim() == 4 else x.reshape(-1, 1, 8, 8)).permute(0, 2, 3, 1).squeeze(-1).numpy()
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.5, 0.5)])

    class Pictures(Dataset):  # type: ignore[type-arg]
        targets = y.tolist()

        def __len__(self) -> int:
            return len(pictures)

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return transform(Image.fromarray(pictures[index])).reshape(SHAPES[network]), self.targets[index]

    return Pictures()


def avalanche_example(network: str, call_per_step: bool = False) -> Steps:
    declared = import_torchvision()
    from avalanche.benchmarks.scenarios.online import split_online_stream
    from avalanche.benchmarks.scenarios.supervised import class_incremental_benchmark
    from avalanche.evaluation.metrics import accuracy_metrics, forgetting_metrics, loss_metrics
    from avalanche.logging import TextLogger
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer
    from avalanche.training.supervised import Naive

    model = classifier(network)
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115  (as long as the process)
    benchmark = class_incremental_benchmark({"train": images(network)}, num_experiences=CLASSES)
    often = {"minibatch": True, "epoch": True, "experience": True, "stream": True}
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        train_mb_size=BATCH,
        evaluator=EvaluationPlugin(
            accuracy_metrics(**often),
            loss_metrics(**often),
            forgetting_metrics(experience=True),
            loggers=[TextLogger(nowhere)],
        ),
        plugins=[ReplayPlugin(CAPACITY, batch_size=BATCH, storage_policy=ReservoirSamplingBuffer(CAPACITY))],
    )

    def experiences() -> Iterator[Any]:
        while declared is not None:
            yield from split_online_stream(benchmark.train_stream, BATCH)

    stream = experiences()

    def steps(count: int) -> None:
        some = list(islice(stream, count))
        with redirect_stderr(nowhere):
            for part in [[experience] for experience in some] if call_per_step else [some]:
                strategy.train(part)

    return steps


def avalanche_optimized(network: str, channels_last: bool = False) -> Steps:
    declared = import_torchvision()
    from avalanche.benchmarks.scenarios.online import split_online_stream
    from avalanche.benchmarks.scenarios.supervised import class_incremental_benchmark
    from avalanche.benchmarks.utils import AvalancheDataset
    from avalanche.benchmarks.utils.data_attribute import DataAttribute
    from avalanche.training.plugins import ReplayPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer
    from avalanche.training.supervised import Naive
    from torch.utils.data import TensorDataset

    class Replay(ReplayPlugin):  # type: ignore[misc]
        def after_training_exp(self, strategy: Any, **_: Any) -> None:
            self.storage_policy.post_adapt(strategy, strategy.experience)

    model = classifier(network)
    if channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, y = samples(network)
    data = TensorDataset(x.float() / 127.5 - 1, y)
    data = AvalancheDataset([data], data_attributes=[DataAttribute(y.tolist(), "targets")])
    benchmark = class_incremental_benchmark({"train": data}, num_experiences=CLASSES)
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, foreach=True),
        train_mb_size=BATCH,
        evaluator=None,
        plugins=[
            Replay(CAPACITY, batch_size=BATCH, batch_size_mem=BATCH, storage_policy=ReservoirSamplingBuffer(CAPACITY))
        ],
    )

    def experiences() -> Iterator[Any]:
        while declared is not None:
            yield from split_online_stream(benchmark.train_stream, BATCH, access_task_boundaries=True)

    stream = experiences()

    def steps(count: int) -> None:
        strategy.train(list(islice(stream, count)), eval_streams=[])

    return steps


SIDES: dict[str, tuple[str, Callable[[str], Steps]]] = {  # name -> its process, and how it is made there
    "Avalanche, as in its example": ("avalanche", avalanche_example),
    "Avalanche, one call per step": ("avalanche", lambda network: avalanche_example(network, call_per_step=True)),
    "Avalanche, optimized": ("avalanche", avalanche_optimized),
    "Avalanche, optimized, channels-last": (
        "avalanche",
        lambda network: avalanche_optimized(network, channels_last=True),
    ),
    "onebyone": ("onebyone", onebyone),
    "onebyone, joint pass": ("onebyone", lambda network: onebyone(network, passes="joint")),
    "network alone": ("onebyone", network_alone),
}


def work(threads: int) -> None:
    """A worker: reads ``network|side|steps`` from a line, does the block, answers with its seconds and CPU seconds."""
    torch.set_num_threads(threads)
    answers, sys.stdout = sys.stdout, sys.stderr
    made: dict[tuple[str, str], Steps] = {}
    for line in sys.stdin:
        network, side, count = line.strip().split("|")
        if (network, side) not in made:
            made[network, side] = SIDES[side][1](network)
        started, busy = time.perf_counter(), time.process_time()
        made[network, side](int(count))
        print(time.perf_counter() - started, time.process_time() - busy, file=answers, flush=True)


class Worker:
    def __init__(self, python: str, threads: int) -> None:
        source = Path(__file__).resolve().parents[1] / "src"
        self.process = subprocess.Popen(
            [python, __file__, "--threads", str(threads), "--work"],
            env={**os.environ, "PYTHONPATH": str(source), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def block(self, network: str, side: str, count: int) -> tuple[float, float]:
        """Seconds per step, and CPU seconds per step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{network}|{side}|{count}\n")
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the worker of {side!r} ended; what it said is above")
        seconds, busy = answer.split()
        return float(seconds) / count, float(busy) / count


def install(folder: Path) -> str:
    """The Python of Avalanche's environment, which is created on first use."""
    python = folder / "bin" / "python"
    check = "from importlib.metadata import version; print(version('avalanche-lib'))"
    if python.exists() and subprocess.run([python, "-c", check], capture_output=True).returncode == 0:
        return str(python)
    print(f"installing {', '.join(PACKAGES)} into {folder}", flush=True)
    venv.create(folder, with_pip=True)
    # In one command with torch pinned, so that no package installs another torch with GPU libraries.
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return str(python)


def measure(workers: dict[str, Worker], network: str, rounds: int, threads: int) -> None:
    shares: dict[str, list[float]] = {side: [] for side in SIDES}
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for side, (process, _) in SIDES.items():
        workers[process].block(network, side, WARM_UP)
    for _ in range(rounds):
        for side, (process, _) in SIDES.items():
            seconds, busy = workers[process].block(network, side, STEPS[network])
            times[side].append(seconds)
            shares[side].append(busy / seconds / threads)
    references = {side: taken for side, taken in times.items() if side.startswith("Avalanche")}
    print(f"\n{network}, {'x'.join(map(str, SHAPES[network]))}: how many times as fast as Avalanche")
    titles = ["ms per step", "above network", *(side.removeprefix("Avalanche, ") for side in references), "CPU got"]
    print(f"  {'':<37}" + "".join(f"{title:>{len(title) + 3}}" for title in titles))
    for side, taken in times.items():
        above = 1000 * median(own - alone for own, alone in zip(taken, times["network alone"], strict=True))
        ratios = [
            median(theirs / own for theirs, own in zip(other, taken, strict=True)) for other in references.values()
        ]
        cells = [f"{1000 * median(taken):.2f}", f"{above:.2f}", *(f"{ratio:.2f}x" for ratio in ratios)]
        cells.append(f"{median(shares[side]):.0%}")
        print(f"  {side:<37}" + "".join(f"{cell:>{len(title) + 3}}" for cell, title in zip(cells, titles, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--networks", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--venv", type=Path, default=Path.home() / ".cache" / "onebyone" / "avalanche")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.work:
        work(settings.threads)
        return
    theirs = Worker(install(settings.venv), settings.threads)
    workers = {"avalanche": theirs, "onebyone": Worker(sys.executable, settings.threads)}
    try:
        print(f"ER, {BATCH} + {BATCH} samples per step, memory of {CAPACITY}, CPU, {settings.threads} threads")
        for network in settings.networks:
            measure(workers, network, settings.rounds, settings.threads)
    finally:
        for worker in workers.values():
            worker.process.terminate()
            worker.process.wait()


if __name__ == "__main__":
    main()
