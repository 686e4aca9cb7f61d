"""From image files to a classifier, on a CPU: the frozen encoder alone, and all that `onebyone learn` does.

    python benchmarks/photos.py encoder [--threads 1 2]      ways to run lite0: torch, bfloat16, compiled, ONNX Runtime
    python benchmarks/photos.py files [--images 256]         files of 32, 224 and 4000x3000 pixels, and the ratio
    python benchmarks/photos.py memory [--images 60]         peak memory of learning a folder of 12-megapixel files

Alternatives are measured in turn in one process, so that other load on the machine meets all of them, and medians are
printed. CPU time is that of all threads, in milliseconds per image.

`files` prints where the CPU time of learning goes: a checksum of each file, by which no file is learnt twice; decoding,
at a reduced size if the file is a large JPEG; resizing and stacking; the encoder; and the rest, which is the statistics
and the saved file. No order of these stages can be faster than all cores busy with them, so the ratio of the encoder's
time to the sum of the first four bounds the ratio of rates.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from onebyone import OnlineClassifier, nets
from onebyone.data.images import DRAFT
from onebyone.data.loading import load_batches
from onebyone.estimator.folders import BATCH, LabelledFile, contents_key, learn_files
from onebyone.estimator.known_files import KnownFiles
from onebyone.nets.lite0 import Lite0

SIZES = {"32x32": (32, 32), "224x224": (224, 224), "4000x3000": (4000, 3000)}
Work = Callable[[], object]


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rounds_of(ways: dict[str, Work], images: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds per image of each way in each round: of the clock, and of the CPU."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, work in ways.items():
            clock, cpu = time.perf_counter(), cpu_seconds()
            work()
            if number:  # the first round allocates and compiles
                scale = 1000 / images
                spent[name].append((scale * (time.perf_counter() - clock), scale * (cpu_seconds() - cpu)))
    return spent


def medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return median(clock for clock, _ in pairs), median(cpu for _, cpu in pairs)


def folded(network: nn.Module) -> nn.Module:
    """A copy of lite0's network without BatchNorm, which is part of the convolutions."""
    network = deepcopy(network)
    for part in [network, *network._blocks]:
        for layer, norm in {
            "_conv_stem": "_bn0",
            "_conv_head": "_bn1",
            "_expand_conv": "_bn0",
            "_depthwise_conv": "_bn1",
            "_project_conv": "_bn2",
        }.items():
            if hasattr(part, layer):
                setattr(part, layer, fuse_conv_bn_eval(getattr(part, layer), getattr(part, norm)))
                setattr(part, norm, nn.Identity())
    return network


