"""Pickling as bytes: what holds tensors, for picklers that would share their memory between processes."""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any, NamedTuple


class Packed(NamedTuple):
    """An object as bytes, and the classes and functions that it needs.

    PyTorch makes ``multiprocessing`` send tensors as open files instead of values. With spawn and forkserver, those of
    a tensor that was made for the pickle are closed before the new process gets them. Bytes are sent as they are.

    Classes and functions are kept beside the bytes, for the pickler that sends these. That of joblib and of notebooks
    (cloudpickle) can send those that are defined in ``__main__``; a pickle within the pickle could not.
    """

    content: bytes
    code: list[Any]


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.code: dict[Any, int] = {}

    def persistent_id(self, item: Any) -> int | None:
        return self.code.setdefault(item, len(self.code)) if isinstance(item, (type, FunctionType)) else None


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: Packed) -> None:
        super().__init__(io.BytesIO(packed.content))
        self.code = packed.code

    def persistent_load(self, number: Any) -> Any:
        return self.code[number]


def pack(item: Any) -> Packed:
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(item)
    return Packed(file.getvalue(), list(packer.code))


def unpack(packed: Packed) -> Any:
    return _Unpacker(packed).load()
