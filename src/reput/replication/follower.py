"""Follower: keeps the log of a store equal to a master's, from where it ends, over breaks of the connection.

The protocol tells neither what a log is called nor whether two logs are the same. So the follower asks for some bytes
that it has already, and compares them before it appends anything; and at each sign of life without bytes it asks the
broker where its log begins and ends. What RocketMQ's own slave passes over in silence ends it with an error:
a log that is ahead of its master's, other bytes at the same offsets, a gap, files of another size, bytes that are no
records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from threading import Event
from typing import Literal, NamedTuple, TypeVar

from reput.client.instance.session_credentials import SessionCredentials
from reput.config.arguments import (
    Check,
    able_to,
    an_object_of,
    check_address,
    check_call,
    check_flag,
    check_function,
    check_texts,
    one_of,
    optional,
    whole,
)
from reput.config.message_store import FlushDiskType
from reput.errors import AccessDeniedError, ConfigError, RemotingError, ReplicationError
from reput.extras import saying_the_extra
from reput.formats.metadata import Topics
from reput.formats.replication import HEARTBEAT_S
from reput.transport.tls import ClientTls

with saying_the_extra(__name__):
    from reput.replication.ha_stream import LEAST_BANDWIDTH, HAStream
    from reput.replication.master import Master, MasterLog, ha_address
    from reput.replication.received_log import ReceivedLog
    from reput.store.message_store import MessageStore

logger = logging.getLogger("reput.replication")

#: Bytes that are compared before anything is appended.
_OVERLAP_BYTES = 64 << 10
_WAIT_S, _RETRY_S = 0.2, 1.0
#: Connections one after the other that bring no new byte before a follower with `once` gives up.
_TRIES = 5
#: Seconds between two looks for changes of topics.
_TOPICS_S = 10.0

_T = TypeVar("_T")


class FollowState(NamedTuple):
    """Progress of a follower.

    Attributes:
        end_offset: Commit log offset after the last record that it has.
        master: Where the master's log began and ended when it was last asked; None before.
        is_connected: Whether the connection stands; if the master has no byte to ask for, whether it answers.
        lag_ms: Age of the newest record, if bytes are missing; 0 if none are known to be missing.
        heard_ms: When the master was last heard, ms since 1970 UTC; 0 before.
        failure: Why the log is not followed; None while it is, and was compared.
    """

    end_offset: int
    master: MasterLog | None
    is_connected: bool
    lag_ms: int
    heard_ms: int
    failure: str | None

    @property
    def lag_bytes(self) -> int:
        """Bytes of the master's log that are missing."""
        return 0 if self.master is None else max(0, self.master.max_offset - self.end_offset)

    @property
    def lag(self) -> tuple[int, int] | None:
        """`lag_bytes` and `lag_ms` as they are told; None while the master is not heard: nobody knows them then."""
        return (self.lag_bytes, self.lag_ms) if self.is_connected and self.master is not None else None


def _no_step(state: FollowState) -> None:
    """Nobody looks."""


def _no_topics() -> None:
    """Nobody asks for topics."""


#: Checks of the arguments by their names.
_CHECKS: dict[str, Check] = {
    "store": an_object_of(MessageStore),
    "address": check_address,
    "begin": one_of("oldest", "newest"),
    "acknowledges": check_flag,
    "bandwidth": optional(whole(LEAST_BANDWIDTH)),
    "ha_address": optional(check_address),
    "own_topics": check_texts,
    "tls": optional(an_object_of(ClientTls)),
    "credentials": optional(an_object_of(SessionCredentials)),
    "on_state": check_function,
    "on_topics": check_function,
    "stop": able_to("is_set", "a threading.Event"),
    "once": check_flag,
}


