"""DeadLetters: where messages go that the broker is to put again, and never can."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from reput.broker.appends.inner_appends import Appends
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.topic_creation import TopicCreation
from reput.errors import ConfigError, MessageIllegalError, RemotingCommandError, ReputError
from reput.events import Event
from reput.formats.message import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, check_topic, check_topic_characters
from reput.formats.message_batch import INNER_BATCH, unfold_record
from reput.formats.metadata import TopicConfig
from reput.formats.properties import REAL_TOPIC, UNIQ_KEY
from reput.remoting.codes import ResponseCode
from reput.remoting.topic_validator import SCHEDULE_GROUP, dlq_topic_of
from reput.service.broker_stats_manager import BrokerStatsManager
from reput.store.puts.put_rows import PutRowResult

logger = logging.getLogger("reput.broker")


class DeadLetters:
    """Lets what puts messages again go on behind one that no topic takes: "cannot be put" is not "not yet".

    What a message becomes may be no message any more: its properties grow, its new topic's name is too long, or other
    keys held when it was stored. Such a message is put as it was into another topic, and the log says so.

    Args:
        appends: Puts.
        creation: Makes the topics.
        stats: Counts dead letters of groups.
    """

    def __init__(self, appends: Appends, creation: TopicCreation, stats: BrokerStatsManager) -> None:
        self._appends = appends
        self._creation = creation
        self._stats = stats

    async def put_or_give_up(
        self, putting: Awaitable[PutRowResult], record: bytes | None, last_topic: str | None = None
    ) -> PutRowResult | None:
        """Put what a stored message has become; if that can never be, put the message as it was into a last topic.

        Args:
            putting: The put.
            record: The message; None: it is not of this broker, and is given up with a line in the log alone.
            last_topic: None: the dead letters of the group that it was to come to again, or of SCHEDULE_CONSUMER.

        Returns:
            Where it went; None: it was given up, and the dead letter is safe.

        Raises:
            ReputError: It cannot be put now, and is to be put again.
        """
        try:
            return await putting
        except ReputError as error:
            if not is_never(error):
                raise
            await self.give_up(record, last_topic, error)
            return None

    async def give_up(self, record: bytes | None, last_topic: str | None, why: ReputError) -> None:
        """Put a message that can never be put where it belongs into a last topic, and return once it is safe there."""
        if record is None:
            logger.error(Event("what can never be put is given up", error=why))
            return
        for one in unfold_record(record) or [record]:  # an inner batch: its messages
            await self._give_up_one(MessageExtBrokerInner.of_record(one), last_topic, why)

    async def _give_up_one(self, message: MessageExtBrokerInner, last_topic: str | None, why: ReputError) -> None:
        last_topic = _takeable(last_topic or _dead_letters_of(message.properties.get(REAL_TOPIC, "")))
        names = {"topic": message.topic, "key": message.properties.get(UNIQ_KEY), "into": last_topic}
        try:
            result = await self.put(message, last_topic)
        except ReputError as error:
            if not is_never(error):
                raise
            logger.error(Event("a message that can never be put is lost: no last topic takes it", error=error, **names))
            return
        await self._appends.safe(result.end_offset)
        if last_topic.startswith(DLQ_TOPIC_PREFIX):
            self._stats.inc_dead_letter(last_topic.removeprefix(DLQ_TOPIC_PREFIX), message.topic)
        logger.error(Event("a message that can never be put goes to another topic", error=why, **names))

    async def put(self, message: MessageExtBrokerInner, last_topic: str) -> PutRowResult:
        """Put a message into queue 0 of a topic, which is made if it is not there.

        Errors as of `Appends.put`; ConfigError if there can be no such topic.
        """
        await self._creation.create(TopicConfig(last_topic, 1, 1))
        message.topic, message.queue_id, message.prepared_transaction_offset = last_topic, 0, 0
        message.sys_flag &= ~INNER_BATCH
        return await self._appends.append_row(message.row())


def is_never(error: ReputError) -> bool:
    """Whether an error says that no later put will be taken either."""
    is_refused = isinstance(error, RemotingCommandError) and error.code == ResponseCode.MESSAGE_ILLEGAL
    return is_refused or isinstance(error, MessageIllegalError | ConfigError)


def _takeable(last_topic: str) -> str:
    """A last topic, or the dead letters of SCHEDULE_CONSUMER if there can be no topic of its name.

    A group's name may have 255 characters, as a topic's: with `%DLQ%` before it, it is too long.
    """
    try:
        check_topic(last_topic)
        check_topic_characters(last_topic)
    except MessageIllegalError:
        return dlq_topic_of(SCHEDULE_GROUP)
    return last_topic


def _dead_letters_of(topic: str) -> str:
    """The dead letters of what waited to go to a topic."""
    group = topic.removeprefix(RETRY_TOPIC_PREFIX).partition("+")[0] if topic.startswith(RETRY_TOPIC_PREFIX) else ""
    return dlq_topic_of(group or SCHEDULE_GROUP)
