"""Which method ``auto`` chooses."""

from __future__ import annotations

import torch

from onebyone.data import Spec
from onebyone.errors import UsageError
from onebyone.methods.registry import create

AUTO = "auto"
# Bytes of statistics beyond which a step of ten samples takes longer than one of a network on a CPU. Vectors need no
# filter responses, which are most of the work with images.
MAX_IMAGE_BYTES, MAX_VECTOR_BYTES = 8_000_000, 64_000_000
# With an encoder, a step may take as long as the encoder. With lite0 this is room for its 1,280 features and 700
# projections: on CIFAR-10 and CIFAR-100 they gain 0.4 and 0.9 points, and an answer takes a second or two to prepare.
MAX_ENCODED_BYTES = 32_000_000


def choose(spec: Spec, budget: int, *, network: bool = False) -> str:
    """Choose the method for ``method="auto"``. With a pretrained encoder, ``lda`` is used instead.

    The rule is based on measurements with one class at a time (results/beyond*.csv, results/auto.csv). Statistics are
    the most accurate method on CIFAR-10 with every size of the memory, on CIFAR-100 up to 6 MB, on digits, and on
    average over eight data sets of vectors. On CIFAR-100 with more memory, ``hybrid`` is better by less than a point,
    but needs 20 times the computation. With 1 KB, which is too little for statistics, ``replay`` is slightly more
    accurate on average than CCP and ER.

    Parameters
    ----------
    spec
        Shape, type and number of classes of the data.
    budget
        Size of the memory in bytes.
    network
        Whether a network is to be trained.

    Returns
    -------
    str
        ``"patch-lda"`` if statistics fit into the budget and no network is to be trained, else ``"replay"``.

    >>> choose(Spec((3, 32, 32), 10), 1_000_000), choose(Spec((3, 32, 32), 10), 1_000_000, network=True)
    ('patch-lda', 'replay')
    >>> choose(Spec((3, 32, 32), 10), 500)
    'replay'
    """
    return "patch-lda" if not network and _fits(spec, budget) else "replay"


def auto_budget(spec: Spec, budget: int, *, encoded: bool = False) -> int:
    """The part of a ``budget`` that ``auto`` uses for statistics, ``encoded`` if they are of an encoder's features."""
    return min(budget, MAX_ENCODED_BYTES if encoded else MAX_IMAGE_BYTES if spec.is_image else MAX_VECTOR_BYTES)


def _fits(spec: Spec, budget: int) -> bool:
    try:
        with torch.device("meta"):  # shapes only
            create("patch-lda", spec, device="meta", budget=auto_budget(spec, budget))
    except UsageError:
        return False
    return True
