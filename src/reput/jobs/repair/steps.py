"""Steps of a repair, except the rebuild: each keeps the original durably before it changes anything.

After a kill at any point a step can be taken again, and ends the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from reput.files import FileLayer
from reput.files.truncate import truncate_files
from reput.formats.checkpoint import Checkpoint, encode_checkpoint
from reput.formats.java import INT64_MAX
from reput.formats.metadata import (
    ConsumerOffsets,
    TopicConfig,
    Topics,
    decode_metadata,
    encode_metadata,
    split_topic_group,
)
from reput.formats.multi_dispatch import LMQ_PREFIX
from reput.formats.pop_messages import greatest_offset
from reput.jobs.audit.files import StoreListing
from reput.jobs.audit.topics import with_recorded_topics
from reput.jobs.findings import Finding
from reput.jobs.rebuild.originals import free_name, keep_copy, keep_tail, move_aside
from reput.jobs.repair.plan import RepairStep, StepAction
from reput.log.metadata import BACKUP_SUFFIX, decode_file, read_metadata
from reput.log.queue_types import BATCH_CQ, QUEUE_TYPE

_READ_AND_WRITE = 6


class Seen(NamedTuple):
    """Listing and findings of a look."""

    listing: StoreListing
    findings: tuple[Finding, ...]


def take_step(files: FileLayer, step: RepairStep, seen: Seen) -> list[str]:
    """Take one step in a store that no other process has open; returns the paths of originals."""
    return _TAKEN[step.action](files, step, seen)


def _restore_backup(files: FileLayer, step: RepairStep, _: Seen) -> list[str]:
    kept = keep_copy(files, step.path)
    files.write_atomically(step.path, files.read_bytes(step.path + BACKUP_SUFFIX))
    return [kept]


def _set_aside(files: FileLayer, step: RepairStep, _: Seen) -> list[str]:
    kept = []
    for path in (step.path + BACKUP_SUFFIX, step.path):  # last the file that the finding is about
        if files.exists(path):
            kept.append(free_name(files, path))
            files.rename(path, kept[-1])
    return kept


def _make_topics(files: FileLayer, step: RepairStep, seen: Seen) -> list[str]:
    kept, backup = [], step.path + BACKUP_SUFFIX
    if files.exists(backup):
        kept.append(free_name(files, backup))
        files.rename(backup, kept[-1])
    kept.append(keep_copy(files, step.path))
    topics = with_recorded_topics(_root(step), topics_of(seen.listing))
    files.write_atomically(step.path, encode_metadata(topics))
    return kept


def _restore_topics(files: FileLayer, step: RepairStep, _: Seen) -> list[str]:
    kept = [keep_copy(files, step.path)] if files.exists(step.path) else []
    topics = decode_file(step.path, lambda data: decode_metadata(Topics, data), files)
    restored = with_recorded_topics(_root(step), topics or Topics())
    files.write_atomically(step.path, encode_metadata(restored))
    return kept


def _root(step: RepairStep) -> str:
    """Path of the store whose file below config/ a step changes."""
    return os.path.dirname(os.path.dirname(step.path))


def topics_of(listing: StoreListing) -> Topics:
    """Topics from the queues that are there: as many queues as each topic has, readable and writable."""
    table: dict[str, TopicConfig] = {}
    for folder, attributes in ((listing.queues, {}), (listing.batch_queues, {QUEUE_TYPE: BATCH_CQ})):
        for queue in folder.queues:
            if not queue.topic.startswith(LMQ_PREFIX):
                count = max(queue.queue_id + 1, table[queue.topic].read_queue_nums if queue.topic in table else 0)
                table[queue.topic] = TopicConfig(
                    queue.topic, count, count, _READ_AND_WRITE, attributes=dict[str, str](attributes)
                )
    return Topics(table)


def _move_away(files: FileLayer, step: RepairStep, _: Seen) -> list[str]:
    return [move_aside(files, step.path)]


def _grow(files: FileLayer, step: RepairStep, _: Seen) -> list[str]:
    with files.open(step.path, writable=True, size=step.position) as file:
        file.sync()
    return []


def _cut_tail(files: FileLayer, step: RepairStep, _: Seen) -> list[str]:
    return truncate_files(files, [(step.path, 0)], step.position, keep=keep_tail)


def _reset_checkpoint(files: FileLayer, step: RepairStep, _: Seen) -> list[str]:
    kept = [keep_copy(files, step.path)] if files.exists(step.path) else []
    files.write_atomically(step.path, encode_checkpoint(Checkpoint(0, 0, 0)))
    return kept


def _lower_offsets(files: FileLayer, step: RepairStep, seen: Seen) -> list[str]:
    offsets = read_metadata(_root(step), ConsumerOffsets, files) or ConsumerOffsets()
    kept = [keep_copy(files, step.path)] if files.exists(step.path) else []
    ends = {
        (finding.topic, finding.queue_id): finding.queue_offset
        for finding in seen.findings
        if finding.code == "consumer-offset-ahead" and finding.queue_offset is not None
    }
    table: dict[str, dict[int, int]] = {}
    for key, of_group in offsets.offset_table.items():
        topic, group = split_topic_group(key)
        table[key] = {
            queue_id: min(offset, greatest_offset(group, ends.get((topic, queue_id), INT64_MAX)))
            for queue_id, offset in of_group.items()
        }
    files.write_atomically(step.path, encode_metadata(replace(offsets, offset_table=table)))
    return kept


_TAKEN: dict[StepAction, Callable[[FileLayer, RepairStep, Seen], list[str]]] = {
    StepAction.RESTORE_BACKUP: _restore_backup,
    StepAction.SET_ASIDE: _set_aside,
    StepAction.MAKE_TOPICS: _make_topics,
    StepAction.RESTORE_TOPICS: _restore_topics,
    StepAction.LOWER_OFFSETS: _lower_offsets,
    StepAction.MOVE_AWAY: _move_away,
    StepAction.GROW: _grow,
    StepAction.CUT_TAIL: _cut_tail,
    StepAction.RESET_CHECKPOINT: _reset_checkpoint,
}
