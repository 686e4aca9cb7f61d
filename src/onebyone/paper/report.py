"""The report: a page that needs no network, figures and tables for papers, and a Markdown text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.files import atomic_write
from onebyone.paper import ablation, comparison, pictures
from onebyone.paper.comparison import PaperTable
from onebyone.paper.figures import style
from onebyone.paper.interactive import chart
from onebyone.paper.printed import TITLES, rank
from onebyone.paper.study import Study
from onebyone.runs.table import render

TEMPLATES = Path(__file__).with_name("templates")
DATASETS = {"cifar10": "Split CIFAR-10", "cifar100": "Split CIFAR-100"}
SECTIONS = {  # the title of each, its name in the menu, and what it shows
    "anytime": (
        "Anytime accuracy",
        "Anytime",
        "Accuracy over the classes seen so far, after every task. The band is one standard deviation over the seeds. "
        "The paper prints its curves only as pictures, so there are no numbers to compare with.",
    ),
    "tradeoff": (
        "Forgetting against accuracy",
        "Forgetting",
        "At the end of the stream. Up and to the left is better; hollow marks are the paper's numbers.",
    ),
    "bytes": (
        "Accuracy against memory",
        "Memory",
        "Bytes of the replay memory when it is full, or of statistics, over all M. A dashed line has no memory.",
    ),
    "flops": (
        "Accuracy against computation",
        "Computation",
        "Floating-point operations for each sample learnt, forward and backward, replay included, against those of ER.",
    ),
    "classes": (
        "Accuracy of every class at the end",
        "Classes",
        "In order of arrival: the oldest class is on the left.",
    ),
}


def check_page(page: Path) -> None:
    """Refuse a page whose folder of figures, which has the name of the page, holds other files."""
    folder = page.with_suffix("")
    if page.suffix != ".html":
        raise UsageError(f"{page} does not end in .html; call it {page.name}.html")
    inside = sorted(folder.iterdir()) if folder.is_dir() else [folder] if folder.exists() else []
    # Names with a leading dot belong to the system, or to a report that was killed while it was written.
    others = [path for path in inside if path.suffix not in (".png", ".svg", ".tex") and not path.name.startswith(".")]
    if others:
        raise UsageError(f"the figures of {page} go into {folder}, and {others[0]} is there; choose another name")


def publish(study: Study, page: Path) -> None:
    """The page, and in a folder of its name the figures as PNG and SVG and the tables as LaTeX."""
    check_page(page)
    with atomic_write(page) as temporary:
        temporary.write_text(html(study), encoding="utf-8")
    folder = page.with_suffix("")
    for table in (*study.tables, *study.ends, *study.beyond):
        name = table.part.name if table.part.is_table else f"{table.part.name}-s{table.classes_per_task}"
        with atomic_write(folder / f"{name}-{table.metric}-{table.protocol}.tex") as temporary:
            temporary.write_text(render(table.table("numbers"), "latex") + "\n")
    for section, by_dataset in study.drawings.items():
        for dataset, by_protocol in by_dataset.items():
            for protocol, by_memory in by_protocol.items():
                title = f"{_dataset(dataset)}: {SECTIONS[section][0].lower()}, protocol “{protocol}”"
                stem = folder / f"{section}-{dataset}-{protocol}"
                if section == "anytime":  # as in the paper, a figure for each M
                    for memory, drawings in by_memory.items():
                        pictures.save(title, [drawings], stem.with_name(f"{stem.name}-{memory.replace(' = ', '')}"))
                else:
                    pictures.save(title, list(by_memory.values()), stem)


def html(study: Study) -> str:
    """The page as one text that needs no other file."""
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise UsageError("the page needs plotly; install it with: pip install 'onebyone[report]'") from None
    sections = {
        section: {
            dataset: {p: {m: [chart(d) for d in ds] for m, ds in by_memory.items()} for p, by_memory in found.items()}
            for dataset, found in by_dataset.items()
        }
        for section, by_dataset in study.drawings.items()
    }
    shown = sorted({row.config["method"] for row in study.records}, key=rank)
    return _fill(
        "report.html",
        study,
        sections=sections,
        about=SECTIONS,
        legend=[(name, TITLES[name], style(name)[0]) for name in shown],
        plotly=get_plotlyjs(),
        style=(TEMPLATES / "report.css").read_text(),
        script=(TEMPLATES / "report.js").read_text(),
    )


def markdown(study: Study) -> str:
    """The report for the documentation: claims first, then tables, then every cell that misses."""
    return _fill("reproduction.md", study, render=render)


def _fill(template: str, study: Study, **more: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        study=study,
        titles=TITLES,
        signs=comparison.SIGNS,
        name_of=_dataset,
        over=_over,
        ablation=ablation.table(study.ablation, DATASETS),
        **more,
    )


def _over(tables: Sequence[PaperTable]) -> str:
    """Over how many seeds the numbers of some tables are: those of the cell that has most."""
    seeds = max((table.seeds for table in tables), default=0)
    several = f", mean ± standard deviation (with the number of runs as divisor) over {seeds} seeds"
    return {0: "", 1: ", of one seed"}.get(seeds, several)


def _dataset(name: str) -> str:
    plain = name.removesuffix("-quick")
    return DATASETS.get(plain, plain) + (" (quick: few images)" if plain != name else "")
