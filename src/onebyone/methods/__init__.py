"""One file = one method = one page of the paper. Importing them registers them, in the order of the paper's tables."""

from onebyone.methods import finetune  # noqa: F401, I001
from onebyone.methods import iid  # noqa: F401
from onebyone.methods import er  # noqa: F401
from onebyone.methods import icarl  # noqa: F401
from onebyone.methods import mir  # noqa: F401
from onebyone.methods import derpp  # noqa: F401
from onebyone.methods import er_aml  # noqa: F401
from onebyone.methods import er_ace  # noqa: F401
from onebyone.methods import supbyol  # noqa: F401
from onebyone.methods import ccp  # noqa: F401
from onebyone.methods import replay  # noqa: F401
from onebyone.methods.learner import Learner, LeftOut
from onebyone.methods.network import NetworkLearner
from onebyone.methods.options import BudgetOptions, Options, ReplayOptions
from onebyone.methods.replay_learner import Encoded, ReplayLearner
from onebyone.methods.choice import AUTO, auto_budget, choose
from onebyone.methods.growth import grown
from onebyone.methods.heads import CosineOptions, CosineReplay, LinearReplay
from onebyone.methods.registry import create, find, method, methods, register
from onebyone.registry import import_source as load

__all__ = [
    "AUTO",
    "BudgetOptions",
    "CosineOptions",
    "CosineReplay",
    "Encoded",
    "Learner",
    "LeftOut",
    "LinearReplay",
    "NetworkLearner",
    "Options",
    "ReplayLearner",
    "ReplayOptions",
    "auto_budget",
    "choose",
    "create",
    "find",
    "grown",
    "load",
    "method",
    "methods",
    "register",
]
