"""A method of your own: ER with smoothed labels.

onebyone run --method examples/own_method.py:smooth-er
"""

from dataclasses import dataclass, replace
from statistics import fmean

import torch.nn.functional as F
from torch import Tensor

from onebyone.methods import Encoded, ReplayOptions, register
from onebyone.methods.heads import LinearReplay
from onebyone.methods.losses import reduce
from onebyone.options import option
from onebyone.runs import RunConfig, run
from onebyone.testing import check_learner

SMOOTHING = "part of the label for all classes"


@dataclass(frozen=True, kw_only=True)
class SmoothOptions(ReplayOptions):
    smoothing: float = option(0.1, SMOOTHING, low=0, high=1)


@register("smooth-er", SmoothOptions)
class SmoothER(LinearReplay[SmoothOptions]):
    """ER with smoothed labels on the incoming samples."""

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        losses = F.cross_entropy(
            self.logits(incoming.features),
            incoming.y,
            reduction="none",
            label_smoothing=self.options.smoothing,
        )
        return reduce(losses, incoming.weight)


if __name__ == "__main__":
    check_learner(SmoothER)  # an error if a check fails
    config = RunConfig(classes_per_task=2)
    for name in ("er", "smooth-er"):
        runs = [replace(config, method=name, seed=s) for s in range(3)]
        accuracy = fmean(run(each).accuracy for each in runs)
        print(f"{name:<10} {100 * accuracy:.1f} %")