@torch.no_grad()
def measure_encoder(batches: Sequence[int], compiled: bool) -> None:
    lite0 = Lite0().eval().requires_grad_(False)
    torch_network = lite0.network
    last = folded(torch_network).to(memory_format=torch.channels_last)
    brain = deepcopy(last).bfloat16()
    fast = torch.compile(deepcopy(last)) if compiled else None
    print(f"{torch.get_num_threads()} threads, milliseconds per image: clock (CPU)")
    for count in batches:
        x = torch.randn(count, 3, 224, 224)
        y = x.contiguous(memory_format=torch.channels_last)
        z = y.bfloat16()
        ways: dict[str, Work] = {
            "torch": lambda x=x: torch_network(x),
            "torch, channels last, BatchNorm folded": lambda y=y: last(y),
            "the same in bfloat16": lambda z=z: brain(z),
            "ONNX Runtime (in use)": lambda x=x: lite0(x),
        }
        if fast is not None:
            ways["compiled, channels last, BatchNorm folded"] = lambda y=y: fast(y)
        for name, pairs in rounds_of(ways, count, rounds=max(3, 15 // count)).items():
            clock, cpu = medians(pairs)
            print(f"  batch {count:3}  {name:<42} {clock:7.1f} ({cpu:.1f})", flush=True)


def photographs(folder: Path, width: int, height: int, count: int) -> list[Path]:
    """Write ``count`` JPEG files of different contents: parts of two real photographs, with some noise of a camera."""
    random = np.random.default_rng(0)
    scenes = [Image.fromarray(image) for image in load_sample_images().images]
    paths = [folder / f"{width}-{number}.jpg" for number in range(count)]
    distinct = min(count, 8 if width > 1000 else count)  # files of 12 megapixels take a second each
    for number, path in enumerate(paths):
        if number >= distinct:
            path.write_bytes(paths[number % distinct].read_bytes() + bytes([number // 256, number % 256]))
            continue
        left, top = random.integers(0, 200), random.integers(0, 100)
        part = scenes[number % 2].resize((width, height), Image.Resampling.BICUBIC, (left, top, left + 400, top + 300))
        noise = random.normal(0, 3, (height, width, 1))
        Image.fromarray((np.asarray(part) + noise).clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return paths


def decode(path: Path, size: tuple[int, int]) -> None:
    """Decode a file as it is done for images of this size, without resizing."""
    with Image.open(path) as image:
        image.draft(None, (math.ceil(DRAFT * size[1]), math.ceil(DRAFT * size[0])))
        image.load()


def print_stages(found: dict[str, list[tuple[float, float]]]) -> None:
    """Print the CPU time of every stage of learning, and the ratio that follows from it."""
    cpu = {way: medians(spent)[1] for way, spent in found.items()}
    stages = {
        "checksum": cpu["checksums"],
        "decoding": cpu["decoding"],
        "resizing": max(cpu["reading"] - cpu["decoding"], 0.0),
        "encoder": cpu["encoder"],
    }
    known = sum(stages.values())
    stages["rest"] = max(cpu["learn"] - known, 0.0)
    parts = ", ".join(f"{stage} {spent:.1f}" for stage, spent in stages.items())
    print(f"             CPU ms per image: {parts}; ratio at most {cpu['encoder'] / known:.2f}", flush=True)


@torch.no_grad()
def measure_files(images: int, batch_size: int, rounds: int) -> None:
    """What `onebyone learn` does with files, beside the bare encoder on the same decoded batches."""
    encoder = nets.Adapted(Lite0(), (3, 224, 224), frozen=True).eval()
    size = nets.image_size(encoder)
    assert size is not None
    print(f"{torch.get_num_threads()} threads, {images} files; images per second by the clock (CPU ms per image)")
    for name, (width, height) in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "photos" / "class").mkdir(parents=True)
            paths = photographs(Path(folder) / "photos" / "class", width, height, images)
            files = [LabelledFile(path, number % 10) for number, path in enumerate(paths)]
            decoded = [batch.images for batch in load_batches(paths, size, batch_size=batch_size)]
            clf = OnlineClassifier(encoder="lite0", memory="32MB", batch_size=64)
            learn_files(clf, files[:1])

            def alone(decoded: list[Tensor] = decoded) -> None:
                for x in decoded:
                    encoder(x * (2 / 255) - 1)  # as learners scale bytes

            def reading(paths: list[Path] = paths) -> None:
                for _ in load_batches(paths, size, batch_size=batch_size, interpolation="bilinear"):
                    pass

            def learning(clf: OnlineClassifier = clf, files: list[LabelledFile] = files, folder: str = folder) -> None:
                clf._state = replace(clf._fitted(), files=KnownFiles())  # so that the files are learnt again
                assert learn_files(clf, files).files == len(files)
                clf.save(Path(folder) / "model")

            ways: dict[str, Work] = {
                "checksums": lambda paths=paths: [contents_key(path) for path in paths],
                "decoding": lambda paths=paths: [decode(path, size) for path in paths],
                "reading": reading,
                "encoder": alone,
                "learn": learning,
            }
            found = rounds_of(ways, images, rounds)
        pairs = list(zip(found["encoder"], found["learn"], strict=True))
        ratios = [median(bare[column] / whole[column] for bare, whole in pairs) for column in (0, 1)]
        times = {way: medians(spent) for way, spent in found.items()}
        shown = ("encoder", "reading", "learn")
        parts = ", ".join(f"{way} {1000 / times[way][0]:.1f} ({times[way][1]:.1f})" for way in shown)
        load = os.getloadavg()[0]
        print(f"  {name:<10} {parts}; ratio {ratios[0]:.2f} ({ratios[1]:.2f}); load average {load:.1f}", flush=True)
        print_stages(found)


def peak_bytes(folder: str, count: int) -> None:
    """Print the peak memory of this process after it has learnt ``count`` files of a folder."""
    paths = sorted(Path(folder).iterdir())[:count]
    clf = OnlineClassifier(encoder="lite0", memory="32MB", batch_size=64)
    learn_files(clf, [LabelledFile(path, number % 10) for number, path in enumerate(paths)])
    # ru_maxrss would include the memory of the process that started this one.
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) * 1024)


def measure_memory(images: int) -> None:
    for suffix in ("jpg", "png"):
        with tempfile.TemporaryDirectory() as folder:
            paths = photographs(Path(folder), *SIZES["4000x3000"], images)
            if suffix == "png":
                with Image.open(paths[0]) as image:
                    image.save(paths[0].with_suffix(".png"), compress_level=1)
                data = paths[0].with_suffix(".png").read_bytes()
                for number, path in enumerate(paths):
                    path.unlink()
                    path.with_suffix(".png").write_bytes(data + bytes([number]))
            peaks = [
                int(subprocess.check_output([sys.executable, __file__, "peak", folder, str(count)]))
                for count in (1, images)
            ]
        print(
            f"{images} {suffix} files of 4000x3000: peak {peaks[1] / 1e6:.0f} MB, with one file {peaks[0] / 1e6:.0f} MB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["encoder", "files", "memory", "peak"])
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count() or 1])
    parser.add_argument("--images", type=int)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="measure torch.compile too, which needs a C++ compiler")
    words = parser.parse_args()
    if words.what == "peak":
        peak_bytes(words.rest[0], int(words.rest[1]))
    elif words.what == "memory":
        measure_memory(words.images or 60)
    else:
        for threads in words.threads:
            torch.set_num_threads(threads)
            if words.what == "encoder":
                measure_encoder(words.batches, words.compile)
            else:
                measure_files(words.images or 256, words.batch_size, words.rounds)


if __name__ == "__main__":
    main()
