"""What commands that serve share: a line when they are ready, logs on stderr, an end by Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from reput.cli.output import write_ready
from reput.transport.loop import run

logger = logging.getLogger("reput")


class Serving(NamedTuple):
    """A server that runs: by name the address at which clients reach it, and how it is stopped."""

    addresses: Mapping[str, str]
    stop: Callable[[], Awaitable[None]]


def serve(start: Callable[[], Awaitable[Serving]], *, as_json: bool) -> int:
    """Start a server, print where it is reached, and stop it at Ctrl-C or SIGTERM; returns the exit status."""
    with _logs_on_stderr():
        run(_serve(start, as_json=as_json))
    return 0


async def _serve(start: Callable[[], Awaitable[Serving]], *, as_json: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    serving = await start()
    try:
        write_ready(serving.addresses, as_json=as_json)
        await ended.wait()
        logger.info("stopping")
    finally:
        await serving.stop()


def log_ignored(keys: Sequence[str]) -> None:
    """Say which of RocketMQ's keys were given and do nothing here."""
    if keys:
        with _logs_on_stderr():
            logger.warning("these keys are RocketMQ's, and do nothing here: %s", ", ".join(keys))


@contextmanager
def _logs_on_stderr() -> Iterator[None]:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
