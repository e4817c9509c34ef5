"""Damage: bytes of a log that no record proves; and the damages of a whole log, of which the first are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reput.counts import counted
from reput.errors import CorruptRecordError

#: Damages that are kept: a bad region of a disk has millions.
MOST_TOLD = 1000


class Damage(NamedTuple):
    """Damaged bytes of one file, from `begin` to `end` (commit log offsets): no record in them proves itself."""

    path: str
    begin: int
    end: int
    reason: str

    def error(self) -> CorruptRecordError:
        """CorruptRecordError that reports this damage."""
        return CorruptRecordError(self.path, self.begin, self.reason)

    def __str__(self) -> str:
        return f"{self.error()}; passed over {counted(self.end - self.begin, 'byte')}"


@dataclass(frozen=True, slots=True)
class Damages:
    """Damages of a log, in its order: all are counted, the first `MOST_TOLD` are kept.

    Attributes:
        told: the first of them.
        count: of all.
        size: bytes of all.
    """

    told: tuple[Damage, ...] = ()
    count: int = 0
    size: int = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def __iter__(self) -> Iterator[Damage]:
        return iter(self.told)

    def followed_by(self, damages: Sequence[Damage]) -> Damages:
        """These and later ones."""
        if not damages:
            return self
        size = sum(damage.end - damage.begin for damage in damages)
        room = MOST_TOLD - len(self.told)
        told = (*self.told, *damages[:room]) if room else self.told
        return Damages(told, self.count + len(damages), self.size + size)

    def merged_with(self, others: Damages) -> Damages:
        """These and others of the same part of the log."""
        told = sorted([*self.told, *others.told], key=lambda damage: damage.begin)
        return Damages(tuple(told[:MOST_TOLD]), self.count + others.count, self.size + others.size)

    def as_json(self) -> dict[str, Any]:
        """Fields of a result in JSON."""
        told = [damage._asdict() for damage in self.told]
        return {"damages": told, "damage_count": self.count, "damaged_bytes": self.size}

    def texts(self) -> list[str]:
        """A text for each that is kept, and one for the others."""
        others, size = self.count - len(self.told), self.size - sum(one.end - one.begin for one in self.told)
        rest = [f"and {counted(others, 'damage')} more, of {counted(size, 'byte')}"] if others else []
        return [*map(str, self.told), *rest]


NO_DAMAGES = Damages()


def joined(parts: Iterable[Damages]) -> Damages:
    """The damages of adjacent parts of a log."""
    told: list[Damage] = []
    count = size = 0
    for part in parts:
        told += part.told[: MOST_TOLD - len(told)]
        count, size = count + part.count, size + part.size
    return Damages(tuple(told), count, size)
