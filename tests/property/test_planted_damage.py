"""What an audit calls clean opens, and answers as before: for each of many damages, one at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from tests.support.plants import PLANTS, planted_store

_KEYS = ("k0", "k299", "k599", "g0", "g7", "last", "UK000100")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_store(tmp_path_factory.mktemp("planted") / "store")


@pytest.fixture(scope="module")
def answers_of_base(base: Path) -> dict[str, Any]:
    return answers(base, writable=False)


def answers(path: Path, *, writable: bool) -> dict[str, Any]:
    """What the store answers: the messages of each queue, queries by key and time, and offsets by time."""
    found: dict[str, Any] = {}
    with reput.MessageStore.open(path, read_only=not writable) as store:
        for queue in store.queues():
            name, offset, messages = f"{queue.topic}/{queue.queue_id}", queue.min_offset, []
            while offset < queue.max_offset:
                result = store.get_message(queue.topic, queue.queue_id, offset, 32)
                messages += [
                    (one.queue_offset, one.commit_log_offset, one.body, one.keys, one.tags, one.store_timestamp)
                    for one in result.messages()
                ]
                offset = max(result.next_begin_offset, offset + 1)
            found[name] = queue.min_offset, queue.max_offset, messages
            times = [message[-1] for message in messages[:: max(1, len(messages) // 5)]]
            found[f"{name} by time"] = [store.offset_by_time(queue.topic, queue.queue_id, at) for at in times]
        for topic in ("t0", "t1", "t2"):
            for key in _KEYS:
                asked = store.query_message(topic, key, 64)
                found[f"{topic} {key}"] = [one.commit_log_offset for one in asked]
                found[f"{topic} {key} since"] = [
                    len(store.query_message(topic, key, 64, begin=one.store_timestamp)) for one in asked
                ]
    return found


@pytest.mark.parametrize("name", PLANTS)
def test_what_is_clean_opens_and_answers_as_before(
    name: str, base: Path, answers_of_base: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "store"
    shutil.copytree(base, path)
    PLANTS[name](path)
    if not audit(path, runner=LocalRunner(1)).is_clean:
        return
    assert answers(path, writable=False) == answers_of_base
    assert answers(path, writable=True) == answers_of_base
