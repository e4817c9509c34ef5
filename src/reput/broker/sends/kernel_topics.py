"""KernelTopics: the topics whose plain sends a kernel takes."""

from __future__ import annotations

from reput.broker.topic_creation import TopicCreation
from reput.broker.view import BrokerView
from reput.errors import ReputError
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.metadata import TopicConfig, TopicFilterType
from reput.formats.record_layout import V1_MAX_TOPIC_SIZE
from reput.kernels.wire.send_topics import TopicTable
from reput.log.queue_types import is_batch_cq
from reput.remoting.codes import PermName
from reput.remoting.command import RemotingCommand
from reput.remoting.send_headers import decode_send_header
from reput.remoting.topic_validator import NOT_ALLOWED_SEND_TOPICS, SYSTEM_TOPIC_PREFIX, validate_topic
from reput.service.topic_config_manager import TopicConfigManager
from reput.store.loop_writer import LoopWriter
from reput.store.message_store import MessageStore


class KernelTopics:
    """Topics whose sends nobody has to look into; a send in the plain way tells of one, a change of it forgets it.

    Args:
        view, store, topics, creation, writer: The broker's.
        table: The kernel's.
    """

    def __init__(
        self,
        view: BrokerView,
        store: MessageStore,
        topics: TopicConfigManager,
        creation: TopicCreation,
        writer: LoopWriter,
        table: TopicTable,
    ) -> None:
        self._view, self._store, self._topics, self._creation = view, store, topics, creation
        self._writer = writer
        self._table = table
        self._configs: dict[str, TopicConfig] = {}
        self._metadata: object = None
        self._permission = view.config.broker_permission

    def look(self) -> None:
        """Forget the topics that have changed since the last look; `brokerPermission` makes all of them anew.

        Of 30,000 topics whose sends a kernel takes, each new topic of the broker costs a comparison, and no more.
        """
        metadata = self._store.topic_metadata
        if metadata is self._metadata:
            return
        self._metadata, topics = metadata, metadata.topic_config_table
        before, self._permission = self._permission, self._view.config.broker_permission
        if before != self._permission or any(topics.get(name) is not one for name, one in self._configs.items()):
            self._configs.clear()
            self._table.forget_topics()

    def learn(self, command: RemotingCommand) -> None:
        """Let the kernel take sends to the topic of a send, if nobody has to look into them."""
        try:
            topic = decode_send_header(command.code, command.ext_fields).topic
        except ReputError:
            return
        config = self._topics.select_topic_config(topic)
        if config is None or topic in self._configs or not self._takes(config):
            return
        if self._creation.is_creating(topic):  # sends that wait for it are first
            return
        queues = max(config.write_queue_nums, config.read_queue_nums)
        try:
            self._table.add_topic(topic, self._writer.number_queues(topic, queues))
        except ReputError:
            return
        self._configs[topic] = config

    def _takes(self, config: TopicConfig) -> bool:
        name = config.topic_name
        return (
            validate_topic(name) is None
            and len(name.encode()) <= V1_MAX_TOPIC_SIZE
            and name not in NOT_ALLOWED_SEND_TOPICS
            and not name.startswith((RETRY_TOPIC_PREFIX, SYSTEM_TOPIC_PREFIX))
            and config.topic_filter_type is TopicFilterType.SINGLE_TAG
            and not is_batch_cq(config)
            and config.attributes.get("cleanup.policy") != "COMPACTION"
            and (bool(self._view.config.broker_permission & PermName.WRITE) or not config.order)
        )
