"""A rebuild in place, whole or killed on its way: RocketMQ opens the store and has every message, unit and key."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.files.layer import FileLayer
from reput.formats.checkpoint import POSITIONS
from reput.jobs.rebuild.job import rebuild
from reput.jobs.rebuild.swap import Swap
from reput.jobs.runner import LocalRunner
from tests.support.damage import overwrite
from tests.support.faulty_files import FaultyFiles
from tests.support.kills import killed
from tests.support.rocketmq import workload
from tests.support.rocketmq.apache import Apache
from tests.support.rocketmq.stores import DERIVED, SINCE_5, SMALL, Options, each_store_version, spoil
from tests.support.rocketmq.witness import check_agreement, open_apache, told_by_apache

pytestmark = pytest.mark.java

OPTIONS = SMALL | {"max_index_num": 130}
#: One index file: those that RocketMQ begins in one millisecond overwrite one another.
ONE_INDEX_FILE = SMALL | {"max_index_num": 2000}
#: What shows in the folder: between two of them a kill is the same wherever it comes.
NAMES = ((FileLayer, ("rename", "unlink")),)


def write(path: Path, options: Options) -> None:
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
        if options["dispatch_rules"] in SINCE_5:
            store.update_topic(workload.BATCH_TOPIC)
            workload.put(store, workload.inner_batches(120))
        else:
            workload.put(store, workload.messages(120))


@each_store_version
def test_apache_has_all_of_a_store_that_was_rebuilt_in_place_and_goes_on(apache: Apache, tmp_path: Path) -> None:
    path, options = tmp_path / "store", OPTIONS | {"dispatch_rules": apache.version}
    write(path, options)
    spoil(path)
    rebuild(path, None, runner=LocalRunner(2), rules=DispatchRules(apache.version))
    ours = shutil.copytree(path, tmp_path / "ours")
    open_apache(apache, path, options)
    with reput.MessageStore.open(ours, files=FaultyFiles(), **options) as store:
        check_agreement(store, apache)
    assert all(result["status"] == "PUT_OK" for result in apache.run("put", messages=workload.messages(40, seed=9)))
    theirs = told_by_apache(apache)
    apache.run("close")
    with reput.MessageStore.open(path, files=FaultyFiles(), **options) as store:
        assert not store.recovery.was_killed
        assert len(theirs.records) > 40


@each_store_version
def test_apache_and_reput_have_all_wherever_the_swap_was_killed(apache: Apache, tmp_path: Path) -> None:
    options = ONE_INDEX_FILE | {"dispatch_rules": apache.version}
    write(tmp_path / "whole", options)
    (end,) = (int(file.name) for file in sorted((tmp_path / "whole/commitlog").iterdir())[-1:])
    # As RocketMQ from 5.5.0 on leaves it: the offset of the last unit on the disk.
    overwrite(tmp_path / "whole/checkpoint", POSITIONS["logicsPhysicalOffset"], end.to_bytes(8, "big"))
    mixtures = set()
    for changes in range(1, 100):
        path = shutil.copytree(tmp_path / "whole", tmp_path / str(changes))
        call = partial(rebuild, path, None, runner=LocalRunner(1), rules=DispatchRules(apache.version))
        if not killed(call, changes, begin=(Swap, "run"), kinds=NAMES):
            break
        mixtures.add(tuple(sorted(folder.name for folder in path.glob("*") if folder.name in DERIVED)))
        ours = shutil.copytree(path, tmp_path / f"ours-{changes}")
        open_apache(apache, path, options)
        with reput.MessageStore.open(ours, files=FaultyFiles(), **options) as store:
            check_agreement(store, apache)
        apache.run("close")
    assert {(), ("consumequeue",)} <= mixtures
