"""Units that a name tells by its words (`body_bytes`, `latency_p50_ms`), and numbers written in them.

A page shows 12.4 MiB, 1 140 002 msg/s and 81.2 s; the thin spaces between thousands do not break. Counts have no unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reput.jobs.report.table import Value, format_value

_THIN_SPACE = "\u202f"
#: Names as a page shows them, which writes the unit behind the number.
_SHOWN_NAMES = {
    "seconds": "duration", "messages a second": "rate", "messages/s": "rate", "log bytes a second": "log rate",
}  # fmt: skip
#: Last words of numbers that name a place and are copied whole: they have no separators.
_PLACES = frozenset(("offset", "position", "id", "end"))
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class UnitStep(NamedTuple):
    """Name of a unit, its size in the smallest unit of its kind, and the least number that is written in it."""

    name: str
    size: float
    least: float


@dataclass(frozen=True, slots=True)
class UnitKind:
    """Kind of unit: the words that tell it, and its steps, the smallest first."""

    words: re.Pattern[str]
    steps: tuple[UnitStep, ...]

    def step_of(self, value: float) -> UnitStep:
        """Step that `value` is written in."""
        return next((step for step in reversed(self.steps) if abs(value) >= step.least), self.steps[0])

    def label(self, name: str, step: UnitStep) -> str:
        """Label of an axis in that step: "bytes" becomes "MiB"."""
        return self.words.sub(step.name, name, count=1)


def _binary(suffix: str) -> tuple[UnitStep, ...]:
    return tuple(
        UnitStep(name + suffix, 1 << 10 * power, power and 1 << 10 * power)
        for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))
    )


def _times(ms: float) -> tuple[UnitStep, ...]:
    """Steps of a time that is counted in units of `ms` milliseconds."""
    steps = (("ms", 1, 0), ("s", 1000, 1000), ("min", 60_000, 120_000), ("h", 3_600_000, 7_200_000))
    return tuple(UnitStep(name, size / ms, least / ms) for name, size, least in steps)


_UNITS = (
    UnitKind(re.compile(r"\bbytes a second\b"), _binary("/s")),
    UnitKind(re.compile(r"\bbytes\b"), _binary("")),
    UnitKind(re.compile(r"\bmessages(/s| a second)(?=$|,)"), (UnitStep("msg/s", 1, 0),)),
    UnitKind(re.compile(r"\b(ms|milliseconds)(?=$|,)"), _times(1)),
    UnitKind(re.compile(r"\bseconds(?=$|,)"), _times(1000)),
    UnitKind(re.compile(r"\bshare$"), (UnitStep("%", 0.01, 0),)),
)


def unit_of(name: str) -> UnitKind | None:
    """Unit that the words of a name tell; None if they tell none."""
    words = name.replace("_", " ")
    return next((unit for unit in _UNITS if unit.words.search(words)), None)


def without_unit(name: str) -> str:
    """Label of numbers that are written with their unit: "lag in seconds" becomes "lag", "bytes" becomes ""."""
    words, unit = name.replace("_", " "), unit_of(name)
    return words if unit is None else re.sub(f"(in )?{unit.words.pattern}", "", words, count=1).strip(" ,")


def write_name(name: str) -> str:
    """Name of a fact or a column, without a unit that stands behind its numbers."""
    words = name.replace("_", " ")
    return _SHOWN_NAMES.get(words, words.removesuffix(" ms"))


def write_number(value: float) -> str:
    """A count or a measure without a unit: 1 140 002, 3.14, 0.00123."""
    return format_value(value).replace(",", _THIN_SPACE)


def write_value(value: Value, name: str) -> str:
    """Text of a value of that name."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        return f"{_write_times([value])[0]} UTC"
    if value is None or isinstance(value, str | bool):
        return format_value(value)
    if (unit := unit_of(name)) is not None:
        step = unit.step_of(value)
        return f"{write_number(value if step.size == 1 else value / step.size)}{_THIN_SPACE}{step.name}"
    is_place = isinstance(value, int) and re.split("[ _]", name)[-1] in _PLACES
    return str(value) if is_place else write_number(value)


def write_column(values: Sequence[Value], name: str) -> tuple[str, list[str]]:
    """Heading and texts of a column of a table. Times have one precision, and their heading says UTC."""
    heading = write_name(name)
    known = [value for value in values if value is not None]
    times = [value for value in known if isinstance(value, str) and _TIME.fullmatch(value)]
    if not times or len(times) < len(known):
        return heading, [write_value(value, name) for value in values]
    texts = iter(_write_times(times))
    return f"{heading} (UTC)", ["" if value is None else next(texts) for value in values]


def _write_times(times: Sequence[str]) -> list[str]:
    """Times as people write them, down to the minute, the second or the millisecond, whichever all of them need."""
    texts = [time.removesuffix("Z").replace("T", " ") for time in times]
    if any("." in text and text.partition(".")[2].strip("0") for text in texts):
        return [f"{whole}.{part[:3]:<03}" for whole, _, part in (text.partition(".") for text in texts)]
    texts = [text.partition(".")[0] for text in texts]
    return [text.removesuffix(":00") for text in texts] if all(text.endswith(":00") for text in texts) else texts
