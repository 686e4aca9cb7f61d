"""The report: Markdown pages and figures, or one page with both, and tables as LaTeX."""

from __future__ import annotations

import base64
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebyone.errors import UsageError
from onebyone.files import atomic_write
from onebyone.paper import claims, comparison
from onebyone.paper.claims import CLAIMS, Claim, Finding
from onebyone.paper.comparison import OLD, SIGNS, markdown
from onebyone.paper.figures import KINDS, figures, save, title
from onebyone.paper.printed import DATASETS, OURS, TITLES, Part
from onebyone.paper.protocols import protocols
from onebyone.paper.records import Records
from onebyone.runs.formats import default_options
from onebyone.runs.record_files import settings

if TYPE_CHECKING:
    from pandas import DataFrame

VERDICTS = ("reproduced", "better", "missed", "undecided", "no runs yet")
OUTCOMES = ("holds", "fails", "undecided", "not measured")
RULES = """A cell is one number of a table of the paper. If our mean and the paper's differ by at most two standard
errors of their difference, it is **reproduced**, or **undecided** if that error is above one point. Otherwise it is
**better** or **missed**. A baseline that is better than in print is no success: the paper's methods have more to beat.
The standard error uses the standard deviation that the paper prints, with five runs. For a cell of one run, which has
none, it uses only the paper's."""
COMPARED = """A comparison of two methods holds or fails if the difference is beyond its margin by more than two
standard errors, and else is undecided. A claim fails if one of its comparisons fails, holds if all hold, and else is
undecided. Curves are not printed as numbers, so only the text about them is checked."""
BEYOND = """In each column, `patch-lda` and `hybrid` have at most the bytes of M images per class. The other methods
store M images per class, with their labels (up to 4 % more bytes). DER++ also stores logits (13 % more on CIFAR-100).
`replay`, `hybrid` and `patch-lda` are not in the paper. All numbers are with joint passes. **The settings of the
paper's methods were tuned with separate passes, those of `replay` and `hybrid` with joint passes.** The paper calls
ER-AML and ER-ACE inapplicable with one class per task, but they can be run. ER-AML then learns only from its memory,
and ER-ACE almost only. Methods are sorted by floating-point operations per sample."""
OLDER = f"""{OLD} marks older runs: the search that is to choose their settings has not been done. They have the
settings of an earlier tuning, which tried more settings of some methods than of others. In them, SupBYOL and CCP answer
by prototypes."""
STYLE = """body{max-width:68rem;margin:0 auto;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:#22252b}
div.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.82rem;margin:.6rem 0}pre{overflow-x:auto}
th,td{padding:.2rem .6rem;border-bottom:1px solid #e3e0d8;text-align:left;vertical-align:top}pre{background:#f4f3ef;
padding:.8rem}li code,p code{overflow-wrap:anywhere}.pair p{display:flex;flex-wrap:wrap;gap:1rem}
.pair img{width:100%;max-width:30rem}"""


