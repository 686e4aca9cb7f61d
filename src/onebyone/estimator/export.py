"""Export of the prediction function for other programs: ONNX and torch.export."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from onebyone.errors import UsageError
from onebyone.estimator.labels import to_json
from onebyone.estimator.predictor import Predictor
from onebyone.files import atomic_write
from onebyone.methods import NetworkLearner
from onebyone.nets import Encoder

# torch warns here of each operator of torchvision that it cannot export because torchvision is not installed. No method
# uses one.
REGISTRATION = "torch.onnx._internal.exporter._registration"


class AnswerModel(nn.Module):
    """Samples as given to ``predict_proba`` [n, ...] -> probabilities [n, classes], and typicality [n]."""

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = (
            predictor  # no submodule: its learner has a memory of private samples, which must not be exported
        )
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        predictor = self.predictor
        scores, typicality = predictor.scores_and_typicality(predictor.state.layout.channels_first(x))
        return predictor.probabilities_of(predictor.in_order(predictor.decision(scores))), typicality


def export(path: Path, predictor: Predictor) -> None:
    """Write ``path`` in the format given by its suffix."""
    state = predictor.state
    learner = state.learner.answering_copy().cpu()
    for part in learner.modules():
        if isinstance(part, NetworkLearner):
            part.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            part.channels_last = False  # a memory format that is faster on this device only
        if isinstance(part, Encoder):
            part.precision = "float32"  # which every runtime has
    predictor = Predictor(replace(state, learner=learner), predictor.prior, predictor.unknown_rate).freeze()
    texts = {
        "classes": json.dumps([to_json(label) for label in state.labels]),
        "temperature": json.dumps(predictor.temperature),
        "unknown_threshold": json.dumps(predictor.threshold if math.isfinite(predictor.threshold) else None),
    }
    samples = torch.zeros(2, *state.layout.shape, dtype=state.layout.dtype)
    match path.suffix:
        case ".pt2":
            write = export_torch
        case ".onnx":
            write = export_onnx
        case suffix:
            raise UsageError(f"{path} has the suffix {suffix!r}; use '.onnx', or '.pt2' for torch.export")
    with atomic_write(path) as temporary:
        write(temporary, AnswerModel(predictor), samples, texts)


def export_torch(path: Path, model: nn.Module, samples: Tensor, texts: dict[str, str]) -> None:
    program = torch.export.export(model, (samples,), dynamic_shapes=({0: torch.export.Dim("n")},))
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={f"{name}.json": text for name, text in texts.items()})


def export_onnx(path: Path, model: nn.Module, samples: Tensor, texts: dict[str, str]) -> None:
    with warnings.catch_warnings(), only_errors(REGISTRATION):
        warnings.simplefilter("ignore", FutureWarning)  # from torch, about its own code
        program = torch.onnx.export(
            model,
            (samples,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            input_names=["samples"],
            output_names=["probabilities", "typicality"],
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props.update(texts)
    path.write_bytes(program.model_proto.SerializeToString())


@contextmanager
def only_errors(name: str) -> Iterator[None]:
    """In the block, the logger of this name reports nothing less than errors."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
