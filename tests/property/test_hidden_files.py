"""A file whose name begins with a dot changes nothing, whichever folder of a store it lies in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import reput
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.plants import planted_store

_NAME = ".nfs000000000001a2b300000001"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = planted_store(tmp_path_factory.mktemp("hidden") / "store")
    queue_ext = path / "consumequeue_ext/t0/0"
    queue_ext.mkdir(parents=True)
    (path / "batchconsumequeue/t9/0").mkdir(parents=True)
    return path


@pytest.mark.parametrize("is_copy", [True, False], ids=["a copy of a file", "a few bytes"])
def test_hidden_files_are_passed_over_in_every_folder(base: Path, tmp_path: Path, *, is_copy: bool) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    for folder, _, names in list(os.walk(path)):
        hidden = Path(folder, _NAME)
        if is_copy and names:
            shutil.copy(Path(folder, min(names)), hidden)
        else:
            hidden.write_bytes(b"left")
        shutil.copy(hidden, Path(folder, ".0.json"))
    planted = sorted(path.rglob(".*"))
    assert len(planted) >= 2 * 14
    expected = reput.read_log(base).read_all()
    assert reput.read_log(path).read_all() == expected
    assert audit(path, runner=LocalRunner(1)).findings == audit(base, runner=LocalRunner(1)).findings
    for read_only in (True, False):
        with reput.MessageStore.open(path, read_only=read_only) as store:
            assert len(store.query_message("t0", "k0", 32)) == 1
    with reput.MessageStore.open(path) as store:
        store.put_message(reput.Message("t0", b"new", keys=["new"]), 0)
        store.wait_dispatched()
        store.delete_expired()
        assert len(store.query_message("t0", "new", 32)) == 1
    (path / "config/reputShutdown.json").unlink()
    (path / "abort").touch()  # as after a kill
    with reput.MessageStore.open(path) as store:
        assert store.recovery.was_killed
        assert len(store.query_message("t0", "new", 32)) == 1
    assert sorted(path.rglob(".*")) == planted
