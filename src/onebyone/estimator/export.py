"""Export of the prediction function for other programs: ONNX and torch.export."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onebyone.errors import UsageError
from onebyone.estimator import calibration
from onebyone.estimator.labels import to_json
from onebyone.estimator.persistence import drop_solutions
from onebyone.estimator.state import State
from onebyone.files import atomic_write
from onebyone.methods import NetworkLearner
from onebyone.nets import Encoder

# torch warns here of each operator of torchvision that it cannot export because torchvision is not installed. No method
# uses one.
REGISTRATION = "torch.onnx._internal.exporter._registration"


class AnswerModel(nn.Module):
    """Samples as given to ``predict_proba`` [n, ...] -> probabilities [n, classes], and typicality [n]."""

    def __init__(self, state: State, prior: Any) -> None:
        super().__init__()
        learner = state.learner.answering_copy().cpu()
        for part in learner.modules():
            if isinstance(part, NetworkLearner):
                part.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
                part.channels_last = False  # a memory format that is faster on this device only
            if isinstance(part, Encoder):
                part.precision = "float32"  # which every runtime has
        with torch.no_grad():
            self.readout = learner.readout()  # computes class means from the memory once
            self.typicality = learner.typicality_readout()
        # In a tuple, so that the learner is no submodule: its memory holds private samples and must not be exported.
        self.parts = (learner,)
        self.layout = state.layout
        self.columns = torch.tensor(state.columns)
        self.unseen = ~learner.observed[self.columns]
        self.temperature, self.probabilities = calibration.temperature(state), calibration.probabilities(state)
        shift = calibration.log_prior(state, prior)
        self.log_prior = None if shift is None else shift[self.columns]
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        (learner,) = self.parts
        features = learner.features(self.layout.channels_first(x))
        scores = self.readout(features)[:, self.columns].masked_fill(self.unseen, float("-inf"))
        decision = scores / self.temperature
        if self.log_prior is not None:
            decision = decision + self.log_prior.to(decision)
        return self.probabilities(decision), self.typicality(features, scores)


def export(path: Path, state: State, prior: Any, unknown_rate: float) -> None:
    """Write ``path`` in the format given by its suffix."""
    drop_solutions(state.learner)  # so that all numbers in the file are those of one solution
    threshold = calibration.threshold(state, unknown_rate)
    texts = {
        "classes": json.dumps([to_json(label) for label in state.labels]),
        "temperature": json.dumps(calibration.temperature(state)),
        "unknown_threshold": json.dumps(threshold if math.isfinite(threshold) else None),
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
        write(temporary, AnswerModel(state, prior), samples, texts)


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
