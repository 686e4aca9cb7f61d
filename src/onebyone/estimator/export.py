"""What answers, without what learns, for other programs: ONNX and torch.export."""

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


class Answers(nn.Module):
    """Samples as they come [n, ...] -> [n, classes] probabilities, in the order of ``classes_``."""

    def __init__(self, state: State) -> None:
        super().__init__()
        learner = state.learner.answering_copy().cpu()
        for part in learner.modules():
            if isinstance(part, NetworkLearner):
                part.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
                part.channels_last = False  # which was this machine's own concern
        with torch.no_grad():
            self.readout = learner.readout()  # class means of the memory are computed here, once
        # Not a part of this module, so that only what is used comes along, and not the memory: it holds people's data.
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
    """Write ``path``, in the format that its ending says."""
    classes = json.dumps([to_json(state.labels[slot]) for slot in state.columns])
    samples = torch.zeros(2, *state.layout.shape, dtype=state.layout.dtype)
    match path.suffix:
        case ".pt2":
            write = export_torch
        case ".onnx":
            write = export_onnx
        case suffix:
            raise UsageError(f"{path} ends in {suffix!r}; end it in '.onnx', or in '.pt2' for torch.export")
    with atomic_write(path) as place:
        write(place, Answers(state), samples, classes)


def export_torch(place: Path, answers: nn.Module, samples: Tensor, classes: str) -> None:
    program = torch.export.export(answers, (samples,), dynamic_shapes=({0: torch.export.Dim("n")},))
    with place.open("wb") as file:
        torch.export.save(program, file, extra_files={"classes.json": classes})


def export_onnx(place: Path, answers: nn.Module, samples: Tensor, classes: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about itself
        program = torch.onnx.export(
            answers,
            (samples,),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            input_names=["samples"],
            output_names=["probabilities"],
            verbose=False,
        )
    assert program is not None
    program.model.metadata_props["classes"] = classes
    place.write_bytes(program.model_proto.SerializeToString())
