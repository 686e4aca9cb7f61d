"""The report: a page that needs no network, figures and tables for papers, and Markdown pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.files import atomic_write
from onebyone.paper import ablation, comparison, pictures
from onebyone.paper.comparison import PaperTable
from onebyone.paper.figures import Drawing, style
from onebyone.paper.printed import TITLES, rank
from onebyone.paper.protocols import ABOUT
from onebyone.paper.study import Study
from onebyone.paper.svg import CSS, mark_id, marks, standalone, svg
from onebyone.runs.table import render

TEMPLATES = Path(__file__).with_name("templates")
PAGES = ("index", "tables", "figures", "misses", "settings")  # of the Markdown, a template each
DATASETS = {"cifar10": "Split CIFAR-10", "cifar100": "Split CIFAR-100"}
SECTIONS = {  # the title of each, its name in the menu, and what it shows
    "anytime": (
        "Anytime accuracy",
        "Anytime",
        "The accuracy over the classes seen so far, after every task. The band is one standard deviation over the "
        "seeds. The paper prints its curves only as pictures, so there are no numbers to compare with.",
    ),
    "tradeoff": (
        "Forgetting against accuracy",
        "Forgetting",
        "Both are measured at the end of the stream. Up and to the left is better. Hollow marks are the paper's "
        "numbers.",
    ),
    "bytes": (
        "Accuracy against memory",
        "Memory",
        "The memory is the bytes of a full replay memory, or of the statistics, for all M. A dashed line is a method "
        "without a memory.",
    ),
    "flops": (
        "Accuracy against computation",
        "Computation",
        "Computation is the number of floating-point operations per incoming sample, relative to ER. It includes "
        "forward and backward passes, and replay.",
    ),
    "classes": (
        "Accuracy of every class at the end",
        "Classes",
        "The accuracy is in per cent. Classes are in order of arrival, with the oldest class on the left.",
    ),
}
TEXTS = {  # in Markdown; the page shows the same
    "verdicts": (
        "A cell is one number of a table of the paper. If our mean and the paper's differ by at most two standard "
        "errors of their difference, it is **reproduced**, or **undecided** if that error is above one point. "
        "Otherwise it is **better** or **missed**. A baseline that is better than in print is not a success: the "
        "paper's methods have more to beat. The standard error uses the standard deviation that the paper prints, with "
        "five runs. Cells that repeat one run for every M (iid online, fine-tuning) are counted once."
    ),
    "tuning": (
        "In `separate`, the settings of the paper's methods were tuned. They are used in `joint` too, and were not "
        "tuned again with joint passes."
    ),
    "single": "A number of one seed has no standard deviation. Its verdict uses only the paper's.",
    "ablation": (
        "The table shows SupBYOL without equation 1 and CCP without equation 3 (`incoming_weight=0`). The learning "
        "rate was tuned again on held-out data, and everything else is unchanged. Numbers are the accuracy in per "
        "cent with separate passes. The difference from the complete method is in brackets, with * if it is more "
        "than two standard errors"
    ),
    "ablated": (
        "If SupBYOL and CCP answer by prototypes, most of their accuracy with one class per task does not come from "
        "their losses on incoming samples (equations 1 and 3). Most of it remains if incoming samples have no loss at "
        "all, so that the incoming class is not contrasted with the others."
    ),
    "claims": (
        "A comparison holds or fails if the difference is beyond the margin by more than two standard errors. "
        "Otherwise it is undecided. A claim fails if one of its comparisons fails, and holds if all of them hold."
    ),
    "ends": "The paper shows these curves only as pictures, so there are no numbers to compare with.",
    "beyond": (
        "In each column, `patch-lda` and `hybrid` have at most the bytes of M images per class. The other methods "
        "store M images per class, with their labels (up to 4 % more bytes). DER++ also stores logits (13 % more on "
        "CIFAR-100). `replay`, `hybrid` and `patch-lda` are not in the paper. All numbers are with joint passes. "
        "**The settings of the paper's methods were tuned with separate passes, those of `replay` and `hybrid` with "
        "joint passes.** The paper calls ER-AML and ER-ACE inapplicable with one class per task, but they can be "
        "run. ER-AML then learns only from its memory, and ER-ACE almost only."
    ),
    "costs": "Methods are sorted by floating-point operations per sample, forward and backward, including replay.",
}


def check_page(page: Path) -> None:
    """Refuse a page whose folder of figures, which has the name of the page, holds other files."""
    if page.suffix != ".html":
        raise UsageError(f"{page} does not end in .html; call it {page.name}.html")
    _check_folder(page.with_suffix(""), (".png", ".svg", ".tex"), f"the figures of {page}", "name")


def check_folder(folder: Path) -> None:
    """Refuse a folder for Markdown that holds other files."""
    _check_folder(folder, (".md", ".svg"), "the pages", "folder")


def _check_folder(folder: Path, suffixes: Sequence[str], what: str, advice: str) -> None:
    inside = sorted(folder.iterdir()) if folder.is_dir() else [folder] if folder.exists() else []
    # Names with a leading dot belong to the system, or to a report that was killed while it was written.
    others = [path for path in inside if path.suffix not in suffixes and not path.name.startswith(".")]
    if others:
        raise UsageError(f"{what} go into {folder}, and {others[0]} is there; choose another {advice}")


def publish(study: Study, page: Path) -> None:
    """The page, and in a folder of its name the figures as PNG and SVG and the tables as LaTeX."""
    check_page(page)
    _write(page, html(study))
    folder = page.with_suffix("")
    for table in (*study.tables, *study.ends, *study.beyond):
        name = table.part.name if table.part.is_table else f"{table.part.name}-s{table.classes_per_task}"
        _write(folder / f"{name}-{table.metric}-{table.protocol}.tex", render(table.table("numbers"), "latex") + "\n")
    for section, dataset, protocol, by_memory in study.figures:
        title = f"{_dataset(dataset)}: {SECTIONS[section][0].lower()}, protocol “{protocol}”"
        stem = folder / f"{section}-{dataset}-{protocol}"
        if section == "anytime":  # as in the paper, a figure for each M
            for memory, drawings in by_memory.items():
                pictures.save(title, [drawings], stem.with_name(f"{stem.name}-{memory.replace(' = ', '')}"))
        else:
            pictures.save(title, list(by_memory.values()), stem)


def publish_markdown(study: Study, folder: Path) -> None:
    """The Markdown pages and the figures in them."""
    check_folder(folder)
    for name, text in markdown(study).items():
        _write(folder / f"{name}.md", text)
    for _, title, name, drawing in selected(study):
        _write(folder / name, standalone(drawing, title))


def html(study: Study) -> str:
    """The page as one text that needs no other file."""
    sections: dict[str, Any] = {}
    for section, dataset, protocol, by_memory in study.figures:
        drawn = {memory: [svg(drawing) for drawing in drawings] for memory, drawings in by_memory.items()}
        sections.setdefault(section, {}).setdefault(dataset, {})[protocol] = drawn
    shown = sorted({row.config["method"] for row in study.records}, key=rank)
    return _fill(
        "report.html",
        study,
        sections=sections,
        about=SECTIONS,
        legend=[(name, TITLES[name], style(name)[0].replace("#000000", "var(--ink)"), mark_id(name)) for name in shown],
        marks=marks(shown),
        style=CSS + (TEMPLATES / "report.css").read_text(),
        script=(TEMPLATES / "report.js").read_text(),
        inline=_inline,
    )


def markdown(study: Study) -> dict[str, str]:
    """The Markdown pages by name: the verdict (``index``), tables, figures, cells that miss, and settings."""
    figures: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
    for section, title, name, drawing in selected(study):
        figures[section].append((f"{title}: {drawing.title}", name))
    pages = {page: _fill(f"{page}.md", study, sections=SECTIONS, figures=figures) for page in PAGES}
    return {name: re.sub(r"\n{3,}", "\n\n", page).strip() + "\n" for name, page in pages.items()}


def selected(study: Study) -> Iterator[tuple[str, str, str, Drawing]]:
    """The figures of the Markdown: section, title, file name and drawing.

    They are at the largest M, and with separate passes unless they compare costs.
    """
    for section, dataset, protocol, by_memory in study.figures:
        wanted = "joint" if section in ("bytes", "flops") else "separate"
        if protocol == (wanted if wanted in study.protocols else study.protocols[0]):
            for number, drawing in enumerate(list(by_memory.values())[-1]):
                yield section, _dataset(dataset), f"{section}-{dataset}-{number + 1}.svg", drawing


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _fill(template: str, study: Study, **more: Any) -> str:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    except ModuleNotFoundError:
        raise UsageError("the report needs jinja2; install it with: pip install 'onebyone[report]'") from None

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["title_of"] = TITLES.__getitem__
    environment.filters["in_lines"] = _in_lines
    return environment.get_template(template).render(
        study=study,
        titles=TITLES,
        signs=comparison.SIGNS,
        texts=TEXTS,
        protocols=ABOUT,
        name_of=_dataset,
        over=_over,
        render=lambda table: render(table, "markdown"),
        ablation=ablation.table(study.ablation, DATASETS),
        **more,
    )


def _inline(text: str) -> Any:
    """A sentence of Markdown as HTML: code, and bold."""
    from markupsafe import Markup

    code = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", code))


def _in_lines(commands: str, width: int = 88) -> str:
    """Commands of the shell without long lines.

    >>> print(_in_lines("onebyone reproduce all --seeds 5", width=24))
    onebyone reproduce \\
        all --seeds 5
    """
    lines = (textwrap.wrap(line, width - 6, break_on_hyphens=False) for line in commands.splitlines())
    return "\n".join(" \\\n    ".join(line) for line in lines)


def _over(tables: Sequence[PaperTable]) -> str:
    """Over how many seeds the numbers of some tables are: those of the cell that has most."""
    seeds = max((table.seeds for table in tables), default=0)
    several = f", mean ± standard deviation (with the number of runs as divisor) over {seeds} seeds"
    return {0: "", 1: ", of one seed"}.get(seeds, several)


def _dataset(name: str) -> str:
    plain = name.removesuffix("-quick")
    return DATASETS.get(plain, plain) + (" (quick: few images)" if plain != name else "")
