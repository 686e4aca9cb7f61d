"""The report: a page that opens from disk without a network, figures and tables for papers, a text in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.experiments import claims, comparison, figures
from onebyone.experiments.claims import CLAIMS, Claim, Finding
from onebyone.experiments.comparison import Cell, Grid
from onebyone.experiments.figures import COLOURS, Drawing, Place
from onebyone.experiments.files import whole
from onebyone.experiments.interactive import chart
from onebyone.experiments.paper import TITLES, Part
from onebyone.experiments.records import Records
from onebyone.methods import method

TEMPLATES = Path(__file__).with_name("templates")
DATASETS = {"cifar10": "Split CIFAR-10", "cifar100": "Split CIFAR-100"}
SECTIONS = {  # the title of each, its name in the menu, and what it shows
    "anytime": (
        "Anytime accuracy",
        "Anytime",
        "Accuracy over the classes met so far, after every task. The band is one standard deviation over the seeds. "
        "The paper prints its curves as pictures only, so there are no numbers to lay beside them.",
    ),
    "tradeoff": (
        "Forgetting against accuracy",
        "Forgetting",
        "At the end of the stream. Up and to the left is better; hollow marks are the paper's numbers.",
    ),
    "bytes": (
        "Accuracy against memory",
        "Memory",
        "Bytes of the replay memory when it is full, over all M. A dashed line has no memory.",
    ),
    "flops": (
        "Accuracy against computation",
        "Computation",
        "Floating-point operations for each sample learnt, forward and backward, replay included.",
    ),
    "classes": (
        "Accuracy of every class at the end",
        "Classes",
        "In the order the classes came: what is old stands on the left.",
    ),
}


@dataclass(frozen=True)
class Study:
    """What a report is about."""

    records: Records
    parts: Sequence[Part]
    protocols: Sequence[str]
    command: str  # that makes it again
    tried: Sequence[Mapping[str, Any]] = ()  # on cells that miss; see :func:`read_tried`

    @property
    def is_quick(self) -> bool:
        return any(part.is_quick for part in self.parts)

    @cached_property
    def grids(self) -> list[Grid]:
        """All tables: by part, protocol and metric."""
        return [
            grid
            for part in self.parts
            if part.is_table
            for protocol in self.protocols
            for grid in comparison.grids(self.records, part, protocol)
        ]

    @property
    def tally(self) -> dict[str, Counter[str]]:
        """How many cells with a printed number came out how, by protocol."""
        found: dict[str, Counter[str]] = {protocol: Counter() for protocol in self.protocols}
        for grid in self.grids:
            found[grid.protocol].update(cell.verdict for row in grid.rows.values() for cell in row if cell.paper)
        return found

    @property
    def claims(self) -> list[tuple[Claim, Finding, dict[str, Finding]]]:
        """The claims on these parts, in the paper's own numbers and in ours, by protocol."""
        shown = {part.in_print for part in self.parts}
        ours = {name: claims.from_records(self.records, self.parts, name) for name in self.protocols}
        return [
            (claim, claims.check(claim, claims.from_paper), {n: claims.check(claim, look) for n, look in ours.items()})
            for claim in CLAIMS
            if {c.part for c in claim.comparisons} <= shown
        ]

    @property
    def claims_in_groups(self) -> dict[str, list[Claim]]:
        """By where they hold, in plain words."""
        groups: dict[str, list[Claim]] = {}
        for claim, _, findings in self.claims:
            verdicts = {name: finding.verdict for name, finding in findings.items()}
            holds = [f"`{name}`" for name, verdict in verdicts.items() if verdict == "holds"]
            if any(verdict not in ("holds", "fails") for verdict in verdicts.values()):
                heading = "; ".join(f"`{name}`: {verdict}" for name, verdict in verdicts.items())
            elif holds:
                heading = f"Hold in {' and '.join(holds)}" + (" only" if len(holds) < len(verdicts) else "")
            else:
                heading = "Hold in neither" if len(verdicts) > 1 else "Do not hold"
            groups.setdefault(heading, []).append(claim)
        return dict(sorted(groups.items()))

    @property
    def misses(self) -> list[tuple[Grid, Cell, str]]:
        """The cells that miss, each with what was tried."""
        return [
            (grid, cell, self.what_was_tried(grid, cell))
            for grid in self.grids
            for row in grid.rows.values()
            for cell in row
            if cell.verdict == "missed"
        ]

    def what_was_tried(self, grid: Grid, cell: Cell) -> str:
        (classes,) = grid.part.classes_per_task
        place = {
            "protocol": grid.protocol,
            "method": cell.method,
            "classes_per_task": classes,
            "memory_per_class": cell.memory_per_class,
            "metric": cell.metric,
        }
        for entry in self.tried:
            if all(place[name] in _list(value) for name, value in entry.items() if name != "tried"):
                return str(entry["tried"])
        return "nothing beyond the tuning yet"

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every setting in use: what differs from the method's defaults, and the rest."""
        seen = {}
        for row in self.records.rows:
            if row.settings not in seen:
                settings = self.records.settings[row.settings]
                defaults = asdict(method(row.method).options())
                options: dict[str, Any] = settings["options"]
                changed = {name: value for name, value in options.items() if value != defaults.get(name)}
                rest = {name: value for name, value in options.items() if name not in changed}
                others = {
                    name: value for name, value in settings.items() if name not in ("options", "method", "dataset")
                }
                seen[row.settings] = {"row": row, "changed": changed, "rest": rest | others}
        return list(seen.values())

    @cached_property
    def drawings(self) -> dict[str, dict[str, dict[str, dict[str, list[Drawing]]]]]:
        """Every figure: by section, data set, protocol and M, a panel for each S."""
        return {
            section: {
                dataset: {
                    protocol: self._draw(section, figures.places(self.parts, dataset, protocol))
                    for protocol in self.protocols
                }
                for dataset in dict.fromkeys(part.dataset for part in self.parts)
            }
            for section in SECTIONS
        }

    def _draw(self, section: str, rows: list[list[Place]]) -> dict[str, list[Drawing]]:
        if section == "bytes":  # over all M
            streams = sorted({place.classes_per_task for row in rows for place in row})
            return {"": [figures.against_bytes(self.records, _of(rows, classes)) for classes in streams]}
        make = figures.KINDS[section]
        return {f"M = {row[0].memory_per_class}": [make(self.records, place) for place in row] for row in rows}


