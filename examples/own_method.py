"""A method of your own: experience replay with smoothed labels.

On the command line: onebyone run --method examples/own_method.py:smooth-er
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from onebyone.methods import Encoded, ReplayOptions, register
from onebyone.methods.heads import LinearReplay
from onebyone.methods.losses import reduce
from onebyone.options import option
from onebyone.runs import RunConfig, run
from onebyone.testing import check_learner


@dataclass(frozen=True, kw_only=True)
class SmoothOptions(ReplayOptions):
    smoothing: float = option(0.1, "part of the label for all classes", low=0, high=1)


@register("smooth-er", SmoothOptions)
class SmoothER(LinearReplay[SmoothOptions]):
    """ER with smoothed labels on the incoming samples."""

    def incoming_loss(self, incoming: Encoded, *drawn: Encoded) -> Tensor:
        logits = self.logits(incoming.features)
        smooth, y = self.options.smoothing, incoming.y
        losses = F.cross_entropy(logits, y, reduction="none", label_smoothing=smooth)
        return reduce(losses, incoming.weight)


if __name__ == "__main__":
    check_learner(SmoothER)  # raises one sentence if something is wrong
    for method in ("er", "smooth-er"):
        result = run(RunConfig(method=method, classes_per_task=2))
        print(f"{method:<10} {100 * result.accuracy:.1f} %")