@dataclass(frozen=True)
class Study:
    """The content of a report."""

    records: Records
    parts: Sequence[Part]
    protocols: Sequence[str]
    command: str  # that reproduces it; several commands have a line each
    tried: Sequence[Mapping[str, Any]] = ()  # about missed cells; see :func:`read_tried`

    @property
    def is_quick(self) -> bool:
        return any(part.is_quick for part in self.parts)

    @cached_property
    def cells(self) -> DataFrame:
        """The cells of the tables, of the ends of the curves, and of the tables beyond the paper."""
        return comparison.cells(self.records, self.parts, self.protocols)

    def tables(self, kind: str = "") -> Iterator[tuple[str, DataFrame]]:
        """The rows of each table: of the paper (``table``), the ends of its ``curve``, and ``beyond``; or of all."""
        for (name, metric), rows in self.cells.groupby(["table", "metric"], sort=False) if len(self.cells) else ():
            part = rows["part"].iloc[0]
            found = "beyond" if part.beyond else "table" if part.is_table else "curve"
            if kind in ("", found) and (found != "beyond" or rows["ours"].notna().any()):
                yield f"{name}: {metric}", rows

    @cached_property
    def compared(self) -> list[Any]:
        """The cells with a printed number. One that repeats a run over M, as of iid, is there once."""
        return [row for _, rows in self.tables("table") for row in rows.itertuples() if row.paper is not None]

    def tally(self, protocol: str, methods: Sequence[str] = tuple(TITLES)) -> Counter[str]:
        """The number of printed cells per verdict."""
        return Counter(c.verdict for c in self.compared if c.protocol == protocol and c.cell.method in methods)

    @cached_property
    def claims(self) -> list[tuple[Claim, dict[str, Finding]]]:
        """The claims on these parts, in the paper's own numbers and in ours, by protocol."""
        shown = {part.in_print for part in self.parts}
        looks = {name: claims.from_records(self.records, self.parts, name) for name in self.protocols}
        looks = {"in print": claims.from_paper} | looks
        some = [claim for claim in CLAIMS if {c.part for c in claim.comparisons} <= shown]
        return [(claim, {name: claims.check(claim, look) for name, look in looks.items()}) for claim in some]

    def outcomes(self, name: str) -> Counter[str]:
        """The number of claims per verdict, in a protocol or in print."""
        return Counter(findings[name].verdict for _, findings in self.claims)

    @property
    def headline(self) -> str:
        """How many claims hold, of those for which some comparison could be made."""
        counts = {name: self.outcomes(name) for name in self.protocols}
        measured = {name: len(self.claims) - found["not measured"] for name, found in counts.items()}
        held = _listed([f"{counts[name]['holds']} of {measured[name]} in `{name}`" for name in self.protocols])
        return f"Of the paper's {len(self.claims)} claims, these hold as far as measured: {held}."

    @property
    def numbers(self) -> str:
        """How many of the numbers of the paper's own methods are reproduced."""
        found, total = [], self.tally(self.protocols[0], OURS).total()
        for name in self.protocols:
            tally = self.tally(name, OURS)
            counts = _listed([f"{tally[verdict]} {verdict}" for verdict in VERDICTS if tally[verdict]])
            found.append(f"in `{name}` {counts}")
        return f"Of the {total} numbers that it prints for SupBYOL and CCP, {'; '.join(found)}." if total else ""

    @property
    def misses(self) -> list[list[str]]:
        """A row for every missed cell."""
        return [
            [
                f"{cell.part.in_print.replace('table', 'table ')}, `{cell.protocol}`, {cell.metric}, {cell.M}",
                cell.method,
                f"{cell.ours} ({cell.paper})",
                escape(self.what_was_tried(cell), quote=False),
            ]
            for cell in sorted(self.compared, key=lambda cell: self.protocols.index(cell.protocol))
            if cell.verdict == "missed"
        ]

    def what_was_tried(self, cell: Any) -> str:
        about = cell.cell._asdict() | {"metric": cell.metric}
        for entry in self.tried:
            wanted = {name: value if isinstance(value, list) else [value] for name, value in entry.items()}
            if all(about[name] in values for name, values in wanted.items() if name != "tried"):
                return str(entry["tried"]).rstrip(".")
        return "nothing yet"

    @property
    def settings(self) -> dict[str, list[list[str]]]:
        """By data set: the method, S, the protocol, the options that differ from the defaults, and the hash."""
        found: dict[str, dict[str, list[str]]] = {}
        for cell, rows in self.records.cells.items():
            used, name = settings(rows[0].config), self.records.set_to[cell]
            defaults = default_options(used["method"])
            changed = [f"`{key}={value}`" for key, value in used["options"].items() if value != defaults.get(key)]
            row = [TITLES[cell.method], str(cell.classes_per_task), cell.protocol]
            row += [", ".join(changed) or "defaults", f"`{name}`"]
            found.setdefault(cell.dataset, {}).setdefault(name + cell.protocol, row)
        return {dataset: list(rows.values()) for dataset, rows in found.items()}


def pages(study: Study) -> dict[str, str]:
    """The Markdown pages by name."""
    found = {
        "claims": _claims(study),
        "tables": _tables(study),
        "figures": _figures(study),
        "settings": _settings(study),
    }
    return {name: "\n\n".join(filter(None, text)).strip() + "\n" for name, text in found.items()}


def _claims(study: Study) -> Iterator[str]:
    yield "# The paper, run again"
    if study.is_quick:
        yield "**QUICK: few images and one seed. This shows that everything works; the numbers have no meaning.**"
    if study.claims:
        yield f"**{study.headline}** {study.numbers}".strip()
    rows = [[claim.text, *(f[name].verdict for name in study.protocols)] for claim, f in study.claims if claim.central]
    if rows:
        yield "These claims are the paper's reasons for SupBYOL and CCP:"
        yield markdown(["claim", *study.protocols], rows, 1)
    yield "\n".join(f"- Protocol `{name}`: {protocols()[name]['about']}" for name in study.protocols)
    yield _older(study)
    yield (
        "Other pages show [all tables](tables.md), [the figures](figures.md), and [settings and missed "
        "cells](settings.md). They are generated from records of runs, as this one."
    )
    if study.compared:
        yield f"## How many of its numbers are reproduced\n\n{RULES}"
        groups = {"": tuple(TITLES), ", SupBYOL and CCP": OURS}
        tallies = {f"`{name}`{of}": study.tally(name, some) for of, some in groups.items() for name in study.protocols}
        counts = [[name, *(tally[verdict] for verdict in VERDICTS)] for name, tally in tallies.items()]
        yield markdown(["protocol", *VERDICTS], counts, 1)
    if study.claims:
        names = ["in print", *study.protocols]
        yield f"## Which of its claims hold\n\n{COMPARED}"
        yield markdown(["claims", *OUTCOMES], [[n, *(study.outcomes(n)[o] for o in OUTCOMES)] for n in names], 1)
        rows = [[str(n), c.text, *(f[name].verdict for name in names)] for n, (c, f) in enumerate(study.claims, 1)]
        yield markdown(["", "claim", *names], rows)
        yield "A line for each claim: where it is, how it is read, and why it holds or not."
        yield "\n".join(f"{n}. {_why(*found)}" for n, found in enumerate(study.claims, 1))


