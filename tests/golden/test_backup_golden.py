"""Backups of stores that Apache RocketMQ wrote: log, queues and index come back as Apache's own, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.config.dispatch_rules import DispatchRules
from reput.jobs.backup.backup_job import backup
from reput.jobs.backup.restore_job import restore
from reput.jobs.runner import LocalRunner
from tests.support.golden import CASES, CORPORA, expected_files, origin, used_files
from tests.support.shares import sampled

#: Units lead to ext units, whose places depend on bit maps, which only Apache's filters make.
WITH_BIT_MAPS = "ext"


@sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_a_store_of_apache_comes_back(case: str, tmp_path: Path) -> None:
    store = CORPORA / case / "store"
    options = origin(case)
    taken = backup(store, str(tmp_path / "target"), runner=LocalRunner(2), split_bytes=5000)
    made = restore(
        str(tmp_path / "target"),
        tmp_path / "restored",
        runner=LocalRunner(2),
        rules=DispatchRules(case.partition("/")[0]),
    )
    assert made.is_clean, made.findings
    log = b"".join(path.read_bytes() for path in sorted((store / "commitlog").glob("*")))
    restored = b"".join(path.read_bytes() for path in sorted((tmp_path / "restored/commitlog").iterdir()))
    size = taken.end_offset - taken.begin_offset
    assert restored[:size] == log[:size]
    assert not any(restored[size:])
    if case.partition("/")[2] != WITH_BIT_MAPS:
        found = used_files(tmp_path / "restored", options["hashSlots"])
        kept = {path for path in found if path.split("/")[1:3] in [queue.split("/") for queue in made.kept_queues]}
        assert {path: used for path, used in found.items() if path not in kept} == expected_files(case)
