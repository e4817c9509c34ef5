"""Rejects of an export: messages whose bodies do not fit the schema of their topic, or are no text.

They have files of their own, with the body as it was and the reason: no message is left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from reput.jobs.lake.files import LakeFile
from reput.jobs.lake.staging import Staging
from reput.kernels.records.record_batch import SCHEMA

_PLACE = ("queue_id", "queue_offset", "commit_log_offset")


@dataclass(frozen=True, slots=True)
class Reject:
    """The first rejected row of a topic in a commit: where it is, and why its body could not be decoded."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"queue {self.queue_id}, queue offset {self.queue_offset}, commit log offset {self.commit_log_offset}: "
            f"{self.reason}"
        )


def rejects_schema(columns: Iterable[str]) -> pa.Schema:
    """Schema of the files of rejects, for the columns of the files of messages: all bodies are bytes."""
    kept = [SCHEMA.field(name) for name in columns if name != "body"]
    return pa.schema([*kept, ("reason", pa.string()), SCHEMA.field("body")])


def first_rejects(staged: Iterable[LakeFile], staging: Staging) -> list[Reject]:
    """First rejected row of each topic in staged files, in log order."""
    first: dict[str, LakeFile] = {}
    for one in sorted(staged, key=lambda one: one.first_offset):
        if one.kind == "rejects":
            first.setdefault(one.topic, one)
    rejects = []
    for topic, one in first.items():
        rows = staging.open(one.name).read_row_group(0, [*_PLACE, "reason"])
        rejects.append(Reject(topic, **rows.slice(0, 1).to_pylist()[0]))
    return rejects
