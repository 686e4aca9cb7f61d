"""Load on `onebyone serve`: predictions with and without learners, as a ratio to bare calls of predict.

    python benchmarks/serve.py --seconds 60

Starts a server on the loopback, teaches it, and measures 16 clients that predict, alone and beside 4 that learn. Images
are 32x32 PNG, the method is patch-lda. Prints requests per second, p50 and p99 of the time to an answer, memory of the
server, and the rate of OnlineClassifier.predict on the same images in batches of 16.
"""

from __future__ import annotations

import argparse
import http.client
import io
import multiprocessing
import queue
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

CLASSES, LEARNERS, PREDICTORS = 4, 4, 16
BASES = np.random.default_rng(0).integers(0, 255, (CLASSES, 32, 32, 3))


def image(random: np.random.Generator, label: int) -> Any:
    noise = random.integers(0, 255, (32, 32, 3))
    return (0.5 * BASES[label] + 0.5 * noise).astype(np.uint8)


def form(random: np.random.Generator, learn: bool) -> tuple[bytes, dict[str, str]]:
    label, content = int(random.integers(CLASSES)), io.BytesIO()
    Image.fromarray(image(random, label)).save(content, "PNG")
    parts = [(b"image", content.getvalue())] + ([(b"label", b"class %d" % label)] if learn else [])
    body = b"".join(b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % part for part in parts)
    return body + b"--x--\r\n", {"Content-Type": "multipart/form-data; boundary=x"}


def client(address: str, learn: bool, seed: int, seconds: float, results: Any) -> None:
    """One client, in a thread of a process of clients: requests one after the other."""
    random = np.random.default_rng(seed)
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    bodies = [form(random, learn) for _ in range(40)]
    times, refused, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        body, headers = bodies[len(times) % len(bodies)]
        started = time.perf_counter()
        connection.request("POST", "/v1/learn" if learn else "/v1/predict", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 503:
            refused += 1
            time.sleep(0.1)
            continue
        assert answer.status == 200, answer.status
        times.append(time.perf_counter() - started)
    results.append((learn, times, refused))


def clients(address: str, learners: int, predictors: int, seconds: float, answers: Any) -> None:
    import threading

    results: list[Any] = []
    kinds = [True] * learners + [False] * predictors
    threads = [
        threading.Thread(target=client, args=(address, kind, number, seconds, results))
        for number, kind in enumerate(kinds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put(results)


def measure(address: str, server: int, learners: int, seconds: float) -> tuple[dict[str, float], list[float]]:
    """Rates and times, and the memory of the process ``server`` at intervals, in MB."""
    answers: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=clients, args=(address, learners, PREDICTORS, seconds, answers))
    process.start()
    memory: list[float] = []
    results = None
    while results is None:
        try:
            results = answers.get(timeout=seconds / 8)
        except queue.Empty:
            memory.append(resident(server))
    process.join()
    predicted = np.array([each for learn, times, _ in results if not learn for each in times])
    learnt = np.array([each for learn, times, _ in results if learn for each in times])
    found = {
        "predictions per second": len(predicted) / seconds,
        "p50 ms": 1000 * float(np.quantile(predicted, 0.5)),
        "p99 ms": 1000 * float(np.quantile(predicted, 0.99)),
        "learnt per second": len(learnt) / seconds,
        "refused": sum(refused for *_, refused in results),
    }
    found |= {"learn p50 ms": 1000 * float(np.quantile(learnt, 0.5))} if len(learnt) else {}
    return found, memory


def bare(seconds: float) -> float:
    """Predictions per second of a classifier in this process, in batches of 16 images, with one thread."""
    import torch

    from onebyone import OnlineClassifier

    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    y = random.integers(0, CLASSES, 200)
    clf = OnlineClassifier(memory="3MB").partial_fit(np.stack([image(random, int(each)) for each in y]), y)
    x = np.stack([image(random, 0) for _ in range(PREDICTORS)])
    clf.predict(x)
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        clf.predict_proba(x)
        count += len(x)
    return count / seconds


def teach(address: str) -> None:
    """Teach a server 40 images, and wait until it answers."""
    from onebyone.client import Client

    random, server = np.random.default_rng(2), Client(address)
    for label in range(CLASSES):
        images = []
        for _ in range(10):
            content = io.BytesIO()
            Image.fromarray(image(random, label)).save(content, "PNG")
            images.append(content.getvalue())
        server.learn(images, [f"class {label}"] * 10)
    server.predict(images)


def resident(pid: int) -> float:
    """Memory of a process in MB."""
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fsync", default="every")
    arguments = parser.parse_args()
    print(f"bare predict: {(rate := bare(5)):.0f} per second")
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "onebyone", "serve", "--state", f"{folder}/state", "--port", "0"]
        server = subprocess.Popen([*words, "--fsync", arguments.fsync], stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        server.stdout.readline()
        address = server.stdout.readline().split("teach it at ")[1].split()[0]
        try:
            teach(address)
            alone, memory = measure(address, server.pid, 0, arguments.seconds)
            show("predictors alone", alone, rate, memory)
            beside, memory = measure(address, server.pid, LEARNERS, arguments.seconds)
            show("beside learners", beside, rate, memory)
            print(f"p99 beside learners / alone: {beside['p99 ms'] / alone['p99 ms']:.2f}")
        finally:
            server.terminate()
            server.wait(60)
            server.stdout.close()


def show(title: str, found: dict[str, float], rate: float, memory: list[float]) -> None:
    values = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
    print(f"{title}: {values}; {found['predictions per second'] / rate:.2f} of bare predict")
    print(f"  memory in MB, at intervals: {' '.join(f'{each:.0f}' for each in memory)}", flush=True)


if __name__ == "__main__":
    main()
