"""The content of a report, computed from records: verdicts, claims, misses, settings and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from onebyone.errors import UsageError
from onebyone.paper import ablation, claims, comparison, figures
from onebyone.paper.ablation import Ablation
from onebyone.paper.claims import CLAIMS, Claim, Finding
from onebyone.paper.comparison import Cell, PaperTable
from onebyone.paper.figures import Drawing
from onebyone.paper.printed import OURS, TITLES, Part
from onebyone.paper.records import CellKey, Records
from onebyone.runs.formats import default_options
from onebyone.runs.record_files import settings

Checked = tuple[Claim, Finding, dict[str, Finding]]  # a claim, in the paper's numbers and in ours, by protocol
FIGURES = ("anytime", "tradeoff", "bytes", "flops", "classes")


@dataclass(frozen=True)
class Study:
    """What a report is about."""

    records: Records
    parts: Sequence[Part]
    protocols: Sequence[str]
    command: str  # that reproduces it; several commands have a line each
    tried: Sequence[Mapping[str, Any]] = ()  # about cells that miss; see :func:`read_tried`
    without: Records = Records()  # runs without a loss on incoming samples

    @property
    def is_quick(self) -> bool:
        return any(part.is_quick for part in self.parts)

    @cached_property
    def tables(self) -> list[PaperTable]:
        """The paper's tables: by part, protocol and metric."""
        return self._tables(part for part in self.parts if part.is_table)

    @cached_property
    def ends(self) -> list[PaperTable]:
        """The end points of the figures' curves, which the paper does not print as numbers; all M in one table."""
        curves = [part for part in self.parts if not part.is_table and not part.beyond]
        if not curves:
            return []
        title = f"{curves[0].title.rpartition(', ')[0]}, at the end of the stream"
        memories = tuple(sorted(memory for part in curves for memory in part.memories))
        return self._tables([replace(curves[0], title=title, memories=memories)])

    @cached_property
    def beyond(self) -> list[PaperTable]:
        """The tables at equal bytes that have runs."""
        return [table for table in self._tables(part for part in self.parts if part.beyond) if table.rows]

    @property
    def compares_costs(self) -> bool:
        """Whether the tables beyond the paper have the cost per sample, relative to ER."""
        return any(table.costs for table in self.beyond)

    def _tables(self, parts: Iterable[Part]) -> list[PaperTable]:
        return [
            table
            for part in parts
            for protocol in self.protocols
            if part.compares_in(protocol)
            for table in comparison.tables(self.records, part, protocol)
        ]

    @property
    def tally(self) -> dict[str, Counter[str]]:
        """The number of cells per verdict, by protocol; see :attr:`PaperTable.distinct` for which cells count."""
        return self._tally(TITLES)

    @property
    def tally_of_ours(self) -> dict[str, Counter[str]]:
        """The same for the methods that the paper proposes: for the others, better is no success."""
        return self._tally(OURS)

    def _tally(self, methods: Collection[str]) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {protocol: Counter() for protocol in self.protocols}
        for table in self.tables:
            found[table.protocol].update(cells[0].verdict for cells in table.distinct if cells[0].method in methods)
        return found

    @cached_property
    def ablation(self) -> dict[CellKey, Ablation]:
        """The methods of the paper without their losses on incoming samples."""
        return ablation.compare(self.records, self.without)

    @property
    def has_single_runs(self) -> bool:
        """Whether some verdict is about a cell with one seed, which has no standard deviation."""
        cells = (cell for table in self.tables for row in table.rows.values() for cell in row)
        return any(cell.paper and cell.ours and cell.ours.runs == 1 for cell in cells)

    @cached_property
    def claims(self) -> list[Checked]:
        """The claims on these parts, in the paper's own numbers and in ours, by protocol."""
        shown = {part.in_print for part in self.parts}
        ours = {name: claims.from_records(self.records, self.parts, name) for name in self.protocols}
        return [
            (claim, claims.check(claim, claims.from_paper), {n: claims.check(claim, look) for n, look in ours.items()})
            for claim in CLAIMS
            if {c.part for c in claim.comparisons} <= shown
        ]

    @property
    def central(self) -> list[tuple[Claim, dict[str, Finding]]]:
        """The claims for which the paper proposes its two methods."""
        return [(claim, findings) for claim, _, findings in self.claims if claim.central]

    @property
    def holding(self) -> dict[str, int]:
        """The number of claims that hold, by protocol."""
        return _holding(self.protocols, [findings for _, _, findings in self.claims])

    @property
    def headline(self) -> str:
        """How many claims hold."""
        return f"Of {len(self.claims)} claims of the paper, {_in_words(self.holding)}."

    @property
    def second_line(self) -> str:
        """How many of the claims that matter most hold."""
        held = _holding(self.protocols, [findings for _, findings in self.central])
        return f"{len(self.central)} of them are the paper's reasons for SupBYOL and CCP. Of these, {_in_words(held)}:"

    @property
    def claims_in_groups(self) -> dict[str, list[Checked]]:
        """The claims by the protocols in which they hold: first those that hold, last those not measured."""
        order = ("holds", "undecided", "fails", "partly measured", "not measured")
        groups: dict[str, list[Checked]] = {}
        for checked in sorted(self.claims, key=lambda c: [order.index(f.verdict) for f in c[2].values()]):
            verdicts = {name: finding.verdict for name, finding in checked[2].items()}
            heading = "; ".join(f"`{name}`: {verdict}" for name, verdict in verdicts.items())
            groups.setdefault(heading, []).append(checked)
        return groups

    @property
    def misses(self) -> dict[str, list[tuple[PaperTable, list[Cell]]]]:
        """The cells that miss by what was tried, with the paper's protocol first.

        Cells that repeat one run over M are together.
        """
        found: dict[str, list[tuple[PaperTable, list[Cell]]]] = {}
        for table in sorted(self.tables, key=lambda table: self.protocols.index(table.protocol)):
            for cells in table.distinct:
                if cells[0].verdict == "missed":
                    found.setdefault(self.what_was_tried(table, cells[0]), []).append((table, cells))
        return found

    def what_was_tried(self, table: PaperTable, cell: Cell) -> str:
        cell_fields = {
            "protocol": table.protocol,
            "method": cell.method,
            "classes_per_task": table.classes_per_task,
            "memory_per_class": cell.memory_per_class,
            "metric": cell.metric,
        }
        for entry in self.tried:
            if all(cell_fields[name] in _list(value) for name, value in entry.items() if name != "tried"):
                return str(entry["tried"])
        return "nothing beyond the tuning yet"

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every setting in use: what differs from the method's defaults, and the rest."""
        seen: dict[str, dict[str, Any]] = {}
        for cell, rows in self.records.cells.items():
            found = settings(rows[0].config)
            options: dict[str, Any] = found.pop("options")
            name, dataset = found.pop("method"), found.pop("dataset")
            defaults = default_options(name)
            changed = {name: value for name, value in options.items() if value != defaults.get(name)}
            rest = {name: value for name, value in options.items() if name not in changed} | found
            names = {"method": name, "dataset": dataset, "protocol": cell.protocol, "hash": self.records.set_to[cell]}
            seen.setdefault(names["hash"], names | found | {"changed": changed, "rest": rest})
        return list(seen.values())

    @cached_property
    def figures(self) -> list[tuple[str, str, str, dict[str, list[Drawing]]]]:
        """Every figure: its kind, data set and protocol, and by M a panel per S."""
        datasets = dict.fromkeys(part.dataset for part in self.parts)
        return [
            (kind, dataset, protocol, figures.drawings(self.records, self.parts, kind, dataset, protocol))
            for kind, dataset, protocol in product(FIGURES, datasets, self.protocols)
        ]


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


def _holding(protocols: Sequence[str], findings: Sequence[Mapping[str, Finding]]) -> dict[str, int]:
    return {name: sum(found[name].verdict == "holds" for found in findings) for name in protocols}


def _in_words(held: Mapping[str, int]) -> str:
    """How many claims hold in each protocol.

    >>> _in_words({"printed": 1, "separate": 7, "joint": 4})
    '1 holds as the paper is printed, 7 with separate passes and 4 with joint passes'
    """
    how = {"printed": "as the paper is printed", "separate": "with separate passes", "joint": "with joint passes"}
    first, *others = (f"{count}{{}} {how[name]}" for name, count in held.items())
    texts = [first.format(" holds" if next(iter(held.values())) == 1 else " hold"), *(o.format("") for o in others)]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
