"""A master and its copy, a slave or a follower: kills, power cuts, a bad network, other logs, bad disks, fail-overs.

Both run in this process, on disks that know what a power cut leaves. Each fault ends with a copy that has become equal.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from lab.campaign.cases import Part
from lab.campaign.pair import OTHER_LOG, Pair
from tests.support.faulty_files import TAKES_SPACE, Operation, fail_next, no_objection
from tests.support.proxy import AtByte
from tests.support.replica_lives import hurry

_FAULTS_OF_A_CASE = 4
#: What an error says where bytes came wrong; of a disk.
_WRONG_BYTES = f"{OTHER_LOG}|damaged at offset"
_FULL, _FAILED = "no space left", "cannot |a sync"


async def _death_of_master(pair: Pair) -> None:
    await pair.die(pair.master)
    may_differ = await pair.start_master_again()
    await pair.load(1)
    await pair.meet(may_differ=may_differ)


async def _death_of_copy(pair: Pair) -> None:
    await pair.die(pair.copy)
    await pair.start_copy(await pair.stop_copy())
    await pair.load(1)
    await pair.meet()


async def _death_of_both(pair: Pair) -> None:
    await pair.die(pair.master, pair.copy)
    may_differ = await pair.start_master_again()
    await pair.start_copy_again()
    await pair.meet(may_differ=may_differ)


async def _partition(pair: Pair) -> None:
    """Nothing passes for a while; then what was held, or nothing of it."""
    for proxy in pair.chance.choice(((pair.ha,), (pair.remoting,), (pair.ha, pair.remoting))):
        proxy.hold()
    await pair.load(pair.chance.randrange(1, 4))
    if pair.chance.random() < 0.5:
        pair.hang_up()
    pair.heal()
    await pair.meet()


async def _slow_network(pair: Pair) -> None:
    pair.ha.piece, pair.ha.delay_s = pair.chance.choice(((1, 0.0), (7, 0.0), (200, 0.001), (4096, 0.02)))
    await pair.load(pair.chance.randrange(1, 5))
    pair.heal()
    await pair.meet()


async def _cuts(pair: Pair) -> None:
    """Connections end after a byte, again and again."""
    for _ in range(pair.chance.randrange(1, 5)):
        cut = AtByte(pair.chance.random() < 0.3, pair.byte(), lambda data, position: (data[:position], True))
        pair.ha.change = cut
        await pair.load(pair.chance.randrange(1, 4))
    pair.heal()
    await pair.meet()


async def _flip(pair: Pair) -> None:
    """A bit on the wire; of the master's bytes only where a CRC covers them: the format cannot show the others."""
    bit = 1 << pair.chance.randrange(8)

    def act(data: bytes, position: int) -> tuple[bytes, bool]:
        pair.counts["bits flipped on the wire"] += 1
        return data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :], False

    pair.ha.change = AtByte(not pair.requires_crc or pair.chance.random() < 0.3, pair.byte(), act)
    if pair.chance.random() < 0.5:
        pair.ha.cut()  # so that it may be in what the copy has already, or in its first report
    await pair.load(pair.chance.randrange(1, 5))
    pair.heal()
    await pair.meet(_WRONG_BYTES)


async def _other_log(pair: Pair) -> None:
    """The master comes back with an older copy of its log, or with another log."""
    chance, path = pair.chance, pair.new_path()
    if chance.random() < 0.6:
        before = pair.master.disk
        store = await pair.stop_master()
        shutil.copytree(store, path)
        await pair.start_master(store, before)
        await pair.load(chance.randrange(0, 4))
    if chance.random() < 0.5:
        pair.hang_up()
    await pair.stop_master()
    if chance.random() < 0.5:  # the copy hears of it only when it may be longer than its own
        pair.hold()
    await pair.start_master(path)
    pair.forget()
    await pair.load(chance.randrange(1, 8))
    pair.heal()
    await pair.meet(may_differ=True)


async def _full_disk(pair: Pair) -> None:
    """The copy's disk is full for a while."""

    def judge(operation: Operation) -> None:
        if operation.kind in TAKES_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pair.copy.disk.fault = judge
    await pair.load(pair.chance.randrange(1, 8))
    pair.copy.disk.fault = no_objection
    await pair.meet(_FULL)


async def _failing_disk(pair: Pair) -> None:
    """An operation of the copy's disk fails once; it is started again, on the same machine."""
    kind = pair.chance.choice(("sync", "sync", "sync", "create", "allocate", "write", "rename"))
    pair.copy.disk.fault = fail_next(kind, after=pair.chance.randrange(4))
    await pair.load(pair.chance.randrange(1, 8))
    pair.check_errors(_FAILED)
    await pair.start_copy_again()
    await pair.meet()


async def _fail_over(pair: Pair) -> None:
    """The copy becomes the master, and has all that a SYNC_MASTER has acknowledged; the old one rejoins as its copy."""
    chance = pair.chance
    match chance.choice(("master", "both", "both", "cut off")):
        case "master":
            await pair.die(pair.master)
        case "both":
            await pair.die(pair.master, pair.copy, power_cuts=pair.is_synced)
        case _:  # it goes on, and does not know
            pair.ha.hold()
            await pair.load(2)
    copy, old = await pair.stop_copy(), await pair.stop_master()
    pair.heal()
    await pair.start_master(copy)
    if pair.role == "ASYNC_MASTER":
        pair.forget()
    await pair.load(chance.randrange(0, 4))
    await pair.start_copy(await pair.rejoined(old))
    pair.counts["fail-overs"] += 1
    await pair.meet()


_FAULTS: tuple[Callable[[Pair], Awaitable[None]], ...] = (
    _death_of_master, _death_of_copy, _death_of_both, _partition, _slow_network, _cuts, _flip, _flip, _other_log,
    _full_disk, _failing_disk, _fail_over, _fail_over,
)  # fmt: skip


def run(folder: Path, seed: int) -> Counter[str]:
    """A master and its copy, and some faults, one after the other."""
    hurry()
    return asyncio.run(_run(folder, seed))


async def _run(folder: Path, seed: int) -> Counter[str]:
    async with Pair.begin(folder, seed) as pair:
        for _ in range(_FAULTS_OF_A_CASE):
            fault = pair.chance.choice(_FAULTS)
            pair.counts[f"fault: {fault.__name__.strip('_')}"] += 1
            await fault(pair)
    return pair.counts


PART = Part(
    "replication",
    "a master and its slave or follower: kills, power cuts, network, wrong bytes, other logs, disks, fail-overs",
    400,
    run,
    ("kills", "power cuts", "bits flipped on the wire", "other logs told", "fail-overs", "acknowledged messages"),
)
