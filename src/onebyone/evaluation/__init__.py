"""How good a learner is: accuracies, and the metrics computed from them."""

from onebyone.evaluation.examine import right_answers
from onebyone.evaluation.metrics import Metrics, metrics
from onebyone.evaluation.prequential import Prequential, evaluate_stream
from onebyone.evaluation.result import Result

__all__ = ["Metrics", "Prequential", "Result", "evaluate_stream", "metrics", "right_answers"]
