"""Result of a run of an export."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reput.counts import counted
from reput.jobs.lake.files import Kind, LakeFile
from reput.jobs.lake.rejects import Reject
from reput.log.damages import Damages


@dataclass(frozen=True, slots=True)
class TopicSum:
    """Sums of a topic's export; `bytes` are the sizes of its files."""

    topic: str
    messages: int
    rejected: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Export:
    """Result of one run of an export.

    Attributes:
        begin_offset, end_offset: the exported range of the commit log.
        messages: rows of messages.
        rejected: rows in `rejects/`, as their bodies could not be decoded.
        commits: count of commits.
        topics: sums, sorted by topic.
        first_rejects: the first rejected row of each topic, sorted by topic.
        body_schemas: schemas of JSON bodies by topic, as text, of the topics that this run has exported.
        lost: ranges of offsets that were deleted or cut before they were exported, if that was allowed.
        damages: ranges of the log that hold no whole records and were passed over, if that was allowed.
        table_faults: why tables do not have all rows that are exported, by folder: they were left out, or went on
            without what is not kept any more.
        newest_ms: store time of the newest message that is exported, by this run or an earlier one, in ms since 1970.
        age_seconds: from then until the run had made the message visible.
        lag_bytes: of the log that came while the run exported, and that it left for the next one.
        seconds: time of the run.
    """

    begin_offset: int
    end_offset: int
    messages: int
    rejected: int
    commits: int
    topics: tuple[TopicSum, ...]
    first_rejects: tuple[Reject, ...]
    body_schemas: dict[str, str]
    lost: tuple[tuple[int, int], ...]
    damages: Damages
    table_faults: dict[str, str]
    newest_ms: int | None
    age_seconds: float | None
    lag_bytes: int
    seconds: float

    @property
    def findings(self) -> list[str]:
        """Texts of lost ranges, of damage that was passed over, of tables that lack rows, and of rejected bodies."""
        findings = [f"offsets {begin} to {end} were lost before they were exported" for begin, end in self.lost]
        findings += self.damages.texts()
        findings += [self.table_faults[table] for table in sorted(self.table_faults)]
        rejected = {one.topic: one.rejected for one in self.topics}
        findings += [
            f"topic {first.topic}: {counted(rejected[first.topic], 'body')} could not be decoded; rejects/ has each "
            f"with the reason; the first is at {first}"
            for first in self.first_rejects
        ]
        return findings


class RunSums:
    """Sums of the commits of a run.

    Attributes:
        commits: count of commits.
        tables: kind and topic of the tables that got files, by folder.
    """

    def __init__(self) -> None:
        self.commits = 0
        self.tables: dict[str, tuple[Kind, str]] = {}
        self._by_topic: dict[str, tuple[int, int, int, int]] = {}

    def add(self, lake_files: Iterable[LakeFile]) -> None:
        """Add the files of a commit."""
        self.commits += 1
        for one in lake_files:
            self.tables[one.table] = one.kind, one.topic
            messages, rejected, files, size = self._by_topic.get(one.topic, (0, 0, 0, 0))
            rows = (one.rows, 0) if one.kind == "messages" else (0, one.rows)
            self._by_topic[one.topic] = messages + rows[0], rejected + rows[1], files + 1, size + one.size

    @property
    def topics(self) -> tuple[TopicSum, ...]:
        """Sums of the topics, sorted by topic."""
        return tuple(TopicSum(topic, *self._by_topic[topic]) for topic in sorted(self._by_topic))
