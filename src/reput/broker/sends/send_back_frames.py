"""SendBackFrames: messages of one group that one read of a connection sends back, in three calls of kernels."""

from __future__ import annotations

import random
from ctypes import string_at
from functools import lru_cache

from reput.broker.appends.send_path import SendPath
from reput.broker.clock import BrokerClock
from reput.broker.view import BrokerView
from reput.errors import ReputError, WouldWaitError
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.record_layout import V1_MAX_TOPIC_SIZE
from reput.kernels.records.log_room import LogRoom
from reput.kernels.wire.send_back_frames import SendBacks
from reput.log.queue_types import is_batch_cq
from reput.log.store_host import encode_store_host
from reput.remoting.ack_frames import TAKEN
from reput.remoting.codes import PermName
from reput.remoting.topic_validator import dlq_topic_of, retry_topic_of
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.message_store import MessageStore
from reput.store.reads.proven_records import ProvenRecords
from reput.transport.connection import Connection

#: Groups whose dead letters have a number that is kept.
_MOST_GROUPS = 1024


class SendBackFrames:
    """Takes messages that are sent back as `SendBackProcessor` does, as many at once as come one after the other.

    Only for `SendFrameProcessor`, which has looked first: no request is checked, hosts are IPv4, and records have no
    CRC of their properties.

    Args:
        view, clock, store, topics, groups, send_path, stats: The broker's.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        send_path: SendPath,
        stats: BrokerStatsManager,
    ) -> None:
        self._view, self._clock, self._store, self._topics, self._groups = view, clock, store, topics, groups
        self._writer, self._room, self._stats = send_path.writer, send_path.room, stats
        self._kernel = SendBacks(
            store_host=encode_store_host(store.config),
            schedule_topic=SCHEDULE_TOPIC.encode(),
            numbers=self._writer.number_queues(SCHEDULE_TOPIC, len(store.config.delay_levels_ms)),
            answer=TAKEN,
            seed=random.getrandbits(61) + 1,
        )
        self._dead_number = lru_cache(_MOST_GROUPS)(self._number_of)

    def take(self, connection: Connection) -> tuple[int, bytes, int]:
        """Take the next requests, as long as they are plain and of one group.

        Plain is what `SendBackProcessor` would put at once: of a message in memory that its queue has, of a group
        whose retry topic is there, without properties that somebody has to look into.

        Returns:
            How many were taken, 0 if the next one is not plain and nothing has changed; their answers, and the commit
            log offset after the messages.

        Raises:
            WouldWaitError: In `NeverWaiting`: the log has no room for the next message.
        """
        begin, end = connection.frames.window()
        count = self._kernel.read(begin, end)
        if not count:
            return 0, b"", 0
        group = string_at(*self._kernel.group).decode(errors="replace")
        try:
            found = self._store.find_records(self._kernel.offsets[:count]) if self._set_target(group) else None
        except ReputError:  # the disk cannot read a queue, the log is busy: the plain way waits, or says what it is
            found = None
        if found is None:
            return 0, b"", 0
        taken, end_offset = self._append_all(group, found)
        if taken:
            connection.frames.taken(self._kernel.end_of(taken) - begin)
        return taken, self._kernel.take_answers(), end_offset

    def _set_target(self, name: str) -> bool:
        """Let the messages of a group go where they belong; False if the plain way is to say why that cannot be."""
        group = self._groups.find_subscription_group_config(name, self._clock.now_ms())
        topic = self._topics.select_topic_config(retry_topic_of(name))
        if (
            group is None
            or topic is None
            or group.retry_queue_nums <= 0
            or not topic.perm & self._view.config.broker_permission & PermName.WRITE
        ):
            return False
        dead = self._topics.select_topic_config(dlq_topic_of(name))
        has_dead = dead is not None and not is_batch_cq(dead) and len(dead.topic_name.encode()) <= V1_MAX_TOPIC_SIZE
        letters = (dead.topic_name, self._dead_number(dead.topic_name)) if dead is not None and has_dead else None
        self._kernel.set_target(topic.topic_name, group.retry_queue_nums, group.retry_max_times, letters)
        return True

    def _number_of(self, topic: str) -> int:
        return int(self._writer.number_queues(topic, 1)[0])

    def _append_all(self, group: str, found: ProvenRecords) -> tuple[int, int]:
        """Put the messages of requests again; returns how many, and the commit log offset after them."""
        taken, end_offset = 0, 0
        while taken < found.records:
            try:
                count, end = self._append(taken, found)
            except WouldWaitError:
                if taken:  # they are done, and the next call asks for room
                    break
                raise
            if not count:
                break
            origin = string_at(*self._kernel.origin).decode(errors="replace")
            self._stats.inc_send_back(group, origin, count)
            if self._kernel.is_dead:
                self._stats.inc_dead_letter(group, origin, count)
            taken, end_offset = taken + count, end
        return taken, end_offset

    def _append(self, first: int, found: ProvenRecords) -> tuple[int, int]:
        """Let the kernel put messages; 0 if the plain way is to say why it cannot."""
        writer, kernel, count, end_offset = self._writer, self._kernel, 0, 0

        def write(room: LogRoom) -> int:
            nonlocal count
            count = kernel.append(first, found.runs, found.records, room)
            return kernel.log_address - room.address

        try:
            end_offset = writer.append_written(write)
            if kernel.needed and not count:
                writer.make_room(kernel.needed)
                end_offset = writer.append_written(write)
        except WouldWaitError:
            if self._room.failure is None:
                raise
        except ReputError:
            pass
        return count, end_offset