class Follower:
    """Follows one master into one store, which must be open for writing and takes no puts meanwhile.

    Args:
        store: The store.
        address: The master's address, "host:port"; or a slave's, which serves its log the same way.
        begin: Where an empty store begins: with the oldest file that the master has, or with its newest one.
        acknowledges: Tell the master what has come, as a slave does. A master that waits for a slave counts it.
        bandwidth: Bytes a second at the most, `LEAST_BANDWIDTH` or more; None: no limit.
        ha_address: Where the master serves its log, "host:port"; without it, where its configuration says. With it the
            log is followed, too, if the master refuses to answer: the HA port asks nobody who he is.
        own_topics: Topics of the store's that stay, though the master has none of their names.
        tls: How to talk TLS to `address`; None for the plain protocol. The HA port is always plain.
        credentials: Sign what is asked there; None for none.
        on_state: Called after each step, in the thread of `run`.
        on_topics: Called after topics have changed, in that thread.

    Raises ConfigError for an argument that is none.
    """

    def __init__(
        self,
        store: MessageStore,
        address: str,
        *,
        begin: Literal["oldest", "newest"] = "oldest",
        acknowledges: bool = False,
        bandwidth: int | None = None,
        ha_address: str | None = None,
        own_topics: Collection[str] = (),
        tls: ClientTls | None = None,
        credentials: SessionCredentials | None = None,
        on_state: Callable[[FollowState], None] = _no_step,
        on_topics: Callable[[], None] = _no_topics,
    ) -> None:
        check_call(_CHECKS, locals())
        self._store, self._begin, self._acknowledges, self._on_state = store, begin, acknowledges, on_state
        self._bandwidth = bandwidth
        self._ha_address, self._own_topics, self._on_topics = ha_address, own_topics, on_topics
        self._writer = store.replica_writer(self._copy_topics)
        self._is_synced = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._master = Master(address, tls=tls, credentials=credentials)
        self._received = ReceivedLog(self._writer, store.path, address)
        self._log: MasterLog | None = None
        self._refusals: set[str] = set()
        self._is_connected = False
        self._said = ""  # the last line of the log about a break
        self._failure: str | None = "the master has not answered yet"
        self._topics_at = 0.0
        self._asked_for: set[str] = set()
        self._heard_ms = 0

    @property
    def state(self) -> FollowState:
        """The progress now."""
        end, log = self._writer.end_offset, self._log
        is_behind = log is not None and log.max_offset > end
        newest = self._writer.last_store_timestamp
        lag = int(time.time() * 1000) - newest if is_behind and newest else 0
        return FollowState(end, log, self._is_connected, max(lag, 0), self._heard_ms, self._failure)

    def run(self, stop: Event, *, once: bool = False) -> None:
        """Follow until `stop` is set, or with `once` until all is there that the master had at the last look.

        Raises:
            RemotingError: With `once`: five tries one after the other have brought no new byte.
            AccessDeniedError: With `once`: the master lets nobody ask who asks so.
            ReplicationError, CorruptRecordError: See the module; all before is appended, and nothing after.
            StoreFullError, StorePoisonedError, StoreStateError: As of `MessageStore.put_messages`.
        """
        check_call(_CHECKS, {"stop": stop, "once": once})
        tries = 0
        try:
            while not stop.is_set():
                end = self._writer.end_offset
                try:
                    self._follow(stop, once)
                    return
                except RemotingError as error:
                    tries = 1 if self._writer.end_offset > end else tries + 1
                    if once and (tries == _TRIES or isinstance(error, AccessDeniedError)):
                        raise
                    if str(error) != self._said:
                        logger.warning("%s; tried again every %g s", error, _RETRY_S)
                    self._said = self._failure = str(error)
                self._is_connected = False
                self._on_state(self.state)
                stop.wait(_RETRY_S)
        except Exception as error:
            self._failure = str(error)
            raise
        finally:
            self._is_connected = False
            self._master.close()

    def _follow(self, stop: Event, once: bool) -> None:
        """Follow over one connection."""
        config = self._told(self._master.config) or {}
        log = self._log = self._told(self._master.log)
        self._take_file_size(config)
        self._told(self._copy_topics)
        is_new = log is not None and not log.max_offset and self._has_nothing
        # Of an empty log there is nothing to ask for. But a new master may take its first message only with a slave.
        while self._has_nothing and log and log.max_offset == log.min_offset and (once or not is_new):
            self._connected()
            self._failure = None
            self._on_state(self.state)
            if once or stop.wait(_RETRY_S):
                return
            log = self._log = self._told(self._master.log)
        first = self._received.begin(*self._beginning(log), first=0 if is_new else None)
        address = self._ha_address or ha_address(self._master.address, config)
        stream = HAStream(address, self._bandwidth, waits_for_bytes=once)
        try:
            stream.report(first)
            self._connected()
            if is_new:  # nothing has to be compared
                self._failure = None
                self._on_state(self.state)
            self._receive(stream, first, stop, once)
        finally:
            stream.close()

    def _connected(self) -> None:
        """Tell that a break is over of which the log has a line, so that the next one gets a line, too."""
        self._is_connected = True
        if self._said:
            logger.warning("%s is followed again", self._master.address)
            self._said = ""

    def _told(self, ask: Callable[[], _T]) -> _T | None:
        """The master's answer; None if it refuses, and the log is followed without it.

        Raises AccessDeniedError if nobody else says where the log is.
        """
        try:
            return ask()
        except AccessDeniedError as error:
            if self._ha_address is None:
                raise
            if str(error) not in self._refusals:
                self._refusals.add(str(error))
                logger.error("%s; its log is followed, but its topics are not copied", error)
            return None

    def _take_file_size(self, config: dict[str, str]) -> None:
        """Give a log without a file the size of the master's files, and refuse a master whose files have another."""
        theirs = config.get("mappedFileSizeCommitLog")
        try:
            has_it = theirs is None or self._writer.take_file_size(theirs)
        except ConfigError as error:
            raise ReplicationError(f"{self._master.address}: {error}") from None
        if not has_it:
            ours = self._store.config.mapped_file_size_commit_log
            raise ReplicationError(
                f"{self._store.path}: log files of {ours} bytes, and {self._master.address} has log files of {theirs}; "
                "follow into a new store, and leave mappedFileSizeCommitLog out"
            )

    @property
    def _has_nothing(self) -> bool:
        """Whether the store has no byte; it may have a file, if the power was cut before its first sync."""
        return self._writer.is_empty or not self._writer.end_offset

    def _beginning(self, log: MasterLog | None) -> tuple[int | None, bytes]:
        """Offset of the bytes that the master is to send, and the bytes that begin them; for `ReceivedLog.begin`."""
        end = self._writer.end_offset
        if log is not None and not log.max_offset and self._has_nothing:  # the first frame says where it begins
            return None, b""
        if self._writer.is_empty:
            if log is None:
                return None, b""
            size = self._store.config.mapped_file_size_commit_log
            newest = max(log.max_offset - 1, log.min_offset)
            start = log.min_offset if self._begin == "oldest" else newest - newest % size
            self._writer.begin_at(start)
            return start, b""
        if log is not None:
            self._check_bounds(log, end)
        if not end:
            return 0, b""
        start = max(end - _OVERLAP_BYTES, self._store.min_commit_log_offset, 0 if log is None else log.min_offset, 1)
        return start, self._writer.last_bytes(end - start)

    def _check_bounds(self, log: MasterLog, end: int) -> None:
        """Refuse a master whose log does not reach to the store's end, or begins after it."""
        where = f"{self._store.path} ends at {end}, and the log of {self._master.address}"
        if end > log.max_offset:
            raise ReplicationError(
                f"{where} at {log.max_offset}: the master has lost its last records, or is another one; "
                "nothing was changed; `reput rejoin` shows what only this store has"
            )
        if end < log.min_offset:
            raise ReplicationError(
                f"{where} begins at {log.min_offset}: the bytes between were deleted there; nothing was changed; "
                "follow into a new store, and keep this one for what it has"
            )

    def _receive(self, stream: HAStream, first: int, stop: Event, once: bool) -> None:
        received = self._received
        told, due = first, time.monotonic() + HEARTBEAT_S
        while not stop.is_set():
            frames = stream.frames(_WAIT_S)
            now = time.monotonic()
            for offset, body in frames:
                received.take(offset, body)
            if frames:
                self._heard_ms = int(time.time() * 1000)
                received.append()
                if self._is_synced:  # before anything is acknowledged
                    self._writer.flush()
                stream.release()
                if received.is_compared:
                    self._failure = None
                if not all(len(body) for _, body in frames):
                    self._look(received.following)
            self._keep_topics(now)
            if self._acknowledges and received.is_compared and self._writer.end_offset > told:
                told = self._writer.end_offset
                stream.report(told)
                due = now + HEARTBEAT_S
            elif now >= due:
                stream.report(told)
                due = now + HEARTBEAT_S
            self._on_state(self.state)
            if once and received.is_compared and self._log is not None and not self.state.lag_bytes:
                return

    def _keep_topics(self, now: float) -> None:
        """Copy topics by the period, and at once if records of a topic have come that the store does not know.

        These records are not acknowledged before: once the master is lost, nobody could read them here without their
        topic. The master may have deleted the topic, or refuse to answer, so it is asked once for each topic in a
        period.
        """
        unknown, is_due = self._writer.unknown_topics, now - self._topics_at > _TOPICS_S
        if is_due:
            self._asked_for.clear()
        if is_due or unknown - self._asked_for:
            self._asked_for |= unknown
            self._told(self._copy_topics)
        unknown.clear()

    def _copy_topics(self) -> None:
        """Take over the master's topics, and take out those that it has no more (`SlaveSynchronize`)."""
        self._topics_at = time.monotonic()
        ours, topics = self._store.topics, self._master.topics()
        theirs = topics.topic_config_table
        changed = [config for name, config in theirs.items() if ours.get(name) != config]
        deleted = ours.keys() - theirs.keys() - set(self._own_topics)
        if changed:
            self._store.update_topics(changed)
        self._writer.copy_deleted_topics(deleted, self._begins(topics))
        if changed or deleted:
            self._on_topics()

    def _begins(self, topics: Topics) -> dict[str, int]:
        """The master's begins of deleted topics, and those that it needs no more, while this log begins earlier."""
        theirs, first = topics.begin_offset_table or {}, self._store.min_commit_log_offset
        ours = (self._store.topic_metadata.begin_offset_table or {}).items()
        left = {topic: begin for topic, begin in ours if topic not in theirs and begin > first}
        log = self._told(self._master.log) if left else None
        return {topic: begin for topic, begin in left.items() if log and begin <= log.min_offset} | dict(theirs)

    def _look(self, following: int) -> None:
        """Check after a sign of life without bytes that the master still has the log that is followed."""
        log = self._log = self._told(self._master.log)
        if log is not None and not log.min_offset <= following <= log.max_offset:
            raise ReplicationError(
                f"{self._store.path}: the next byte is {following}, and the log of {self._master.address} has "
                f"{log.min_offset} to {log.max_offset}; nothing was changed"
            )
