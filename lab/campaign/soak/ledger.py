"""Acknowledgements, kept outside of the stores, and the comparison of a log with them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import reput
from lab.campaign.soak.load import KEPT_FILES, LOG_FILE_SIZE, PLAIN_TOPICS, TABLES, body_of
from lab.campaign.soak.telling import Acknowledgement
from reput.log.directory import is_gone

_COLUMNS = ("commit_log_offset", "topic", "queue_id", "queue_offset", "keys", "body")
_EXPIRED_S = 100 * 3600
_TRIES = 10


class Checked(NamedTuple):
    """Counts of a check: records of the log, and acknowledgements among them."""

    records: int
    acknowledged: int


class Ledger:
    """Of one store: what must be in it.

    Attributes:
        entries: By key, those that retention may not have taken yet.
        acknowledged: How many there were in all.
        may_begin: Commit log offset up to which the log's files were made to look expired.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self.entries: dict[str, Acknowledgement] = {}
        self.acknowledged = 0
        self.may_begin = 0

    def add(self, acknowledgement: Acknowledgement) -> None:
        """From now on it must be there."""
        assert acknowledgement.key not in self.entries
        self.entries[acknowledgement.key] = acknowledgement
        self.acknowledged += 1

    def let_expire(self) -> None:
        """Make all log files but the newest ones old: retention may take them, and nothing else."""
        old = time.time() - _EXPIRED_S
        for offset in self._log_files()[:-KEPT_FILES]:
            try:
                os.utime(self._store / "commitlog" / f"{offset:020}", (old, old))
            except FileNotFoundError:
                continue
            self.may_begin = max(self.may_begin, offset + LOG_FILE_SIZE)

    def check(self) -> Checked:
        """Compare the log, whoever writes to it, with what was acknowledged before; AssertionError for what is lost.

        Each acknowledged message is there once, at its place, with its body, unless it was in a file that has expired.
        """
        wanted = dict(self.entries)
        if not wanted and not self._log_files():
            return Checked(0, 0)  # killed before it had made a store
        rows = self.rows()
        begin = (self._log_files() or [0])[0]
        assert begin <= self.may_begin, f"the log begins at {begin}, and nothing behind {self.may_begin} has expired"
        found: dict[str, Acknowledgement] = {}
        for offset, topic, queue_id, queue_offset, keys, body in rows:
            (key,) = keys
            assert key not in found, f"{key} is there twice"
            assert body == body_of(key), f"the body of {key} at {offset} is another one"
            found[key] = Acknowledgement(offset, topic, queue_id, queue_offset, key)
        compared = 0
        for key, one in wanted.items():
            if one.offset < begin:
                del self.entries[key]
                continue
            assert key in found, f"{one} is lost; the log begins at {begin} and has {len(found)} messages"
            at = found[key]
            place = at.offset if one.topic != TABLES else min(one.offset, at.offset)  # a table tells its first row's
            assert at._replace(offset=place) == one, f"{one} is at {at}"
            compared += 1
        return Checked(len(found), compared)

    def _log_files(self) -> list[int]:
        folder = self._store / "commitlog"
        return sorted(int(name) for name in os.listdir(folder)) if folder.is_dir() else []

    def rows(self) -> list[tuple[int, str, int, int, list[str], bytes]]:
        """All messages of the log in plain topics: commit log offset, topic, queue id, queue offset, keys, body."""
        for attempt in range(_TRIES):
            try:
                table = reput.read_log(self._store, columns=_COLUMNS).read_all()
            except reput.StoreError as error:
                if not is_gone(error) or attempt + 1 == _TRIES:
                    raise
                continue
            return _rows(table)
        raise AssertionError


class Deliveries:
    """Acknowledged messages that a group of consumers has got.

    Attributes:
        waiting: Keys of messages that were acknowledged, and have not come.
    """

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self._early: set[str] = set()

    def acknowledged(self, key: str) -> None:
        """A consumer may have it before its producer hears of it."""
        if key in self._early:
            self._early.remove(key)
        else:
            self.waiting.add(key)

    def consumed(self, key: str, *, is_acknowledged: bool) -> None:
        """Again, maybe: after a kill of its broker a group goes back by a few seconds."""
        if key in self.waiting:
            self.waiting.remove(key)
        elif not is_acknowledged:
            self._early.add(key)


def _rows(table: pa.Table) -> list[tuple[int, str, int, int, list[str], bytes]]:
    rows = zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True)
    return [row for row in rows if row[1] in PLAIN_TOPICS]
