"""Export of the prediction function for other programs: ONNX and torch.export."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from onebyone.errors import UsageError
from onebyone.estimator.building import State
from onebyone.estimator.labels import to_json
from onebyone.files import atomic_write
from onebyone.methods import NetworkLearner


class ProbabilityModel(nn.Module):
    """Samples as given to ``predict_proba`` [n, ...] -> [n, classes] probabilities, in the order of ``classes_``."""

    def __init__(self, state: State) -> None:
        super().__init__()
        learner = state.learner.answering_copy().cpu()
        for part in learner.modules():
            if isinstance(part, NetworkLearner):
                part.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
                part.channels_last = False  # a memory format that is faster on this device only
        with torch.no_grad():
            self.readout = learner.readout()  # computes class means from the memory once
        # In a tuple, so that the learner is no submodule: its memory holds private samples and must not be exported.
        self.parts = (learner,)
        self.layout = state.layout
        self.columns = torch.tensor(state.columns)
        self.unseen = ~learner.observed[self.columns]
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        (learner,) = self.parts
        scores = self.readout(learner.features(self.layout.channels_first(x)))[:, self.columns]
        return scores.masked_fill(self.unseen, float("-inf")).softmax(1)


def export(path: Path, state: State) -> None:
    """Write ``path`` in the format given by its suffix."""
    classes = json.dumps([to_json(state.labels[slot]) for slot in state.columns])
    samples = torch.zeros(2, *state.layout.shape, dtype=state.layout.dtype)
    match path.suffix:
        case ".pt2":
            write = export_torch
        case ".onnx":
            write = export_onnx
        case suffix:
            raise UsageError(f"{path} has the suffix {suffix!r}; use '.onnx', or '.pt2' for torch.export")
    with atomic_write(path) as temporary:
        write(temporary, ProbabilityModel(state), samples, classes)


def export_torch(path: Path, model: nn.Module, samples: Tensor, classes: str) -> None:
    program = torch.export.export(model, (samples,), dynamic_shapes=({0: torch.export.Dim("n")},))
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={"classes.json": classes})


def export_onnx(path: Path, model: nn.Module, samples: Tensor, classes: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # from torch, about its own code
        program = torch.onnx.export(
            model,
            (samples,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            input_names=["samples"],
            output_names=["probabilities"],
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props["classes"] = classes
    path.write_bytes(program.model_proto.SerializeToString())
