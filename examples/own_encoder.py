"""An encoder of your own: any module from samples to features, trained or frozen."""

import torch
from torch import nn

import onebyone

data = onebyone.load("digits")
torch.manual_seed(0)  # the initial weights of your module are up to you
encoder = nn.Sequential(
    nn.Conv2d(1, 64, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.ReLU(),
    nn.AvgPool2d(2),  # [n, 64, 4, 4], which is flattened
)

for freeze in (False, True):
    clf = onebyone.OnlineClassifier(
        "er-ace", memory=200, encoder=encoder, freeze_encoder=freeze
    )
    for label in range(10):
        x = data.train_x[data.train_y == label]
        clf.partial_fit(x, [label] * len(x))
    accuracy = clf.score(data.test_x, data.test_y)
    print(f"er-ace, {'frozen' if freeze else 'trained'}: {100 * accuracy:.1f} %")

# Without a method's name: statistics of the features.
clf = onebyone.OnlineClassifier(memory="1MB", encoder=encoder, freeze_encoder=True)
for label in range(10):
    x = data.train_x[data.train_y == label]
    clf.partial_fit(x, [label] * len(x))
print(f"{clf.method_}, frozen: {100 * clf.score(data.test_x, data.test_y):.1f} %")
