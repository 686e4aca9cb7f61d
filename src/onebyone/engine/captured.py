"""Steps recorded once as a CUDA graph and replayed: one launch per step instead of a thousand."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from onebyone.engine.eager import Eager
from onebyone.engine.static import capture_problem
from onebyone.methods.registry import AnyLearner

WARM_UP = 3  # steps before recording, in which libraries choose algorithms and allocate workspaces


class Captured(Eager):
    """Replays ``observe`` on a CUDA stream of its own. A batch of another size than the recorded one runs eagerly.

    Recording takes a few steps, so the learner's state is saved before and restored after. Its random generators are
    registered with the graph: a replay draws what the step would have drawn. An optimizer with momentum creates its
    state in its first step, so that step runs eagerly, and the next one is recorded.
    """

    def __init__(self, learner: AnyLearner, x: Tensor, y: Tensor, batch_size: int) -> None:
        super().__init__(learner, x, y)
        self.index = torch.zeros(batch_size, dtype=torch.int64, device=x.device)
        self.stream = torch.cuda.Stream(x.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.record()

    def record(self) -> None:
        before = {name: tensor.clone() for name, tensor in self.learner.state_dict().items()}
        for _ in range(WARM_UP):  # not on the stream, whose memory pool would keep what these steps allocate
            super().step(self.index)
        torch.cuda.current_stream(self.index.device).synchronize()
        if self.learner.state_dict().keys() != before.keys():
            self.learner.load_state_dict(before)
            return
        graph = torch.cuda.CUDAGraph()
        for generator in self.learner.generators:
            graph.register_generator_state(generator)
        with torch.cuda.stream(self.stream):
            # Not by torch.cuda.graph, which first waits for all other runs of a pack.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                super().step(self.index)
            finally:
                graph.capture_end()
        self.graph = graph
        self.learner.load_state_dict(before)
        torch.cuda.current_stream(self.index.device).synchronize()

    def step(self, index: Tensor) -> None:
        with torch.cuda.stream(self.stream):
            if self.graph is not None and len(index) == len(self.index):
                self.index.copy_(index)
                self.graph.replay()
                self.learner.drop_solution()  # no code of the learner ran that could do it
            else:
                super().step(index)
        if self.graph is None:
            self.synchronize()
            self.record()

    def synchronize(self) -> None:
        self.stream.synchronize()

    def busy(self) -> bool:
        return not self.stream.query()


def engine_for(learner: AnyLearner, x: Tensor, y: Tensor, batch_size: int) -> Eager:
    """The fastest engine for this learner: captured on a GPU if its step allows it, eager otherwise.

    >>> from onebyone import create, load
    >>> digits = load("digits")
    >>> type(engine_for(create("er", digits.spec), digits.train_x, digits.train_y, 10)).__name__
    'Eager'
    """
    if x.device.type != "cuda":
        return Eager(learner, x, y)
    reason = capture_problem(learner, batch_size)
    if reason is None:
        return Captured(learner, x, y, batch_size)
    name = type(learner).__name__
    warnings.warn(f"the step of {name} cannot be captured ({reason}); it runs eagerly, slower", stacklevel=2)
    return Eager(learner, x, y)
