"""Large bodies of requests: parsed beside the loop, and taken piece by piece, so that other requests come between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from reput.broker.disk_work import DiskPools
from reput.remoting.body_bounds import LARGE_BODY
from reput.remoting.command import RemotingCommand
from reput.transport.channel import Channel

_T = TypeVar("_T")

#: What a turn of the loop takes of a large body: each of them takes some 50 us.
_PIECE = 100


def is_large(command: RemotingCommand) -> bool:
    """Whether the body of a request is to be parsed beside the loop."""
    return len(command.body) > LARGE_BODY


async def decode_beside(
    pools: DiskPools, connection: Channel, decode: Callable[[bytes], _T], command: RemotingCommand
) -> _T:
    """Decode the body of a request in a thread; errors as of `decode`, and of `DiskWork.run_for`."""
    return await pools.reads.run_for(connection, decode, command.body)


async def encode_beside(pools: DiskPools, connection: Channel, encode: Callable[[_T], bytes], content: _T) -> bytes:
    """Encode the body of an answer in a thread: 10,000 topics take 0.4 s. Errors as of `DiskWork.run_for`."""
    return await pools.tables.run_for(connection, encode, content)


async def in_pieces(items: Sequence[_T]) -> AsyncIterator[Sequence[_T]]:
    """The items in pieces, one in a turn of the loop; one piece without items."""
    for begin in range(0, max(len(items), 1), _PIECE):
        if begin:
            await asyncio.sleep(0)
        yield items[begin : begin + _PIECE]
