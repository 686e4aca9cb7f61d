"""Your own images: a folder with one sub-folder per class, learnt one class after another.

The first part writes such a folder; with images of your own, start at the second part.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

import onebyone
from onebyone.runs import RunConfig, run


def write_images(folder: Path) -> None:
    """200 images of horizontal bars and 200 of vertical bars, at random positions in noise."""
    random = np.random.default_rng(0)
    for name in ("horizontal", "vertical"):
        (folder / name).mkdir()
        for number in range(200):
            image = random.integers(0, 100, (40, 40), dtype=np.uint8)
            start = random.integers(0, 32)
            image[start : start + 8] += 100
            Image.fromarray(image if name == "horizontal" else image.T).save(folder / name / f"{number}.png")


with TemporaryDirectory() as folder:
    write_images(Path(folder))
    data = onebyone.from_folder(folder, size=16)  # a fifth of each class becomes the test set

result = run(RunConfig(method="ccp", memory_per_class=10), data=data)
print(f"{data.classes}: accuracy {100 * result.accuracy:.1f} %, forgetting {100 * (result.forgetting or 0):.1f} %")
