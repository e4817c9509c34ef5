"""Runs of histories of consumers, each drawn by its kind and a seed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from unittest.mock import patch

from reput.client.instance import client_instance
from tests.support.virtual.broadcasts import Broadcasts
from tests.support.virtual.histories import World
from tests.support.virtual.ledger import Ledger
from tests.support.virtual.net import VirtualLoop
from tests.support.virtual.shares import shares_as_given
from tests.support.virtual.slave_troubles import BroadcastsWithSlaves, WithSlaves
from tests.support.virtual.troubles import Troubled, TroubledBroadcasts

BROADCASTING = "broadcasting"
Troubles = Literal["few", "more", "of slaves"]
KINDS = "concurrent", "orderly", "pull", "tail", BROADCASTING
_STEPS = 16
#: By what happens: to consumers of a group, and to those that broadcast.
_WORLDS: dict[Troubles, tuple[type[World], type[World]]] = {
    "few": (World, Broadcasts),
    "more": (Troubled, TroubledBroadcasts),
    "of slaves": (WithSlaves, BroadcastsWithSlaves),
}


class _Errors(logging.Handler):
    """Errors of ours that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def no_errors() -> Iterator[_Errors]:
    """Errors of ours that are logged meanwhile, in `found`."""
    errors, loggers = _Errors(), [logging.getLogger(name) for name in ("reput.client", "reput.transport")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(errors)
        logger.setLevel(logging.ERROR)
    try:
        yield errors
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(errors)
            logger.setLevel(level)


def run(kind: str, seed: int, troubles: Troubles = "few") -> Counter[str]:
    """One history with some troubles; raises AssertionError with what was broken."""
    chance = random.Random(f"{kind} {seed}")
    random.seed(seed)
    with (
        no_errors() as errors,
        shares_as_given(),
        patch.object(client_instance, "_RANDOM", random.Random(seed)),
        patch("reput.transport.connection._TURN_S", 60.0),  # the machine's time has no part in it
        asyncio.Runner(loop_factory=lambda: VirtualLoop(chance)) as runner,
    ):
        ledger = runner.run(_history(chance, kind, _WORLDS[troubles][kind == BROADCASTING]))
    broken = ledger.broken + errors.found
    assert not broken, f"{kind} {seed}, {troubles} troubles: {len(broken)} broken: " + "; ".join(broken[:5])
    return ledger.counts


async def _history(chance: random.Random, kind: str, made: type[World]) -> Ledger:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    world = made(loop, chance, kind)
    with world.in_place():
        await world.step()
        feeding, watching = loop.create_task(world.feed()), loop.create_task(world.watch())
        for _ in range(_STEPS):
            await asyncio.sleep(chance.choice((0.01, 1.0, 5.0, 15.0)))
            await world.step()
        await world.calm()
        await world.check()
        await feeding
        watching.cancel()
    return world.ledger
