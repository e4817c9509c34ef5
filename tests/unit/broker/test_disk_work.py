"""Reads that wait for the disk: how many may wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reput.broker import disk_work
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import messages_of, pull_command, serving_broker
from tests.support.cold_pages import ColdPages


@pytest.mark.parametrize(("most", "of_connection", "taken"), [(3, 9, 3), (9, 2, 4)])
async def test_more_reads_than_the_limits_allow_are_answered_system_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, of_connection: int, taken: int
) -> None:
    monkeypatch.setattr(disk_work, "_MOST", most)
    monkeypatch.setattr(disk_work, "_MOST_OF_CONNECTION", of_connection)
    files = ColdPages()

    async with serving_broker(tmp_path / "store", files=files) as served:
        clients = [await served.client(), await served.client()]
        await clients[0].send_message("orders", b"x")
        await clients[0].pull("orders", hold_ms=60_000)
        begun: list[asyncio.Future[RemotingCommand]] = []
        with files.held(), files.cold():
            for client in clients:
                begun += client.begin_all([pull_command("orders") for _ in range(4)])
                await client.round_trip()
            busy = [one.result() for one in begun if one.done()]
            assert len(busy) == len(begun) - taken
            for answer in busy:
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
        for one in begun:
            answer = await one
            assert answer in busy or [message.body for message in messages_of(answer)] == [b"x"]
        assert (served.controller._state.pools.reads._count, served.controller._state.pools.reads._of) == (0, {})
