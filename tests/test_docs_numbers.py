"""Every number in the README and on the site comes from what its page names here: records, constants or the paper.

A page has few sources, each grouped to few means, so that a wrong digit is found: it is not among them.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median

import pytest

from onebyone import OnlineClassifier, Spec, create
from onebyone.engine import measure_cost
from onebyone.paper.printed import printed
from onebyone.paper.records import CellKey
from onebyone.statistics.criterion import SHRINKAGES
from page_numbers import (
    ROOT,
    Cells,
    Code,
    Column,
    Computed,
    Defaults,
    Printed,
    Source,
    Stated,
    Text,
    operations,
    read_out,
    records,
    removed_parts,
)

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\([^)]*\)")
SPREAD = re.compile(r"\d+\.\d ± \d+\.\d")  # test_docs.py compares these with the records
# Numbers that could be measured: with a decimal point or a comma, or before one of these units, also in a list.
UNIT = r"(?:%|ms|s|seconds|minutes|KB|MB|points|times|images per second|learnt images|megapixels|predictions)(?!\w)"
NUMBER = re.compile(
    r"(?<![\w.,:/])(?<![A-Za-z]-)(?<!Python )(?<!ection )"
    rf"(?:\d{{1,3}}(?:,\d{{3}})+|\d*\.\d+|\d+(?=(?:, \d+)*(?: (?:to|and) \d+)? {UNIT}))(?!\w|\.\d)"
)

CIFAR = ("cifar10", "cifar100")
PHOTOS = "results/benchmarks/photos.txt"
ONE10 = Cells("cifar10", 1)
ONE100, FIVE100 = Cells("cifar100", 1, 100), Cells("cifar100", 5, 100)
ENCODED = tuple(Column(f"encoded/{data}-orders.csv") for data in CIFAR)
FEW = tuple(Column(f"encoded/{data}-few.csv", by=("case",)) for data in CIFAR)
RARE = tuple(Column("encoded/cifar10-rare.csv", value) for value in ("before", "after"))
MANY = Column("few/many.csv", by=("dataset", "memory_per_class"), scale=100)
HYBRID = ("dataset", "classes_per_task", "M", "share")
TUNED = ("classes_per_task", "memory_per_class", "options")
SEARCHED = ("classes_per_task", "memory_per_class", "seed", "options")
MOST = tuple(Code(f"onebyone.methods.choice:MAX_{kind}_BYTES", 1e-6) for kind in ("IMAGE", "VECTOR", "ENCODED"))
IMAGE_BYTES = 32 * 32 * 3
MISSED = [(1, 100), (2, 5), (2, 20), (2, 50), (2, 100)]  # classes per task and M


def megabytes() -> list[float]:
    """The budgets on CIFAR-100: the bytes of M images per class."""
    return [m * 100 * IMAGE_BYTES // 10**6 for m in (5, 20, 50, 100)]


def hybrid_gains() -> Iterator[float]:
    """Points by which `hybrid` is more accurate than `patch-lda` on CIFAR-100 with 15 MB or more."""
    for cell in records().cells:
        if (cell.dataset, cell.method) == ("cifar100", "hybrid") and cell.memory_per_class in (50, 100):
            mine, other = (records().value(each, "accuracy") for each in (cell, cell._replace(method="patch-lda")))
            if mine and other:
                yield mine.mean - other.mean


def hybrid_work() -> list[float]:
    """Operations of `hybrid` relative to `patch-lda`, on CIFAR-100 with 15 MB or more."""
    own, other = operations("cifar100", "hybrid"), operations("cifar100", "patch-lda")
    return [own[memory] / other[memory] for memory in (50, 100)]


def behind_the_paper() -> list[float]:
    """Points by which CCP as printed is behind the paper, in whole numbers, where it is missed."""
    lost = [printed(f"table{s}", "ccp", m, "accuracy") for s, m in MISSED]
    ours = [records().value(CellKey("printed", "cifar10", "ccp", s, m), "accuracy") for s, m in MISSED]
    return [round(one.mean - other.mean) for one, other in zip(lost, ours, strict=True) if one and other]


def work(scale: float, *methods: str) -> list[float]:
    """Operations relative to ER, on both data sets."""
    return [scale * value for data in CIFAR for name in methods for value in operations(data, name).values()]


def thirty() -> Iterator[float]:
    """By how many per cent a step of `replay` with 30 samples costs more than one of ER-AML."""
    for classes in (10, 100):
        spec = Spec(shape=(3, 32, 32), num_classes=classes)
        own, other = create("replay", spec, replay_size=30), create("er-aml", spec)
        yield 100 * (measure_cost(own).flops / measure_cost(other).flops - 1)


def behind_class_means() -> list[float]:
    """The largest number of points by which a draw with few images is behind the nearest class mean."""
    draws = [
        [Column(f"encoded/{data}-few.csv", value, by=("case", "seed")).groups() for value in ("ncm", "accuracy")]
        for data in CIFAR
    ]
    return [max(ncm[draw] - accuracy[draw] for ncm, accuracy in draws for draw in ncm)]


def ratios() -> list[float]:
    """CPU time of the encoder alone as a share of all that `learn` does, for files of 32 and 224 pixels."""
    found = [100 * ratio for ratio in Text(PHOTOS, r"(?:32x32|224x224) .*\((0\.\d\d)\)").numbers()]
    return [min(found), max(found), median(found)]


def learning() -> list[float]:
    """Images per second of `learn` in the last measurement, and per cent of the rate of the encoder alone."""
    found = Text(PHOTOS, r"learn ([\d.]+) \([\d.]+\); ratio (0\.\d\d)").numbers()[-6:]
    return [*found[::2], *(100 * ratio for ratio in found[1::2])]


def per_image() -> list[float]:
    """CPU milliseconds of `learn` for a small file, and the images per second to the next five."""
    mean = fmean(Text(PHOTOS, r"(?:32x32|224x224)(?: +[\d.]+ \([\d.]+\)){2} +[\d.]+ \(([\d.]+)\)").numbers())
    return [mean, 5 * round(1000 / mean / 5)]


def million() -> list[float]:
    """Images per second on an H200, to a hundred; seconds of a million; minutes of reading a million large files."""
    rate = fmean(Text("results/encoded/README.md", r"([\d,]+) images of CIFAR-10 and ([\d,]+) of CIFAR-100").numbers())
    decoding = fmean(READING.numbers())
    minutes = 1e6 * decoding / 1000 / 16 / 60
    return [round(rate, -2), 1e6 / rate, 1e6 / rate / 8, decoding, minutes, minutes / 8]


READING, READING_SMALL = (
    Text(PHOTOS, rf"{size} +[\d.]+ \([\d.]+\) +[\d.]+ \(([\d.]+)\)") for size in ("4000x3000", "224x224")
)
ENCODER_TIMES = Text(PHOTOS, r"(?m)^  (?:torch|the same|ONNX|compiled).*?  ([\d.]+) \(")
MEMORY = Text(PHOTOS, r"jpg files of 4000x3000: peak (\d+) MB, with one file (\d+) MB")
SMALL = Code("onebyone.methods.choice:MAX_ENCODED_BYTES", 1e-6)
# A page that is not here has no such number, or has them from elsewhere: reproduction/ is what a command writes.
SOURCES: dict[str, tuple[Source, ...]] = {
    "README.md": ENCODED,
    "docs/results.md": (
        *(ONE10, Cells("cifar10", 2, 100), ONE100, FIVE100, Printed(), MANY, *ENCODED),
        Computed(behind_the_paper),
        Computed(lambda: read_out("er", "der++", "supbyol", "ccp")),
        Computed(lambda: work(100, "patch-lda")),
        Computed(lambda: work(1, "patch-lda", "hybrid", "replay", "der++")),
        Computed(megabytes),
    ),
    "docs/methods/index.md": (*MOST, Computed(megabytes), Computed(hybrid_gains), Defaults("er")),
    "docs/methods/ccp.md": (
        Column("held-out-search.csv", by=SEARCHED, where="method=ccp memory_per_class=100", scale=100),
        Column("held-out-search.csv", "forgetting", SEARCHED, "method=ccp memory_per_class=100", scale=100),
        Column("tuning/cifar10.csv", by=TUNED, where="method=ccp memory_per_class=100", scale=100),
        Computed(lambda: read_out("ccp")),
        Defaults("ccp er"),
    ),
    "docs/methods/der++.md": (Defaults("der++ er"), Text("src/onebyone/runs/tuning.yaml", r"alpha: ([\d.]+)")),
    "docs/methods/er-ace.md": (Cells("cifar10", 1, 100), ONE100),
    "docs/methods/er-aml.md": (Cells("cifar10", 1, 100), ONE100, Stated("0.1 0.3 0.07", "of the authors' code")),
    "docs/methods/finetune.md": (ONE10,),
    "docs/methods/hybrid.md": (
        Column("hybrid/held-out.csv", by=HYBRID, best=True),
        Column("hybrid/held-out.csv", by=HYBRID, where="weight=0.0"),
        Column("hybrid/held-out.csv", by=HYBRID, where="readout=ncm weight=1000000.0"),
        Column("hybrid/held-out.csv", "share", by=("share",)),
        Column("hybrid/held-out.csv", "weight", by=("weight",)),
        Column("statistics/held-out.csv", by=("dataset", "M", "seed", "options")),
        Cells("cifar100", 1),
        *(Computed(hybrid_gains), Computed(hybrid_work), Computed(megabytes)),
        Code("onebyone.methods.replay_learner:COSINES"),
        Stated("0.3", "what the share 0.7 of the statistics leaves"),
    ),
    "docs/methods/lda.md": (
        *ENCODED,
        *FEW,
        *(Column(f"encoded/{data}-memory.csv", by=("case",)) for data in CIFAR),
        *(Column(f"encoded/{data}-few.csv", "ncm", by=("case",)) for data in CIFAR),
        *RARE,
        Column("encoded/cifar10-rare.csv", "recall", by=("case",), whole=True),
        Column("encoded/cifar10-rare.csv", "recall", whole=True),
        *(MANY, SMALL, Computed(behind_class_means)),
        Stated("45,000", "training images of nine classes of CIFAR-10"),
    ),
    "docs/methods/patch-lda.md": (
        Column("statistics/held-out.csv", by=("dataset", "M", "seed", "options")),
        Column("statistics/ablation.csv", by=("removed",)),
        *(Column("few/cifar10-few.csv", value, ("case",)) for value in ("accuracy", "ncm", "confidence", "ece")),
        Column("few/cifar100-few.csv", "ece", ("case",)),
        *(Column("few/cifar10-rare.csv", value, ("case",)) for value in ("recall", "ece")),
        *(Column("few/unknown.csv", value, ("case",)) for value in ("typicality", "distance", "largest probability")),
        Column("few/unknown.csv", "known turned away", by=("case",), scale=100),
        Column("few/many.csv", "ece", ("dataset", "memory_per_class")),
        Computed(lambda: work(100, "patch-lda")),
        *(Computed(removed_parts), *MOST),
        Code("onebyone.statistics.patch_lda:KEPT_SHARE", 100),
        Code("onebyone.statistics.patch_lda:KEPT_VECTORS", 100),
        Code("onebyone.statistics.patch_lda:LARGEST_KEPT", 100),
        Code("onebyone.statistics.criterion:EXPECTED"),
        Code("onebyone.statistics.criterion:LEAST", 100),
        Computed(lambda: SHRINKAGES),
        Stated("10,000 5,000 1,000", "test images, and numbers of training images"),
    ),
    "docs/methods/replay.md": (
        *(Column(f"tuning/{data}.csv", by=TUNED, where="method=replay", scale=100) for data in CIFAR),
        Defaults("replay er"),
        Computed(thirty),
        Stated("30", "how much more frequent one class is, as the file in benchmarks/ sets it"),
    ),
    "docs/methods/supbyol.md": (
        Defaults("er"),
        Text("src/onebyone/paper/chosen.yaml", r"target_momentum: ([\d.]+)"),
    ),
    "docs/tutorials/clusters.md": (
        *(Computed(per_image), Computed(million), READING_SMALL),
        Code("onebyone.distributed:ROUND"),
    ),
    "docs/tutorials/live.md": (
        *(Defaults("ccp"), Code("onebyone.estimator.evidence:SIZE"), Code("onebyone.estimator.evidence:ENOUGH")),
        *(Code("onebyone.estimator.evidence:MOST"), Code("onebyone.estimator.evidence:FIRST")),
        Computed(lambda: [100 * OnlineClassifier().validation_fraction]),
        Stated("0.8 80", "what a probability means"),
    ),
    "docs/tutorials/own_encoder.md": (
        *ENCODED,
        *FEW,
        *(Computed(ratios), ENCODER_TIMES, READING, MEMORY),
        Computed(lambda: [MEMORY.numbers()[-2] - MEMORY.numbers()[-1]]),
        Computed(learning),
        Text("src/onebyone/nets/lite0.py", r"images -> \[n, (\d+)\] averaged"),
    ),
    "docs/tutorials/own_images.md": (
        *(replace(each, whole=True) for each in (*ENCODED, *FEW)),
        *(SMALL, Computed(per_image), Code("onebyone.estimator.evidence:ENOUGH")),
    ),
    "docs/tutorials/serving.md": (Code("onebyone.serve.bodies:Limits.pixels", 1e-6),),
    "docs/tutorials/stream.md": (Text("docs/tutorials/stream.md", r"after class \d: +([\d.]+) %"),),
}
GENERATED = ("docs/benchmarks", "docs/reproduction")  # by programs, from results/
PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]


def text_of(page: str) -> str:
    """What a reader takes for prose and tables: no code, no address, no mean with its standard deviation."""
    text = (ROOT / page).read_text()
    for pattern in (FENCE, CODE, LINK, SPREAD):
        text = pattern.sub("", text)
    return text


def untraced(text: str, sources: tuple[Source, ...]) -> list[str]:
    """The numbers of a text that none of its sources has."""
    return [number for number in NUMBER.findall(text) if number not in known(sources)]


@cache
def known(sources: tuple[Source, ...]) -> set[str]:
    return set().union(*(source.known() for source in sources))


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith(GENERATED)])
def test_numbers_on_a_page_come_from_its_sources(page: str) -> None:
    found = untraced(text_of(page), SOURCES.get(page, ()))
    assert not found, f"{page} has numbers that are not in its files of results; name those in SOURCES above"


def test_every_source_belongs_to_a_page() -> None:
    assert SOURCES.keys() <= set(PAGES)


@pytest.mark.parametrize("page", SOURCES)
def test_sources_of_a_page_are_few_enough_to_find_wrong_digits(page: str) -> None:
    """The last digit of each number of the page is changed; most of the results must be found to be wrong."""
    wrong = []
    for number in set(NUMBER.findall(text_of(page))):
        wrong += [number[:-1] + digit for digit in "0123456789" if digit != number[-1]]
    found = [number for number in wrong if number not in known(SOURCES[page])]
    assert len(found) >= 0.5 * len(wrong), f"{len(found)} of {len(wrong)} wrong numbers are found"


def test_a_wrong_digit_in_the_readme_is_found() -> None:
    text = text_of("README.md")
    assert "90.4 %" in text
    wrong = text.replace("90.4 %", "91.4 %").replace("69.7 %", "69.8 %")
    assert untraced(wrong, SOURCES["README.md"]) == ["91.4", "69.8"]


def test_what_counts_as_a_number() -> None:
    text = (
        "In 12 ms, 3 to 4 % of 1,024 (.198); 47, 55 and 64 %. CIFAR-10, Python 3.11, section 2.1, 5 images, Apache-2.0"
    )
    assert NUMBER.findall(text) == ["12", "3", "4", "1,024", ".198", "47", "55", "64"]


@pytest.mark.slow
def test_the_page_of_benchmarks_is_what_the_program_writes(tmp_path: Path) -> None:
    for folder in ("benchmarks", "results/benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "docs").mkdir()
    subprocess.run([sys.executable, tmp_path / "benchmarks" / "report.py"], check=True, capture_output=True)
    advice = "write it again: python benchmarks/report.py"
    assert (tmp_path / "docs" / "benchmarks.md").read_text() == (ROOT / "docs" / "benchmarks.md").read_text(), advice
