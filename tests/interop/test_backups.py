"""A backup of a store that RocketMQ has open: RocketMQ opens what is restored, has every message, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.jobs.backup.backup_job import backup
from reput.jobs.backup.restore_job import restore
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import FaultyFiles
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import Apache
from tests.support.rocketmq.stores import SMALL, each_store_version
from tests.support.rocketmq.witness import check_agreement, open_apache

pytestmark = pytest.mark.java


@each_store_version
def test_a_store_that_rocketmq_writes_is_backed_up_and_rocketmq_opens_what_is_restored(
    apache: Apache, tmp_path: Path
) -> None:
    path, target, restored = tmp_path / "store", tmp_path / "target", tmp_path / "restored"
    options = SMALL | {"max_index_num": 2000, "dispatch_rules": apache.version}
    open_apache(apache, path, options)
    for seed in (1, 2):  # the second backup has only what came since
        results = apache.run("put", messages=workload.messages(60, seed=seed))
        assert all(result["status"] == "PUT_OK" for result in results)
        taken = backup(path, str(target), runner=LocalRunner(2))
        assert taken.messages == 60
    apache.run("close")
    made = restore(str(target), restored, runner=LocalRunner(2), rules=DispatchRules(apache.version))
    assert made.is_clean, made.findings
    assert made.messages == 120
    open_apache(apache, restored, options)
    with reput.MessageStore.open(restored, read_only=True, files=FaultyFiles(), **options) as store:
        check_agreement(store, apache)
    assert all(result["status"] == "PUT_OK" for result in apache.run("put", messages=workload.messages(20, seed=3)))
    apache.run("close")


@each_store_version
def test_rocketmq_opens_what_is_restored_to_a_point_in_time(apache: Apache, tmp_path: Path) -> None:
    path, target, restored = tmp_path / "store", tmp_path / "target", tmp_path / "restored"
    options = SMALL | {"max_index_num": 2000, "dispatch_rules": apache.version}
    open_apache(apache, path, options)
    apache.run("put", messages=workload.messages(60, seed=1))
    results = apache.run("put", messages=workload.messages(60, seed=2))
    point = results[0]["commit_log_offset"]
    backup(path, str(target), runner=LocalRunner(2))
    apache.run("close")
    rules = DispatchRules(apache.version)
    made = restore(str(target), restored, runner=LocalRunner(2), rules=rules, until_offset=point)
    assert made.is_clean, made.findings
    assert made.messages == 60
    assert made.end_offset <= point
    open_apache(apache, restored, options)
    with reput.MessageStore.open(restored, read_only=True, files=FaultyFiles(), **options) as store:
        check_agreement(store, apache)
    again = apache.run("put", messages=workload.messages(20, seed=3))
    assert all(result["status"] == "PUT_OK" for result in again)
    assert again[0]["commit_log_offset"] < results[-1]["commit_log_offset"]
    apache.run("close")
