"""Frozen networks in ONNX Runtime, which on a CPU is faster than torch; and encoders from ONNX files."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from onebyone.errors import UsageError
from onebyone.nets.preprocess import Preprocess, scaled
from onebyone.tensors import one_thread

ONNX = "onnx:"  # before the path of an ONNX file
Array = npt.NDArray[Any]
DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
MOST = 64  # samples per part of a batch; the memory that a part uses grows with them
VALUES = 2**18  # of a part, or one image: few enough for its activations to stay in the cache of a core


class Session:
    """Runs an ONNX model of one input, given as bytes, on the CPU. Copies share the session; pickles hold the bytes.

    The parts of a batch are computed at the same time, each on one thread. On two cores that takes three quarters of
    the time of one part after the other, each on all threads.
    """

    def __init__(self, model: bytes) -> None:
        self.model, self.threads = model, torch.get_num_threads()
        self._opened: dict[int, Any] = {}  # by number of threads
        opened = self.opened(self.threads)
        self.inputs = opened.get_inputs()
        self.metadata: dict[str, str] = opened.get_modelmeta().custom_metadata_map
        batch = self.inputs[0].shape[0] if self.inputs[0].shape else None
        self.batch = batch if isinstance(batch, int) else None  # samples per call, if the model fixes them

    def opened(self, threads: int) -> Any:
        """The model in ONNX Runtime with this number of threads."""
        import onnxruntime

        if threads not in self._opened:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.log_severity_level = 3  # errors only
            # Threads that wait actively take the time of those that decode images.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self._opened[threads] = onnxruntime.InferenceSession(self.model, options, ["CPUExecutionProvider"])
        return self._opened[threads]

    def __call__(self, x: Tensor, prepare: Callable[[Tensor], Array]) -> Tensor:
        """[n, ...] -> [n, ...]: the first output for samples, of which a part at a time is prepared for the model."""
        known = [side for side in self.inputs[0].shape[1:] if isinstance(side, int)]
        values = max(math.prod(known), math.prod(x.shape[1:]), 1)
        parts = x.split(self.batch or min(MOST, max(1, VALUES // values)))
        if len(parts) == 1 or self.threads == 1:
            return joined([self.run(prepare(part), self.threads) for part in parts])
        found, waiting = list[Array](), deque[Future[Array]]()
        self.opened(1)  # once, and not by every thread
        with one_thread(), ThreadPoolExecutor(self.threads) as pool:
            for part in parts:
                if len(waiting) == 2 * self.threads:  # so that prepared parts take little memory
                    found.append(waiting.popleft().result())
                waiting.append(pool.submit(self.run, prepare(part)))
            return joined([*found, *(future.result() for future in waiting)])

    def run(self, x: Array, threads: int = 1) -> Array:
        """The first output for one part, on so many threads."""
        missing = (self.batch or len(x)) - len(x)
        padded = np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]) if missing else x
        found: Array = self.opened(threads).run(None, {self.inputs[0].name: padded})[0]
        return found[: len(x)]

    def __deepcopy__(self, memo: Any) -> Session:
        return self

    def __reduce__(self) -> tuple[type[Session], tuple[bytes]]:
        return Session, (self.model,)


class OnnxNetwork(nn.Module):
    """The model in an ONNX file as a module without weights to train: [n, *shape] -> [n, features].

    The size, the type and the position of the channels of its images are read from the file. Floating-point values
    are given from -1 (black) to 1, or standardised by the values ``mean`` and ``std`` in the metadata of the file
    (JSON lists, for values from 0 to 1). Images are resized if the file fixes their size. Of several outputs, the
    first counts. ``limits`` are the values of black and white in floating-point images.
    """

    model: Tensor

    def __init__(self, path: str | Path, limits: tuple[float, float] = (-1.0, 1.0)) -> None:
        super().__init__()
        self.session = open_session(Path(path))
        # The bytes of the file are the state, so that another file is noticed.
        self.register_buffer("model", torch.from_numpy(np.frombuffer(bytearray(self.session.model), np.uint8)))
        given, *others = self.session.inputs
        if others or given.type not in DTYPES or len(given.shape) not in (2, 4):
            inputs = ", ".join(f"{one.type} {one.shape}" for one in self.session.inputs)
            raise UsageError(
                f"{path} reads {inputs}; expected one input of float, float16 or uint8 and of shape [n, features], "
                "[n, channels, height, width] or [n, height, width, channels]"
            )
        self.dtype = DTYPES[given.type]
        self.prepare: nn.Module = nn.Identity()
        self.channels_last = False
        if len(given.shape) == 4:
            first, _, last = shape = given.shape[1:]
            self.channels_last = first not in (1, 3) and last in (1, 3)
            channels, *sides = (last, *shape[:2]) if self.channels_last else shape
            size = tuple(sides) if all(isinstance(side, int) for side in sides) else None
            usual = str([0.5] * (channels if isinstance(channels, int) else 3))  # [-1, 1]
            mean, std = (json.loads(self.session.metadata.get(name, usual)) for name in ("mean", "std"))
            self.prepare = Preprocess(size, mean, std, limits=limits)

    def forward(self, x: Tensor) -> Tensor:
        if type(x) is not Tensor or x.is_meta:  # only shapes are asked for
            blank = np.zeros(tuple(self.prepared(x).shape), self.dtype)
            return x.new_empty(self.session.run(blank).shape, dtype=torch.float32)

        def array(part: Tensor) -> Array:
            return np.ascontiguousarray(self.prepared(part).numpy(), self.dtype)

        return self.session(x.detach().cpu(), array).to(x.device)

    def prepared(self, x: Tensor) -> Tensor:
        """Samples as the model reads them, but in another type."""
        x = scaled(x) if isinstance(self.prepare, nn.Identity) else self.prepare(x)
        if self.dtype == np.uint8:
            x = ((x + 1) * 127.5).round().clamp(0, 255)
        return x.permute(0, 2, 3, 1) if self.channels_last else x


def joined(parts: Sequence[Array]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(np.float32, copy=False))


def open_session(path: Path) -> Session:
    """A session on an ONNX file; weights that it keeps in files beside it are read as well."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"encoder '{ONNX}{path}' needs the package {error.name}, which is not installed; "
            "run `pip install 'onebyone[photos]'`"
        ) from None
    if not path.is_file():
        raise UsageError(f"{path} does not exist; give the path of an ONNX file, as in encoder='{ONNX}FILE'")
    try:
        return Session(onnx.load(path).SerializeToString())
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        raise UsageError(f"{path} is no ONNX file that can be run ({str(error).splitlines()[0]})") from None
