"""Counters and durations in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # seconds


class Metrics:
    """How many requests there were, how they ended, and how long they took."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.samples: Counter[str] = Counter()
        self.buckets: Counter[tuple[str, float]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def finished(self, route: str, status: int, seconds: float) -> None:
        self.requests[route, status] += 1
        self.seconds[route] += seconds
        for bound in BOUNDS:
            if seconds <= bound:
                self.buckets[route, bound] += 1

    def text(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """All of them, and ``gauges``: names, descriptions and values of now."""
        lines = ["# HELP onebyone_requests_total Requests.", "# TYPE onebyone_requests_total counter"]
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'onebyone_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += ["# HELP onebyone_samples_total Samples.", "# TYPE onebyone_samples_total counter"]
        lines += [f'onebyone_samples_total{{kind="{kind}"}} {count}' for kind, count in sorted(self.samples.items())]
        name = "onebyone_request_seconds"
        lines += [f"# HELP {name} Time to answer a request.", f"# TYPE {name} histogram"]
        for route in sorted(self.seconds):
            total = sum(count for (own, _), count in self.requests.items() if own == route)
            lines += [f'{name}_bucket{{route="{route}",le="{each}"}} {self.buckets[route, each]}' for each in BOUNDS]
            lines.append(f'{name}_bucket{{route="{route}",le="+Inf"}} {total}')
            lines.append(f'{name}_sum{{route="{route}"}} {self.seconds[route]:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {total}')
        for gauge, description, value in gauges:
            lines += [f"# HELP {gauge} {description}", f"# TYPE {gauge} gauge", f"{gauge} {value:g}"]
        return "\n".join(lines) + "\n"