def _why(claim: Claim, findings: Mapping[str, Finding]) -> str:
    measured = {name: finding.why for name, finding in findings.items() if finding.missing < finding.total}
    why = ". ".join(f"*{name}*: {text}" for name, text in measured.items())
    return f"{claim.where[0].upper()}{claim.where[1:]}. Read as: {claim.reading}. {why or 'Not measured'}."


def _older(study: Study) -> str:
    return OLDER if len(study.cells) and any(OLD in text for text in study.cells["text"]) else ""


def _tables(study: Study) -> Iterator[str]:
    seeds = max((len(rows) for rows in study.records.cells.values()), default=0)
    over = {0: "", 1: ", of one seed"}.get(seeds, f", mean ± sample standard deviation over {seeds} seeds")
    signs = ", ".join(f"{sign} {name}" for name, sign in SIGNS.items())
    yield f"# Tables\n\nNumbers are in per cent{over}. Signs: {signs}."
    yield _older(study)
    yield RULES if study.compared else ""
    for kind, heading, about in (
        ("table", "", ""),
        ("curve", "Where the curves end", "The paper shows these curves only as pictures."),
        ("beyond", "Beyond the paper, at equal bytes and equal compute", BEYOND),
    ):
        for number, (name, rows) in enumerate(study.tables(kind)):
            found = comparison.table(rows)
            yield f"## {heading}\n\n{about}" if heading and not number else ""
            yield f"##{'#' * bool(heading)} {name}"
            yield markdown(list(found), found.itertuples(index=False), 1 if kind == "beyond" else 2)


def _figures(study: Study) -> Iterator[str]:
    yield (
        "# Figures\n\nEach figure has a panel for every protocol that has runs, at the largest M. Memory and "
        "computation are compared with joint passes only. `onebyone report --out` draws the first two for every M."
    )
    drawn = list(figures(study.records, study.parts, study.protocols, largest=True))
    for kind, draw in KINDS.items():
        heading, _, about = " ".join(str(draw.__doc__).split()).partition(": ")
        shown = "\n".join(f"![{heading}: {title(k, panels)}]({name}.svg)" for k, name, panels in drawn if k == kind)
        about = about[0].upper() + about[1:]
        yield f'## {heading}\n\n{about}\n\n<div class="pair" markdown>\n\n{shown}\n\n</div>' if shown else ""


def _settings(study: Study) -> Iterator[str]:
    yield f"# Settings\n\nThese commands reproduce everything:\n\n```sh\n{_in_lines(study.command)}\n```"
    yield "This command writes these pages again from the records:"
    yield "```sh\nonebyone report results --markdown docs/reproduction\n```"
    if study.compared:
        missed = markdown(["where", "method", "ours (paper)", "what was tried"], study.misses, 4)
        yield f"## Missed cells\n\n{missed if study.misses else 'No cell that was run is missed.'}"
    yield "## Machines and versions"
    yield "\n".join(
        f"- {runs} runs on {made.get('device', made['type'])}"
        + "".join(f", {name} {made[name]}" for name in sorted(made.keys() - {"device", "type", "data"}))
        + f", checksum of the data `{made['data']}`"
        for made, runs in study.records.environments.values()
    )
    yield (
        "## Options\n\nThe options that differ from the defaults of each method. *S* is the number of classes per "
        "task. The hash names the complete settings in `settings.json` beside the records; the row of every run has it."
    )
    for dataset, rows in study.settings.items():
        yield f"### {DATASETS.get(dataset, dataset)}"
        yield markdown(["method", "S", "protocol", "settings", "hash"], rows, 5)


def check_page(page: Path) -> None:
    """Refuse a page whose folder of figures, which has the name of the page, holds other files."""
    if page.suffix != ".html":
        raise UsageError(f"{page} does not end in .html; call it {page.name}.html")
    check_folder(page.with_suffix(""), (".svg", ".tex"), f"the figures of {page}", "name")


