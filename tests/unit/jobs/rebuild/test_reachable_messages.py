"""The look at what queues reach, before a swap, costs what they have, not what their files could hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reput import TopicConfig
from reput.errors import CorruptConsumeQueueError
from reput.formats.metadata import Topics, encode_metadata
from reput.jobs.audit.job import audit
from reput.jobs.rebuild.reachable_messages import check_reachable
from reput.jobs.repair import repair
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from tests.support.plants import planted_store


def test_holes_of_queue_files_are_not_read(tmp_path: Path) -> None:
    path = planted_store(tmp_path / "store", 60)
    for file in (path / "consumequeue").glob("*/*/*"):
        os.truncate(file, 1 << 42)
    directory = StoreDirectory(path)
    check_reachable(directory, str(path), directory.log_files())
    with pytest.raises(CorruptConsumeQueueError, match="--allow-fewer"):
        check_reachable(directory, str(tmp_path), directory.log_files())


def test_queues_of_another_kind_reach_the_same_messages(tmp_path: Path) -> None:
    path = planted_store(tmp_path / "store", 60)
    topics = Topics(topic_config_table={"t0": TopicConfig("t0", attributes={"queue.type": "BatchCQ"})})
    (path / "config/topics.json").write_bytes(encode_metadata(topics))
    assert "queue-type" in {finding.code for finding in audit(path, runner=LocalRunner(1)).findings}
    assert repair(path, apply=True, runner=LocalRunner(1)).is_fine
    assert (path / "batchconsumequeue/t0").is_dir()