def _of(rows: Iterable[Iterable[Place]], classes_per_task: int) -> list[Place]:
    return [place for row in rows for place in row if place.classes_per_task == classes_per_task]


def read_tried(path: Path) -> list[dict[str, Any]]:
    """What was tried on cells that miss: a list of entries with ``tried``, a sentence, and which cells it is about.

    Those are any of protocol, method, classes_per_task, memory_per_class and metric, each a value or a list.
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


def publish(study: Study, page: Path) -> None:
    """The page, and in a folder of its name the figures as PNG and SVG and the tables as LaTeX."""
    with whole(page) as place:
        place.write_text(html(study), encoding="utf-8")
    folder = page.with_suffix("")
    for grid in study.grids:
        with whole(folder / f"{grid.part.name}-{grid.metric}-{grid.protocol}.tex") as place:
            place.write_text(comparison.latex(grid))
    for section, by_dataset in study.drawings.items():
        for dataset, by_protocol in by_dataset.items():
            for protocol, by_memory in by_protocol.items():
                title = f"{_dataset(dataset)}: {SECTIONS[section][0].lower()}, protocol “{protocol}”"
                stem = folder / f"{section}-{dataset}-{protocol}"
                if section == "anytime":  # as in the paper, a figure for each M
                    for memory, drawings in by_memory.items():
                        figures.save(title, [drawings], stem.with_name(f"{stem.name}-{memory.replace(' = ', '')}"))
                else:
                    figures.save(title, list(by_memory.values()), stem)


def html(study: Study) -> str:
    """The page as one text: everything it needs is in it."""
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
    shown = [name for name in TITLES if any(row.method == name for row in study.records.rows)]
    return _fill(
        "report.html",
        study,
        sections=sections,
        about=SECTIONS,
        legend=[(name, TITLES[name], COLOURS[name]) for name in shown],
        plotly=get_plotlyjs(),
        style=(TEMPLATES / "report.css").read_text(),
        script=(TEMPLATES / "report.js").read_text(),
    )


def markdown(study: Study) -> str:
    """The findings for the documentation: claims first, in plain words; then tables; then every miss."""
    return _fill("reproduction.md", study, table=comparison.markdown)


def _fill(template: str, study: Study, **more: Any) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        study=study, titles=TITLES, signs=comparison.SIGNS, name_of=_dataset, **more
    )


def _dataset(name: str) -> str:
    plain = name.removesuffix("-quick")
    return DATASETS.get(plain, plain) + (" (quick: few images)" if plain != name else "")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