def check_folder(
    folder: Path, suffixes: Sequence[str] = (".md", ".svg"), what: str = "the pages", advice: str = "folder"
) -> None:
    """Refuse a folder that holds other files."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else [folder] if folder.exists() else []
    # Names with a leading dot belong to the system, or to a report that was killed while it was written.
    others = [path for path in inside if path.suffix not in suffixes and not path.name.startswith(".")]
    if others:
        raise UsageError(f"{what} go into {folder}, and {others[0]} is there; choose another {advice}")


def publish(study: Study, page: Path) -> None:
    """The page, and in a folder of its name the figures for every M and the tables as LaTeX."""
    check_page(page)
    if missing := [name for name in ("jinja2", "markdown", "pandas") if not find_spec(name)]:
        raise UsageError(f"the report needs {missing[0]}; install it with: pip install 'onebyone[research]'")
    folder = page.with_suffix("")
    for largest in (True, False):
        for kind, name, panels in figures(study.records, study.parts, study.protocols, largest):
            save(kind, panels, study.records, folder / f"{name}.svg")
    _write(page, html(study, folder))
    for name, rows in study.tables():
        part, cell = rows["part"].iloc[0], rows["cell"].iloc[0]
        stem = part.name if part.is_table else f"{part.name}-s{cell.classes_per_task}"
        _write(folder / f"{stem}-{rows['metric'].iloc[0]}.tex", latex(comparison.table(rows), f"{name}, in per cent"))


def latex(table: DataFrame, caption: str) -> str:
    """A table for a paper; a verdict is a letter."""
    signs = {SIGNS[verdict]: rf"\textsuperscript{{{verdict[0]}}}" for verdict in VERDICTS[:-1]}
    written = {"_": r"\_", "±": r"$\pm$", "–": "--", "…": "", OLD: r"\textsuperscript{o}"} | signs
    found = table.map(lambda text: re.sub("|".join(map(re.escape, written)), lambda sign: written[sign[0]], text))
    note = ", ".join(f"{verdict[0]}: {verdict}" for verdict in VERDICTS[:-1])
    text: str = found.to_latex(index=False, caption=f"{caption} ({note}, o: older settings).".replace("_", r"\_"))
    return text


def publish_markdown(study: Study, folder: Path) -> None:
    """The Markdown pages and the figures in them."""
    check_folder(folder)
    for name, text in pages(study).items():
        _write(folder / f"{name}.md", text)
    for kind, name, panels in figures(study.records, study.parts, study.protocols, largest=True):
        save(kind, panels, study.records, folder / f"{name}.svg")


def html(study: Study, folder: Path) -> str:
    """The Markdown pages as one page that needs no other file, with the figures of this folder in it."""
    from markdown import markdown as converted

    text = re.sub(r"\]\((\w+)\.md\)", r"](#\1)", "\n\n".join(pages(study).values()))
    body: str = converted(text, extensions=["tables", "fenced_code", "toc", "md_in_html"])
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")

    def inside(found: re.Match[str]) -> str:
        return f'src="data:image/svg+xml;base64,{base64.b64encode((folder / found[1]).read_bytes()).decode()}"'

    body = re.sub(r'src="([^"]+\.svg)"', inside, body)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f'<link rel="icon" href="data:,"><title>The paper, run again</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def read_tried(path: Path) -> list[dict[str, Any]]:
    """What was tried on cells that miss: a list of entries with ``tried``, a sentence, and the cells it is about.

    Cells are given by protocol, method, classes_per_task, memory_per_class and metric, each a value or a list.
    """
    import yaml

    known = {"protocol", "method", "classes_per_task", "memory_per_class", "metric", "tried"}
    try:
        entries = yaml.safe_load(path.read_bytes()) if path.exists() else []
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML ({' '.join(str(error).split())})") from None
    for entry in entries or []:
        if not isinstance(entry, dict) or "tried" not in entry or not entry.keys() <= known:
            raise UsageError(f"{path}: {entry!r} must have a sentence, tried, and else only {', '.join(sorted(known))}")
    return entries or []


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _listed(texts: Sequence[str]) -> str:
    """A list in a sentence.

    >>> _listed(["one", "two", "three"])
    'one, two and three'
    """
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def _in_lines(commands: str, width: int = 88) -> str:
    """Commands of the shell without long lines.

    >>> print(_in_lines("onebyone reproduce all --seeds 5", width=24))
    onebyone reproduce \\
        all --seeds 5
    """
    lines = (textwrap.wrap(line, width - 6, break_on_hyphens=False) for line in commands.splitlines())
    return "\n".join(" \\\n    ".join(line) for line in lines)
