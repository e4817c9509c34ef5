"""Lives of a broker under messages of one kind: each ends by a kill or a power cut, the last one by itself."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from reput import MessageStore
from reput.files import DISK
from reput.formats.metadata import ConsumerOffsets, split_topic_group
from reput.jobs.audit.job import audit
from reput.jobs.runner import LocalRunner
from reput.log.metadata import read_metadata
from tests.support.broker import Client
from tests.support.broker_ledger import STORE_KEYS
from tests.support.broker_load import broker_process
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import Record, check_rebuild, check_store
from tests.support.kinds.kind import Kind

_MOST_S = 60
#: Offsets are written often; the timer wheel has 38 MB, which a power cut would copy.
_KEYS = STORE_KEYS | {"flushConsumerOffsetInterval": 20, "flushDelayOffsetInterval": 20, "timerWheelEnable": False}


class Death(NamedTuple):
    """End of a life.

    Attributes:
        way: "kill", after some answers and some seconds more; "power cut", at an operation of the file layer; "stop",
            by itself, when all that was promised has come.
        answers: Answered sends before a kill, or before nothing is sent any more.
        moment_s: Seconds from then to the kill.
        operation: Of a power cut, counted from when the broker is ready, or from its start on.
        in_start: ... from its start on.
        seed: Of what a power cut leaves; 0: only what was synced.
    """

    way: str
    answers: int = 0
    moment_s: float = 0.0
    operation: int = 0
    in_start: bool = False
    seed: int = 0


def drawn_death(chance: random.Random) -> Death:
    """A kill or a power cut under load, or a power cut in a start."""
    if chance.random() < 0.4:
        return Death("kill", chance.randrange(1, 400), chance.uniform(0, 1.5))
    seed = chance.choice((0, chance.randrange(1, 1 << 30), chance.randrange(1, 1 << 30)))
    if chance.random() < 0.2:
        return Death("power cut", operation=chance.randrange(60), in_start=True, seed=seed)
    return Death("power cut", operation=chance.randrange(1, chance.choice((50, 500, 2000))), seed=seed)


def live(kind: Kind, store: Path, scratch: Path, death: Death, **keys: object) -> Path:
    """One life of a broker on a store, and the check of what it has left; where that is.

    A power cut leaves the store elsewhere, as SYNC_FLUSH has promised. scratch: a folder, not there yet.
    """
    scratch.mkdir()
    kind.lives += 1
    left = store
    given = _KEYS | kind.KEYS | keys | ({"flush_disk_type": "SYNC_FLUSH"} if death.way == "power cut" else {})
    if death.way == "power cut":
        left = scratch / "left"
        with broker_on_disk(store, left, death, given) as (process, address):
            if address:
                asyncio.run(_Load(kind, process, death).run(address))
            _, errors = process.communicate(timeout=_MOST_S)
            assert process.returncode == 1, errors
    else:
        with broker_process(store, **given) as (process, ready):
            asyncio.run(_Load(kind, process, death).run(ready["broker"]))
            _, errors = process.communicate(timeout=_MOST_S)
            assert process.returncode == (0 if death.way == "stop" else -9), errors
    assert "Traceback" not in errors, errors
    if left.is_dir() and (left / "commitlog").is_dir():
        kind.check(_records(left, scratch))
        kind.check_offsets(_persisted(left))
    return left


@contextmanager
def broker_on_disk(
    store: Path, left: Path, death: Death, keys: dict[str, object]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `disk_broker`, and its address; '' where its power was cut before it was ready."""
    words = [str(store), str(left), str(death.operation), str(int(death.in_start)), str(death.seed), json.dumps(keys)]
    command = [sys.executable, "-m", "tests.support.kinds.disk_broker", *words]
    root = Path(__file__).parents[3]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, json.loads(line)["broker"] if line else ""
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


class _Load:
    """The clients of one life."""

    def __init__(self, kind: Kind, process: subprocess.Popen[str], death: Death) -> None:
        self._kind, self._process, self._death = kind, process, death
        self._to_answer = kind.answers + death.answers
        self._is_due = asyncio.Event()

    async def run(self, address: str) -> None:
        """Until the broker is gone; AssertionError for a broken promise."""
        host, _, port = address.rpartition(":")

        async def new_client() -> Client:
            return Client(*await asyncio.open_connection(host, int(port)))

        self._kind.told = self._look
        if self._death.way == "power cut":
            self._is_due.set()
        works: list[Coroutine[Any, Any, None]] = []
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            works = await self._kind.begin(new_client)
        try:
            async with asyncio.timeout(_MOST_S), asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(self._die())
                working = [tasks.create_task(self._until_gone(work)) for work in works]
                await ending
                for task in working:
                    task.cancel()
        except* AssertionError as errors:
            raise errors.exceptions[0] from None
        except* TimeoutError:
            missing = sorted(self._kind.missing())
            raise AssertionError(f"{len(missing)} promises are not kept in time, as {missing[:3]}") from None

    async def _until_gone(self, work: Coroutine[Any, Any, None]) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await work
        assert self._is_due.is_set(), "a connection has ended, and nothing had been done to the broker"

    async def _die(self) -> None:
        await self._is_due.wait()
        if self._death.way == "kill":
            await asyncio.sleep(self._death.moment_s)
            self._process.kill()
        elif self._death.way == "stop":
            self._process.terminate()
        await asyncio.to_thread(self._process.wait, _MOST_S)

    def _look(self) -> None:
        """See whether the time to die has come."""
        if self._kind.answers < self._to_answer:
            return
        if self._death.way == "stop":
            self._kind.is_sending = False
            if self._kind.missing():
                return
        self._is_due.set()


def _records(left: Path, scratch: Path) -> list[Record]:
    """The records that a next start finds, with queues and index that fit; `left` stays as it is."""
    recovered = scratch / "recovered"
    shutil.copytree(left, recovered, ignore=shutil.ignore_patterns("timerwheel"))
    with MessageStore.open(recovered, files=FaultyFiles(), **STORE_KEYS):
        pass
    records = check_store(recovered, STORE_KEYS)
    sizes = {name: STORE_KEYS[name] for name in ("max_hash_slot_num", "max_index_num")}  # a few keys do not tell them
    audited = audit(recovered, runner=LocalRunner(), **sizes)  # type: ignore[arg-type]
    assert audited.is_clean, f"{len(audited.findings)} findings, the worst one: {audited.findings[0]}"
    check_rebuild(recovered, scratch / "rebuilt", STORE_KEYS)
    return records


def _persisted(left: Path) -> dict[tuple[str, str, int], int]:
    """Offsets of groups in the file, by group, topic and queue."""
    offsets = read_metadata(str(left), ConsumerOffsets, DISK)
    return {
        (group, topic, queue_id): offset
        for key, queues in (offsets.offset_table if offsets is not None else {}).items()
        for topic, group in [split_topic_group(key)]
        for queue_id, offset in queues.items()
    }
