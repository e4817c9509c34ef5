"""A queue whose messages have expired goes on at its next offset, also where its files are lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.jobs.audit.job import audit
from reput.jobs.repair import repair
from reput.jobs.runner import LocalRunner
from tests.support.damage import overwrite
from tests.support.plants import SIZES

END = 30
DAMAGES: dict[str, Callable[[Path], object]] = {
    "all queues": lambda store: shutil.rmtree(store / "consumequeue"),
    "the topic": lambda store: shutil.rmtree(store / "consumequeue/rare"),
    "its units": lambda store: overwrite(store / f"consumequeue/rare/0/{0:020}", 0, bytes(2000)),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("emptied") / "store"
    with reput.MessageStore.open(path, **SIZES) as store:
        store.put_messages([reput.Message("rare", b"r") for _ in range(END)])
        store.put_messages([reput.Message("often", b"o" * 100) for _ in range(1500)])
        store.wait_dispatched()
        for file in sorted((path / "commitlog").iterdir())[:-2]:
            os.utime(file, (1, 1))
        store.delete_expired()
        shutil.copytree(path, path.with_name("killed"))
    return path


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("was_killed", [False, True])
@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_queue_without_messages_goes_on_where_it_was(
    base: Path, tmp_path: Path, damage: str, was_killed: bool, is_repaired: bool
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base.with_name("killed") if was_killed else base, path)
    DAMAGES[damage](path)
    assert "queue-offset-lost" in {finding.code for finding in audit(path, runner=LocalRunner(1)).findings}
    if is_repaired:
        repair(path, apply=True, runner=LocalRunner(1))
    with reput.MessageStore.open(path) as store:
        assert store.put_message(reput.Message("rare", b"new"), 0).queue_offset == END
