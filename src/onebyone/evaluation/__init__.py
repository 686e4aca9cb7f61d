"""How good it is, and what it costs."""

from onebyone.evaluation.cost import Cost, measure_cost
from onebyone.evaluation.examine import right_answers
from onebyone.evaluation.metrics import Metrics, metrics
from onebyone.evaluation.prequential import Prequential, evaluate_stream
from onebyone.evaluation.result import Result

__all__ = ["Cost", "Metrics", "Prequential", "Result", "evaluate_stream", "measure_cost", "metrics", "right_answers"]
