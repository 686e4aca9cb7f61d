"""Everything that changes the state, as values that a journal can hold."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from onebyone.errors import UsageError

Array = npt.NDArray[Any]
Kind = Literal["learn", "forget", "undo", "forget-class", "rename", "merge", "void", "base"]
DTYPES = ("uint8", "float32")
SIZE = struct.Struct("<I")


@dataclass(frozen=True)
class Operation:
    """One change. Which fields it uses depends on its kind."""

    kind: Kind
    labels: tuple[str, ...] = ()  # of the samples; the class to forget
    samples: Array | None = None  # [n, ...] uint8 or float32, in the layout of the classifier
    right: tuple[bool | None, ...] = ()  # whether each sample was predicted correctly before it was learnt
    names: dict[str, str] = field(default_factory=dict)  # old and new labels
    content: bytes = b""  # of an uploaded file
    sequence: int = 0  # of an operation that is void
    about: dict[str, Any] = field(default_factory=dict)  # what a base says

    def encode(self) -> bytes:
        """The operation as bytes: the length of a JSON object, the object, then the samples or the file."""
        found: dict[str, Any] = {"kind": self.kind}
        found |= {"labels": self.labels} if self.labels else {}
        found |= {"right": self.right} if self.right else {}
        found |= {"names": self.names} if self.names else {}
        found |= {"sequence": self.sequence} if self.sequence else {}
        found |= {"about": self.about} if self.about else {}
        content = self.content
        if self.samples is not None:
            found |= {"dtype": str(self.samples.dtype), "shape": self.samples.shape}
            content = np.ascontiguousarray(self.samples).tobytes()
        text = json.dumps(found, ensure_ascii=False).encode()
        return SIZE.pack(len(text)) + text + content


def decode(payload: bytes) -> Operation:
    """The operation that was encoded."""
    try:
        (length,) = SIZE.unpack_from(payload)
        found = json.loads(payload[SIZE.size : SIZE.size + length])
        content, samples = payload[SIZE.size + length :], None
        if found["kind"] not in get_args(Kind):
            raise ValueError(f"{found['kind']!r} is not an operation")
        if "shape" in found:
            shape, dtype = tuple(found["shape"]), found["dtype"]
            if dtype not in DTYPES or prod(shape) * np.dtype(dtype).itemsize != len(content):
                raise ValueError("its samples are incomplete")
            samples, content = np.frombuffer(content, dtype).reshape(shape), b""
        return Operation(
            kind=found["kind"],
            labels=tuple(found.get("labels", ())),
            samples=samples,
            right=tuple(found.get("right", ())),
            names=found.get("names", {}),
            content=content,
            sequence=found.get("sequence", 0),
            about=found.get("about", {}),
        )
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise UsageError(
            f"the journal has an entry that this onebyone cannot read ({error}); use the version that wrote it"
        ) from None
