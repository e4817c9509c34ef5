"""Files of the broker's, written beside the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reput import MessageStore
from reput.formats.metadata import ConsumerOffsets
from reput.log.metadata import read_metadata
from tests.support.broker import fill, serving_broker, with_topic
from tests.support.faulty_files import FaultyFiles


async def test_no_change_is_left_out_however_many_come(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store") as served:
        state = served.controller._state
        for number in range(20):
            state.groups.find_subscription_group_config(f"g{number}", state.clock.now_ms())
            state.config_files.persist_soon(state.groups)
            for _ in range(number):  # the write under way comes to its end, or not
                await (await served.client()).round_trip()
        while state.config_files._soon:
            await next(iter(state.config_files._soon.values()))
        assert state.groups.snapshot() is None


async def test_no_offset_is_safe_before_the_messages_that_it_counts(tmp_path: Path) -> None:
    """Else the next messages of the queue get offsets that the group has committed, and it passes them over."""
    files, left = FaultyFiles(), tmp_path / "left"

    keys = {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": 600_000}
    async with serving_broker(tmp_path / "store", files=files, **keys) as served:
        client = await served.client()
        await with_topic(client, "orders")
        await fill(client, "orders", "a", "b", "c")
        state = served.controller._state
        state.offsets.commit_offset("billing", "orders", 0, 3, state.clock.now_ms())
        await state.config_files.persist(state.offsets)
        await asyncio.to_thread(files.cut_power, tmp_path / "store", left)
    offsets = read_metadata(str(left), ConsumerOffsets, FaultyFiles())
    assert offsets is not None
    assert offsets.offset_table == {"orders@billing": {0: 3}}
    with MessageStore.open(left) as store:
        assert store.max_offset("orders", 0) == 3
