"""Your own pictures: a folder with one sub-folder a class, learnt one class after the other, then a result.

The first part only makes such a folder; with pictures of your own you begin at the second.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

import onebyone
from onebyone.runs import RunConfig, run


def make_pictures(folder: Path) -> None:
    """Two hundred pictures of lying bars and two hundred of standing ones, each somewhere else in the noise."""
    random = np.random.default_rng(0)
    for name in ("lying", "standing"):
        (folder / name).mkdir()
        for number in range(200):
            picture = random.integers(0, 100, (40, 40), dtype=np.uint8)
            start = random.integers(0, 32)
            picture[start : start + 8] += 100
            Image.fromarray(picture if name == "lying" else picture.T).save(folder / name / f"{number}.png")


with TemporaryDirectory() as folder:
    make_pictures(Path(folder))
    data = onebyone.from_folder(folder, size=16)  # a fifth of each class becomes the test set

result = run(RunConfig(method="ccp", memory_per_class=10), data=data)
print(f"{data.classes}: accuracy {100 * result.accuracy:.1f} %, forgetting {100 * (result.forgetting or 0):.1f} %")
