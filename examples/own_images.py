"""Your own photographs: one sub-folder for each class.

The first part writes such a folder from two photographs.
With images of your own, start at the second part.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from onebyone import OnlineClassifier
from onebyone.estimator.folders import learn_folder


def write_images(folder: Path, count: int, seed: int) -> None:
    """Parts of two photographs, and enlarged digits."""
    random = np.random.default_rng(seed)
    names, photos = ("temple", "flower"), load_sample_images().images
    for name, pixels in zip(names, photos, strict=True):
        photo = Image.fromarray(pixels)
        (folder / name).mkdir(parents=True)
        for number in range(count):
            low, high = (100, 0, 0), (220, 400, 200)
            side, left, top = random.integers(low, high)
            box = left, top, left + side, top + side
            part = photo.crop(box).resize(random.integers(60, 400, 2))
            part.save(folder / name / f"{number}.jpg")

    (folder / "digit").mkdir()
    first = 500 * (seed + 1)
    digits = load_digits().images[first : first + count]
    for number, pixels in enumerate(digits):
        digit = Image.fromarray((15 * pixels).astype(np.uint8))
        digit = digit.resize((200, 150))
        digit.save(folder / "digit" / f"{number}.png")


with TemporaryDirectory() as temporary:
    home = Path(temporary)
    photos, new = home / "photos", home / "new"
    write_images(photos, count=40, seed=0)
    write_images(new, count=20, seed=1)

    # Learn, and save to a file. If it runs again, it learns
    # only the images that are new in the folder.
    clf = OnlineClassifier(encoder="lite0")
    file = home / "pets.onebyone"
    learnt = learn_folder(photos, file, clf)
    count, size = len(clf.classes_), clf.nbytes / 1e6
    print(f"{learnt.files} images of {count} classes; {size:.0f} MB")
    percent = 100 * clf.report().accuracy
    print(f"estimated accuracy {percent:.0f} %")

    # Load the file, and predict new images.
    clf = OnlineClassifier.load(file)
    paths = sorted(new.rglob("*.*"))
    names = [path.parent.name for path in paths]
    percent = 100 * clf.score(paths, names)
    print(f"accuracy on new images {percent:.0f} %")

    # Learn another class, from images in memory.
    draw = partial(Image.effect_mandelbrot, (300, 200), (-2, -1, 1, 1))
    fractals = [draw(quality) for quality in range(60, 69)]
    clf.partial_fit(fractals, ["fractal"] * len(fractals))
    images = [new / "flower" / "0.jpg", draw(90)]
    print(clf.predict(images).tolist())
