"""Files of tensors (safetensors, which run no code, written whole or not at all), their sizes and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], signed: str | None = None
) -> None:
    """Write tensors and texts to one file, so that the two can never disagree.

    The digest of the tensors and of the text ``signed`` is added as the text ``sha256``. Raises UsageError if the file
    cannot be written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_tensors(Path(folder) / "file", {"weight": torch.ones(2)}, {"note": "two ones"})
    ...     read_tensors(Path(folder) / "file")
    ({'weight': tensor([1., 1.])}, {'note': 'two ones'})
    """
    from safetensors.torch import save

    from onebyone.files import atomic_write

    if signed is not None:
        metadata = {**metadata, "sha256": digest(tensors, metadata[signed])}
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, dict(metadata))
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
