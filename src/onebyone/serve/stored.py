"""What a state folder holds: a saved classifier, and the operations after it."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from onebyone.errors import UsageError
from onebyone.estimator import OnlineClassifier
from onebyone.serve import journal
from onebyone.serve.journal import CannotStore, Found
from onebyone.serve.model import Model
from onebyone.serve.operations import decode
from onebyone.serve.settings import FILE, settings_of

log = logging.getLogger("onebyone.serve")


def is_state_folder(folder: Path) -> bool:
    """Whether this is a state folder of a server."""
    return (folder / FILE).is_file() and any(folder.glob("journal-*"))


def stored_classifier(folder: Path) -> OnlineClassifier:
    """The classifier of a state folder, which is only read. A server may use the folder at the same time.

    Raises
    ------
    UsageError
        If the folder is damaged, or if nothing was learnt yet.
    """
    settings, newest = settings_of(folder, {}), newest_journal(folder)
    with TemporaryDirectory() as uploads:
        while True:
            model = Model(Path(uploads), settings)
            try:
                replay(model, folder, newest or 0)
                break
            except (UsageError, OSError):
                before, newest = newest, newest_journal(folder)
                if newest == before:  # otherwise a server has replaced what was being read
                    raise
    if model.state is None:
        raise UsageError(f"the server of {folder} has learnt nothing yet; teach it something first")
    return model.classifier


def replay(model: Model, folder: Path, number: int) -> Found:
    """Load a snapshot into the model, and make the operations after it again."""
    path = journal_path(folder, number)
    found = journal.read(path)
    if not found.entries:
        raise UsageError(f"{path} is damaged at its beginning; restore a copy of the state folder")
    base, *rest = [(entry.sequence, decode(entry.payload)) for entry in found.entries]
    model.restore(base[1], snapshot_path(folder, number))
    void = {operation.sequence for _, operation in rest if operation.kind == "void"}
    for sequence, operation in rest:
        if operation.kind != "void" and sequence not in void:
            try:
                model.apply(operation)
            except CannotStore:  # it was made before, when there was space
                raise
            except UsageError as error:  # it was refused before, but the process ended before it wrote that
                log.warning("operation %d was refused: %s", sequence, error)
    return found


def newest_journal(folder: Path) -> int | None:
    """The number of the newest journal, or None if there is none."""
    return max(map(number_of, folder.glob("journal-*")), default=None)


def number_of(path: Path) -> int:
    """The number in the name of a journal."""
    text = path.name.removeprefix("journal-")
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{path} is not a journal; move it to another folder")
    return int(text)


def journal_path(folder: Path, number: int) -> Path:
    return folder / f"journal-{number}"


def snapshot_path(folder: Path, number: int) -> Path:
    return folder / f"snapshot-{number}.safetensors"
