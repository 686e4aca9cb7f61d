"""`onebyone merge`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onebyone.cli.learn import loaded
from onebyone.cli.output import Output
from onebyone.errors import UsageError

if TYPE_CHECKING:
    from onebyone import OnlineClassifier


def merge_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Saved classifiers, or folders of autosave or serve.")
    ],
    into: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> Output:
    """Merge classifiers that were taught separately.

    The result is the same as if one classifier had learnt all samples. All
    classifiers must have the same parameters and keep statistics, as the default
    method does. The files that are read are not changed, unless the file to
    write is one of them, which needs --force.
    """
    from onebyone.estimator.folders import file_lock  # slow to import, and needs scikit-learn

    if len(files) < 2:
        raise UsageError("one classifier is given; give at least two to merge")
    if into.is_dir():
        raise UsageError(f"{into} is a folder; give the path of a file")
    with file_lock(into):  # before reading, because one of the files may be the one to write
        if into.exists() and not force:
            raise UsageError(f"{into} exists and would be overwritten; give another path, or --force to overwrite it")
        merged = merged_from(files)
        merged.save(into)
    classes, samples = [str(label) for label in merged.classes_.tolist()], merged.n_samples_seen_
    text = f"{len(files)} classifiers, {samples} samples, {len(classes)} classes: {into}"
    return Output({"file": str(into), "classes": classes, "samples": samples}, text)


def merged_from(files: Sequence[Path]) -> OnlineClassifier:
    """A classifier that has learnt what those in the files have."""
    from onebyone.estimator.folders import known_files

    merged = loaded(files[0])
    merged.autosave = None  # a folder that is read is not written to
    for file in files[1:]:
        try:
            other = loaded(file)
            twice = len(known_files(merged).contents & known_files(other).contents)
            merged.merge(other)
        except UsageError as error:
            raise UsageError(f"{file} cannot be merged with those before it: {error}") from None
        if twice:
            print(
                f"onebyone: {twice} of the images that {file} has learnt were learnt by those before it too, and now "
                "count twice; to count them once, learn their folders into one file",
                file=sys.stderr,
            )
    return merged
