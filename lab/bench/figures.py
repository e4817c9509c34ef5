"""Figures of a measurement: some repeats of one figure, its goal, and the machine's limit that bounds it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a figure should keep: at least `least`, or at most `most`; `stretch` is a better one."""

    least: float | None = None
    most: float | None = None
    stretch: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether the value keeps the bound."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def value(self) -> float:
        """The bound itself."""
        bound = self.least if self.least is not None else self.most
        assert bound is not None
        return bound


@dataclass(slots=True)
class Other:
    """The same figure of somebody else, measured in turns with ours.

    Attributes:
        name: Whose it is.
        values: One a repeat, in the order of measuring.
        least: How many times as fast ours should be; None where that only informs.
        most: In place of `least`, the part of theirs that ours may be at most.
        stretch: A better bound to reach for, of the same kind.
    """

    name: str
    values: list[float] = field(default_factory=list)
    least: float | None = None
    most: float | None = None
    stretch: float | None = None

    @property
    def median(self) -> float:
        """The middle of the repeats."""
        return statistics.median(self.values)


@dataclass(slots=True)
class Figure:
    """One figure of one run.

    Attributes:
        name: What was measured, with its conditions.
        unit: Of `values`, the goal and the limit: "msg/s", "us a call", "s", ...
        values: One a repeat, in the order of measuring.
        goal: What it should reach; None for a figure that only informs.
        limit: The name of the machine's limit that bounds it, and that limit in the figure's own unit.
        note: What a reader must know beside the number.
        other: Who did the same in the same run.
    """

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    goal: Goal | None = None
    limit: tuple[str, float] | None = None
    note: str = ""
    other: Other | None = None

    @property
    def median(self) -> float:
        """The middle of the repeats."""
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        """The figure as a part of its limit."""
        return self.median / self.limit[1] if self.limit is not None and self.limit[1] else None

    def add_other(self, value: float) -> None:
        """One more value of the other."""
        assert self.other is not None
        self.other.values.append(value)

    @property
    def times(self) -> float | None:
        """Ratio to the other: of a rate ours / other's, of a time the other's / ours."""
        if self.other is None:
            return None
        return self._times(self.median, self.other.median)

    def _times(self, ours: float, others: float) -> float:
        return ours / others if self.unit.endswith("/s") else others / ours

    @property
    def part(self) -> float | None:
        """The part of the other's that it is."""
        return None if self.other is None else self.median / self.other.median

    @property
    def rounds(self) -> list[float]:
        """`times`, or `part` where that is bounded, of each round; empty where not both were measured in each."""
        if self.other is None or len(self.values) != len(self.other.values):
            return []
        pairs = zip(self.values, self.other.values, strict=True)
        if self.other.most is None:
            return [self._times(ours, others) for ours, others in pairs]
        return [ours / others for ours, others in pairs]

    @property
    def keeps_up(self) -> bool:
        """Whether it is as many times as fast as the other as it should be, or no greater a part of it."""
        if self.other is None or self.times is None or self.part is None:
            return False
        if self.other.most is not None:
            return self.part <= self.other.most
        return self.times >= (self.other.least or 0)

    def to_json(self) -> dict[str, object]:
        """All of it, for the file that is kept."""
        other = self.other
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": self.values,
            "goal": None if self.goal is None else asdict(self.goal),
            "met": None if self.goal is None else self.goal.is_met(self.median),
            "limit": None if self.limit is None else {"name": self.limit[0], "value": self.limit[1]},
            "ratio": self.ratio,
            "note": self.note,
            "other": other
            and {
                "name": other.name,
                "median": other.median,
                "values": other.values,
                "times": self.times,
                "part": self.part,
                "rounds": self.rounds,
                "least": other.least,
                "most": other.most,
                "stretch": other.stretch,
                "met": None if other.least is None and other.most is None else self.keeps_up,
            },
        }


def lower(*limits: tuple[str, float]) -> tuple[str, float]:
    """Of several limits the one that bounds: the least rate; 0 is none."""
    return min((limit for limit in limits if limit[1]), key=lambda limit: limit[1])


class Stopwatch:
    """Seconds of a `with` block."""

    seconds = 0.0


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Measure a block; `seconds` is there once it has ended."""
    watch = Stopwatch()
    start = time.perf_counter()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - start


def seconds_of(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def percentile(samples: list[float], share: float) -> float:
    """The value below which a share (0..1) of the samples lies."""
    ordered = sorted(samples)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
