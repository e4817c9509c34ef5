"""The run of commands that serve: a line when they are ready, logs on stderr, an end by Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from reput import __version__
from reput.cli.display.logs import logs_on_stderr
from reput.cli.display.output import write_ready
from reput.events import Event
from reput.formats.hosts import is_of_this_machine
from reput.transport.loop import run

logger = logging.getLogger("reput")


class Serving(NamedTuple):
    """A server that runs.

    Attributes:
        addresses: Where clients reach it, by name.
        stop: Stops it.
        facts: What the line `started` of its log says besides.
        register: What is left to do before it is ready; a signal cancels it, as another server may answer nothing.
    """

    addresses: Mapping[str, str]
    stop: Callable[[], Awaitable[None]]
    facts: Mapping[str, str] = MappingProxyType({})
    register: Callable[[], Coroutine[None, None, None]] | None = None


def listens(address: str, advice: str) -> dict[str, str]:
    """Facts for the line `started`: where a server listens; if at this machine alone, what lets others in."""
    others = {"otherMachinesNeed": advice} if is_of_this_machine(address) else {}
    return {"listens": address} | others


def serve(
    start: Callable[[], Awaitable[Serving]],
    *,
    log_level: str,
    as_json: bool,
    ignored: Sequence[str] = (),
    own_defaults: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Start a server, print where it is reached, and stop it at Ctrl-C or SIGTERM; returns the exit status.

    Args:
        start: Starts it.
        log_level, as_json: Of what it logs.
        ignored: Keys of RocketMQ's that were given and do nothing here.
        own_defaults: Keys that a file does not name and that have another default here than in RocketMQ.
    """
    with logs_on_stderr(log_level, as_json=as_json):
        if ignored:
            logger.warning(Event("these keys are RocketMQ's, and do nothing here", keys=", ".join(ignored)))
        if own_defaults:
            logger.info(Event("keys that are not named have reput's defaults", **own_defaults))
        run(_serve(start, as_json=as_json))
    return 0


async def _serve(start: Callable[[], Awaitable[Serving]], *, as_json: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    serving = await start()
    try:
        if serving.register is None or await _is_done_before(serving.register(), ended):
            write_ready(serving.addresses, as_json=as_json)
            gc.freeze()  # a full collection would look at all that was imported, and stop the loop for 100 ms
            logger.info(Event("started", version=__version__, **serving.addresses, **serving.facts))
            await ended.wait()
        logger.info(Event("stopping"))
    finally:
        await serving.stop()
    logger.info(Event("stopped"))


async def _is_done_before(work: Coroutine[None, None, None], ended: asyncio.Event) -> bool:
    """Whether the work is done before the end; else it is cancelled."""
    async with asyncio.TaskGroup() as group:
        working, ending = group.create_task(work), group.create_task(ended.wait())
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        working.cancel()
        ending.cancel()
    return not working.cancelled()
