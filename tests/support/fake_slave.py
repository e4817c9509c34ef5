"""A slave that does what a test says, over a socket in the test's loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from reput.broker.state import BrokerState
from reput.formats.replication import FRAME_HEADER, REPORT


class FakeSlave:
    """A connection to a master's HA port.

    Attributes:
        end_offset: Commit log offset after the last byte that it has.
    """

    def __init__(self, state: BrokerState, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._state, self._reader, self._writer = state, reader, writer
        self.end_offset = 0

    @classmethod
    async def connect(cls, state: BrokerState) -> Self:
        """Connect to the master of this state, and report nothing."""
        assert state.ha is not None
        return cls(state, *await asyncio.open_connection("127.0.0.1", state.ha.port))

    def report(self, offset: int) -> None:
        """Tell the master an offset: the first one asks for the log, later ones acknowledge."""
        self._writer.write(REPORT.pack(offset))

    async def receive(self) -> int:
        """Return when it has all that the master has, and up to where."""
        while self.end_offset < self._state.store.max_commit_log_offset:
            offset, size = FRAME_HEADER.unpack(await self._reader.readexactly(FRAME_HEADER.size))
            await self._reader.readexactly(size)
            self.end_offset = offset + size
        return self.end_offset

    async def is_heard(self, offset: int) -> None:
        """Return when the master knows that it has acknowledged an offset."""
        assert self._state.ha is not None
        while all(slave.acknowledged_offset < offset for slave in self._state.ha.slaves):
            await asyncio.sleep(0)

    async def gone(self) -> None:
        """Close the connection, if the master has not; return when the master has forgotten it."""
        assert self._state.ha is not None
        before = len(self._state.ha.slaves)
        self._writer.close()
        while before and len(self._state.ha.slaves) == before:
            await asyncio.sleep(0)

    async def sent_away(self) -> None:
        """Return when the master has closed the connection."""
        try:
            while await self._reader.read(1 << 16):
                pass
        except ConnectionError:
            return


@asynccontextmanager
async def followed(state: BrokerState, count: int = 1) -> AsyncIterator[list[FakeSlave]]:
    """Slaves, `count` of them, that have all of the master's log, and have said so."""
    assert state.ha is not None
    slaves = [await FakeSlave.connect(state) for _ in range(count)]
    for slave in slaves:
        slave.report(0)
        slave.report(await slave.receive())
    while state.ha.count_in_sync(1) < count:  # they lack less than a byte
        await asyncio.sleep(0)
    try:
        yield slaves
    finally:
        for slave in slaves:
            slave._writer.close()
