"""`onebyone merge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from onebyone.cli.output import Answer
from onebyone.errors import UsageError


def merge_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Saved classifiers, or autosave folders.")],
    into: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.", show_default=False)],
) -> Answer:
    """Merge classifiers that were taught separately.

    The result is the same as if one classifier had learnt all samples. All
    classifiers must have the same parameters and keep statistics, as the default
    method does. The files that are read are not changed.
    """
    from onebyone import OnlineClassifier
    from onebyone.estimator.folders import known_files  # slow to import, and needs scikit-learn

    if len(files) < 2:
        raise UsageError("one classifier is given; give at least two to merge")
    if into.is_dir():
        raise UsageError(f"{into} is a folder; give the path of a file")
    merged = OnlineClassifier.load(files[0])
    merged.autosave = None  # a folder that is read is not written to
    for file in files[1:]:
        try:
            other = OnlineClassifier.load(file)
            twice = len(known_files(merged) & known_files(other))
            merged.merge(other)
        except UsageError as error:
            raise UsageError(f"{file} cannot be merged with those before it: {error}") from None
        if twice:
            print(
                f"onebyone: {twice} of the images that {file} has learnt were learnt by those before it too, and now "
                "count twice; to count them once, learn their folders into one file",
                file=sys.stderr,
            )
    merged.save(into)
    classes, samples = [str(label) for label in merged.classes_.tolist()], merged.n_samples_seen_
    text = f"{len(files)} classifiers, {samples} samples, {len(classes)} classes: {into}"
    return Answer({"file": str(into), "classes": classes, "samples": samples}, text)
