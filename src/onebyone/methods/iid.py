"""iid online: the upper end of every table."""

from __future__ import annotations

from onebyone.methods.finetune import FineTune
from onebyone.methods.options import Options
from onebyone.methods.registry import register


@register("iid", Options, section="tables 1 and 2, iid online")
class IID(FineTune):
    """The same network and steps as fine-tuning, on a shuffled stream of all classes: not incremental.

    The learner is that of fine-tuning. Only the stream of the run differs.
    """

    stream = "iid"
