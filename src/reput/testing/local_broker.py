"""LocalBroker: a broker in a thread of the test's process, and what a test asks of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Unpack

from reput.broker.embedded import Broker
from reput.broker.state import BrokerState
from reput.config.arguments import check_seconds, check_text, refusal
from reput.errors import ConfigError, CorruptRecordError
from reput.files import DISK
from reput.formats.hosts import THIS_MACHINE
from reput.formats.message_ext import MessageExt
from reput.formats.record_layout import SysFlag
from reput.log.reads.compression import decompress
from reput.remoting.topic_validator import check_group

if TYPE_CHECKING:
    from reput.config.broker_options import BrokerOptions

#: Everything on this machine, nothing synced, and files that are made quickly.
_KEYS: BrokerOptions = {
    "bind_address": THIS_MACHINE, "broker_ip1": THIS_MACHINE, "flush_disk_type": "ASYNC_FLUSH",
    "mapped_file_size_commit_log": 64 << 20, "max_hash_slot_num": 10_000, "max_index_num": 40_000,
}  # fmt: skip
_POLL_S = 0.005
_GET_MESSAGES = 1024
_DISPATCH_S = 60.0
#: A clock goes forward by a hundred years at most at a time: it has to fit into a record, and into a `datetime`.
_MOST_ADVANCE_S = 3_155_760_000


class LocalBroker(Broker):
    """A broker with what a test asks of it; see `broker`.

    Attributes:
        address, namesrv: As of `reput.Broker`.
    """

    _temporary: str | None = None

    def _run(self) -> None:
        super()._run()
        if self._temporary is not None:
            DISK.remove_tree(self._temporary)

    def messages(self, topic: str) -> list[MessageExt]:
        """All messages that a topic has, with plain bodies, in the order in which they were stored.

        Raises ConfigError for a topic that is not there; its first message makes it.
        """
        check_text("topic", topic)
        return _messages(self._settled(), topic)

    def wait_consumed(self, group: str, topic: str, timeout: float = 10.0) -> None:
        """Wait until a group has consumed all that a topic has.

        Its offsets count: a push consumer commits them every five seconds, and when it is closed; a pull consumer by
        `commit`. Raises TimeoutError, which says how far the group is in each queue, and ConfigError for a topic that
        is not there, and for an argument that is none.
        """
        check_group(group)
        check_text("topic", topic)
        check_seconds("timeout", timeout, may_be_zero=True)
        until = time.monotonic() + timeout
        self._settled()
        while lag := self.in_loop(lambda state: _lag(state, group, topic)):
            if time.monotonic() > until:
                queues = ", ".join(f"queue {queue_id} at {at} of {end}" for queue_id, (at, end) in sorted(lag.items()))
                raise TimeoutError(f"group {group!r} has not consumed topic {topic!r} in {timeout:g} s: {queues}")
            time.sleep(_POLL_S)

    def advance(self, seconds: float) -> None:
        """Put the broker's clock forward: what is delayed until then comes within a second.

        Messages that are sent from now on get the later time, too. So do check-backs of transactions, and messages that
        were popped and not acknowledged; the clients' heartbeats and locks do not. Raises ConfigError for what are no
        seconds, and for more than a hundred years.
        """
        _check_advance(seconds)
        self._settled()  # else what was sent just now would not be looked at
        self.in_loop(lambda state: state.clock.put_forward(int(seconds * 1000)))

    def _settled(self) -> BrokerState:
        """The broker's state, once all that is stored so far is in its queues.

        The broker's loop puts it there, and tells those who wait for messages; nobody else may.
        """
        until = time.monotonic() + _DISPATCH_S
        while self.in_loop(lambda state: state.store.dispatch_behind_bytes):
            if time.monotonic() > until:
                raise TimeoutError(f"the broker has not dispatched all messages in {_DISPATCH_S:g} s; see its log")
            time.sleep(_POLL_S)
        return self.in_loop(lambda state: state)


def broker(path: str | os.PathLike[str] | None = None, **options: Unpack[BrokerOptions]) -> LocalBroker:
    """A broker and a name server in a thread of this process; a context manager that stops them.

    They run until the block of `with` ends, or until `close`, whether a variable has them or not. Topics and groups are
    made by the first client that uses them; clients of every language may use it, by `namesrv`.

    Args:
        path: The store's directory; None for a temporary one, which goes with the broker.
        options: RocketMQ's keys, as of `reput.Broker.start`. By default nothing is synced.

    Raises:
        ConfigError: An unknown key, or a wrong value.
    """
    if path is not None:
        return LocalBroker.start(path, **_KEYS | options)
    folder = DISK.make_temporary_directory()
    try:
        started = LocalBroker.start(folder, **_KEYS | options)
    except BaseException:
        DISK.remove_tree(folder)
        raise
    started._temporary = folder
    return started


def _check_advance(seconds: Any) -> None:
    """Raises ConfigError for what a clock cannot go forward by."""
    if isinstance(seconds, int | float) and seconds < 0:
        raise refusal("seconds", seconds, "0 or more: a broker's time never goes back")
    check_seconds("seconds", seconds, may_be_zero=True, most=_MOST_ADVANCE_S)


def _readable_queues(state: BrokerState, topic: str) -> int:
    """Number of a topic's queues for consumers; 0 for a topic of RocketMQ's own that the broker has not made."""
    config = state.topics.select_topic_config(topic)
    if config is not None:
        return config.read_queue_nums
    if state.topics.is_system_topic(topic):
        return 0
    known = sorted(name for name in state.topics.topic_config_table if not state.topics.is_system_topic(name))
    raise ConfigError(f"there is no topic {topic!r}; topics of this broker: {', '.join(known) or 'none'}")


def _messages(state: BrokerState, topic: str) -> list[MessageExt]:
    found: list[MessageExt] = []
    _readable_queues(state, topic)  # tells that the topic is not there
    for queue in state.store.queues():
        offset = queue.min_offset
        while queue.topic == topic and offset < queue.max_offset:
            result = state.store.get_message(topic, queue.queue_id, offset, _GET_MESSAGES)
            found += map(_plain, result.messages())
            offset = max(result.next_begin_offset, offset + 1)
    return sorted(found, key=lambda message: message.commit_log_offset)


def _plain(message: MessageExt) -> MessageExt:
    """A message with the body that its producer gave, as consumers get it."""
    if message.sys_flag & SysFlag.COMPRESSED:
        plain = decompress(message.body, message.sys_flag)
        if plain is None:
            raise CorruptRecordError("", message.commit_log_offset, "the compressed body is none")
        message = MessageExt(message.raw)
        message.body = plain
    return message


def _lag(state: BrokerState, group: str, topic: str) -> dict[int, tuple[int, int]]:
    """Of each queue that the group has not consumed: its offset there, and the queue's end."""
    found = {}
    for queue_id in range(_readable_queues(state, topic)):
        at, end = max(state.offsets.query_offset(group, topic, queue_id), 0), state.store.max_offset(topic, queue_id)
        if at < end:
            found[queue_id] = at, end
    return found
