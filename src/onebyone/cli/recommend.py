"""`onebyone recommend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onebyone.experiments.recommend import Question, commands, gather, packaged, recommend, spec_of, to_csv
from onebyone.files import whole
from onebyone.options import number_of_bytes


def recommend_command(
    bytes_: Annotated[str, typer.Option("--bytes", metavar="SIZE", help="What may be kept, as 500KB or 3MB.")] = "1MB",
    dataset: Annotated[str | None, typer.Option(metavar="NAME", help="cifar10, cifar100 or digits; or else")] = None,
    shape: Annotated[str | None, typer.Option(metavar="CxHxW", help="of a sample, as 3x32x32, or its features")] = None,
    classes: Annotated[int | None, typer.Option(metavar="N", min=1, help="and how many classes, about.")] = None,
    classes_per_task: Annotated[int, typer.Option(metavar="S", min=1, help="Classes that arrive together.")] = 1,
    compute: Annotated[float | None, typer.Option(metavar="X", help="At most X times the operations of ER.")] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="Of results.", show_default="the package's own")
    ] = None,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the numbers of --from there.")] = None,
) -> None:
    """Say what to use with so many bytes.

    The most accurate method with a number on record that fits; what the number
    is, is said. Where there is none, the rule of OnlineClassifier decides.
    """
    known = packaged() if from_ is None else gather(from_)
    if write is not None:
        with whole(write) as place:
            place.write_text(to_csv(known))
        if (dataset, shape, classes) == (None, None, None):  # no question was asked
            print(f"{len(known)} numbers; see: {write}")
            return
    question = Question(
        bytes=number_of_bytes(bytes_, "--bytes"),
        spec=spec_of(dataset, shape, classes),
        dataset=dataset,
        classes_per_task=classes_per_task,
        compute=compute,
    )
    advice = recommend(question, known)
    print("\n  ".join([advice.sentence, *commands(advice, question)]))
