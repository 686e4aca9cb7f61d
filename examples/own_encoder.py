"""Your own encoder: a module from samples to features.

It is first trained, and then frozen.
"""

import torch
from torch import nn

from onebyone import OnlineClassifier, load

data = load("digits")
torch.manual_seed(0)  # the initial weights of the encoder
encoder = nn.Sequential(
    nn.Conv2d(1, 64, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.ReLU(),
    nn.AvgPool2d(2),  # [n, 64, 4, 4], which is flattened
)


def accuracy(clf: OnlineClassifier) -> float:
    """Per cent right, after one class at a time."""
    for label in range(10):
        x = data.train_x[data.train_y == label]
        clf.partial_fit(x, [label] * len(x))
    return 100 * clf.score(data.test_x, data.test_y)


for freeze in (False, True):
    clf = OnlineClassifier(
        "er-ace",
        memory=200,
        encoder=encoder,
        freeze_encoder=freeze,
    )
    name = "frozen" if freeze else "trained"
    print(f"er-ace, {name}: {accuracy(clf):.1f} %")

# Without the name of a method: statistics of the features.
clf = OnlineClassifier(
    memory="1MB",
    encoder=encoder,
    freeze_encoder=True,
)
percent = accuracy(clf)
print(f"{clf.method_}, frozen: {percent:.1f} %")
