"""Files of tensors (safetensors, which run no code, written whole or not at all), their sizes and checksums."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and texts to one file, so that the two can never disagree.

    Raises UsageError if the file cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_tensors(Path(folder) / "file", {"weight": torch.ones(2)}, {"note": "two ones"})
    ...     read_tensors(Path(folder) / "file")
    ({'weight': tensor([1., 1.])}, {'note': 'two ones'})
    """
    from safetensors.torch import save

    from onebyone.files import atomic_write

    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)  # safetensors' own save_file does not report a full disk as one


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the texts of a file.

    Raises ValueError if it is no such file, and OSError if it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """SHA-256 of a text and of tensors with their names, types and shapes, in any order and on any device."""
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def checksum(module: nn.Module) -> int:
    """CRC-32 of the values of all parameters and buffers of a module on the CPU.

    >>> layer = nn.Linear(2, 2)
    >>> before = checksum(layer)
    >>> layer.weight.data[0, 0] += 1
    >>> checksum(layer) == before
    False
    """
    result = 0
    for tensor in (*module.parameters(), *module.buffers()):
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)  # as it lies in memory: nothing is copied
        values = tensor.detach().permute(order).reshape(-1).view(torch.uint8)
        result = zlib.crc32(values.numpy().data, zlib.crc32(bytes(order), result))
    return result


def writes(module: nn.Module) -> tuple[object, ...]:
    """How often each parameter and buffer of a module was written to, as PyTorch counts it: without ``.data``.

    The entry of a tensor from inference mode, whose writes are not counted, equals no other.

    >>> layer = nn.Linear(2, 2)
    >>> before = writes(layer)
    >>> with torch.no_grad():
    ...     _ = layer.weight.add_(1)
    >>> writes(layer) == before
    False
    """
    tensors = (*module.parameters(), *module.buffers())
    return tuple(object() if tensor.is_inference() else tensor._version for tensor in tensors)


def nbytes(*parts: nn.Module) -> int:
    """Bytes of all tensors in the state of some modules."""
    return sum(tensor.nbytes for part in parts for tensor in part.state_dict().values())


@contextmanager
def one_thread() -> Iterator[None]:
    """In the block, torch computes on one thread: several would wait for each other, or for other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
