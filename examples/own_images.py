"""Your own photographs: one sub-folder per class, and a pretrained encoder.

The first part writes such a folder from two real photographs. With images of your own,
start at the second part.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from onebyone import OnlineClassifier
from onebyone.estimator.folders import learn_folder


def write_images(folder: Path, count: int, seed: int) -> None:
    """Parts of photographs of a temple and a flower, and enlarged digits."""
    random = np.random.default_rng(seed)
    for name, pixels in zip(
        ("temple", "flower"), load_sample_images().images, strict=True
    ):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            side, left, top = random.integers((100, 0, 0), (220, 400, 200))
            part = Image.fromarray(pixels).crop((left, top, left + side, top + side))
            part.resize(random.integers(60, 400, 2)).save(
                folder / name / f"{number}.jpg"
            )
    digits = load_digits().images
    (folder / "digit").mkdir()
    for number in range(count):
        digit = Image.fromarray(
            (15 * digits[(seed + 1) * 500 + number]).astype(np.uint8)
        )
        digit.resize((200, 150)).save(folder / "digit" / f"{number}.png")


with TemporaryDirectory() as temporary:
    home = Path(temporary)
    write_images(home / "photos", count=40, seed=0)
    write_images(home / "new", count=20, seed=1)

    # Learn, and save to a file. Run again, it learns only what is new in the folder.
    clf = OnlineClassifier(encoder="lite0")
    learnt = learn_folder(home / "photos", home / "pets.onebyone", clf)
    size = f"{clf.nbytes / 1e6:.0f} MB"
    print(f"{learnt.files} images of {len(clf.classes_)} classes learnt; {size}")
    print(f"stated accuracy {100 * clf.report().accuracy:.0f} %")

    # Load, predict new images, and go on with more.
    clf = OnlineClassifier.load(home / "pets.onebyone")
    paths = sorted((home / "new").rglob("*.*"))
    names = [path.parent.name for path in paths]
    print(f"accuracy on new images {100 * clf.score(paths, names):.0f} %")
    area = (-2, -1, 1, 1)
    fractals = [Image.effect_mandelbrot((300, 200), area, 60 + i) for i in range(9)]
    clf.partial_fit(fractals, ["fractal"] * 9)
    new = [
        home / "new" / "flower" / "0.jpg",
        Image.effect_mandelbrot((90, 90), area, 90),
    ]
    print(clf.predict(new).tolist())
