"""`async_put_message` in an event loop: docs/asyncio.md in tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import reput
from reput.errors import StorePoisonedError
from reput.store.results import PutMessageResult
from tests.support.faulty_files import FaultyFiles, fail_next
from tests.support.held_disk import HeldDisk


def message(number: int) -> reput.Message:
    return reput.Message("t", b"%d" % number)


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_it_is_awaited_gathered_and_asked_for_its_result(tmp_path: Path, flush_disk_type: str) -> None:
    with reput.MessageStore.open(tmp_path / "store", flush_disk_type=flush_disk_type) as store:

        async def put_one(number: int) -> PutMessageResult:
            return await asyncio.wait_for(store.async_put_message(message(number)), timeout=60)

        first = await store.async_put_message(message(0))
        others = await asyncio.gather(*(store.async_put_message(message(n)) for n in range(1, 50)))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(put_one(50))
        results = [first, *others, task.result()]
        results.append(store.async_put_message(message(51)).result(timeout=60))
        assert [result.queue_offset for result in results] == list(range(52))
        assert {result.status for result in results} == {reput.PutMessageStatus.PUT_OK}
        assert store.flushed_offset == store.max_commit_log_offset or flush_disk_type == "ASYNC_FLUSH"


async def test_a_task_that_is_cancelled_stops_waiting_and_the_message_stays(tmp_path: Path) -> None:
    disk = HeldDisk()
    with reput.MessageStore.open(
        tmp_path / "store",
        flush_disk_type="SYNC_FLUSH",
        files=FaultyFiles(disk.judge),
        mapped_file_size_commit_log=1 << 20,
    ) as store:
        store.put_message(message(0))  # makes the log's first file, with a sync
        with disk.held():
            future = store.async_put_message(message(1))
            waiting = asyncio.ensure_future(future)
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert (await future).queue_offset == 1
        store.wait_dispatched()
        assert store.max_offset("t", 0) == 2


async def test_a_failed_sync_is_raised_where_it_is_awaited(tmp_path: Path) -> None:
    files = FaultyFiles()
    store = reput.MessageStore.open(tmp_path / "store", files=files, mapped_file_size_commit_log=1 << 20)
    store.put_message(message(0))

    files.judge = fail_next("sync", part="commitlog", times=1000)
    with pytest.raises(StorePoisonedError):
        await store.async_put_message(message(1))
    with pytest.raises(StorePoisonedError):
        store.close()
