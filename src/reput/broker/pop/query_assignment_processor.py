"""Assignment of queues to a member, and its request mode (`QueryAssignmentProcessor`)."""

from __future__ import annotations

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import encode_beside
from reput.broker.registration import Registration
from reput.broker.remarks import SEE_FAQ
from reput.broker.state_files import StateFiles
from reput.broker.view import BrokerView
from reput.client.instance.topic_route import subscribe_queues
from reput.errors import RemotingCommandError, RemotingError
from reput.formats.consumers import MessageModel, MessageRequestMode
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.formats.metadata import MessageRequestModeBody
from reput.remoting.body import decode_body, encode_body
from reput.remoting.client_bodies import MessageQueue
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.pop_bodies import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from reput.remoting.queue_tables import QueueKey
from reput.service.consumer_manager import ConsumerManager
from reput.service.pop.assignment import STRATEGIES, popped_queues, pulled_queues
from reput.service.pop.message_request_mode_manager import MessageRequestModeManager
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler


class QueryAssignmentProcessor:
    """Takes QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE and GET_ALL_MESSAGE_REQUEST_MODE.

    Args:
        view, clock, pools, topics, groups, consumers, config_files, registration: The broker's.
        modes: How groups get messages, as an operator has set it.
    """

    def __init__(
        self,
        view: BrokerView,
        clock: BrokerClock,
        pools: DiskPools,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager[Channel],
        config_files: StateFiles,
        registration: Registration,
        modes: MessageRequestModeManager,
    ) -> None:
        self._view, self._clock, self._pools, self._topics = view, clock, pools, topics
        self._groups, self._consumers = groups, consumers
        self._config_files, self._registration = config_files, registration
        self._modes = modes

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query_assignment,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_message_request_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    async def all_modes(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The content of `messageRequestMode.json`, as of now; slaves copy it."""
        return command.response(body=await encode_beside(self._pools, connection, encode_body, self._modes.content()))

    async def set_message_request_mode(self, connection: Channel, command: RemotingCommand) -> Answer:
        """Set how the members of a group get the messages of a topic; it is on the disk before the answer."""
        body = decode_body(MessageRequestModeBody, command.body)
        if body.topic.startswith(RETRY_TOPIC_PREFIX):
            return command.response(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.select_topic_config(body.topic) is None:
            remark = f"topic[{body.topic}] not exist, apply first please! {SEE_FAQ}"
            return command.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._groups.find_subscription_group_config(body.consumer_group, self._clock.now_ms()) is None:
            remark = f"subscription group [{body.consumer_group}] does not exist, {SEE_FAQ}"
            return command.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        self._modes.set_message_request_mode(body, self._clock.now_ms())
        await self._config_files.persist(self._modes)
        return command.response()

    async def query_assignment(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The queues of a member; a body without them if it is to keep those that it has."""
        body = decode_body(QueryAssignmentRequestBody, command.body)
        mode = self._mode(body.topic, body.consumer_group)
        queues = await self._assigned(body, mode)
        assigned = None
        if queues is not None:
            assigned = tuple(
                MessageQueueAssignment(MessageQueue(one.topic, one.broker_name, one.queue_id), mode.mode)
                for one in queues
            )
        return command.response(body=encode_body(QueryAssignmentResponseBody(assigned)))

    def _mode(self, topic: str, group: str) -> MessageRequestModeBody:
        config, known = self._view.config, self._modes.find(topic, group)
        if known is not None:
            return known
        if topic.startswith(RETRY_TOPIC_PREFIX):
            return MessageRequestModeBody(topic, group, MessageRequestMode.PULL)
        return MessageRequestModeBody(
            topic, group, config.default_message_request_mode, config.default_pop_share_queue_num
        )

    async def _assigned(self, body: QueryAssignmentRequestBody, mode: MessageRequestModeBody) -> list[QueueKey] | None:
        """The queues of a member; None if nobody can say."""
        queues = await self._queues(body.topic)
        if queues is None:
            return None
        if body.message_model is MessageModel.BROADCASTING or not self._view.config.server_load_balancer_enable:
            return queues
        members = sorted(self._consumers.client_ids(body.consumer_group))
        strategy = STRATEGIES.get(body.strategy_name)
        if not members or not queues or strategy is None:
            return None
        if mode.mode is MessageRequestMode.POP:
            return popped_queues(strategy, body.client_id, queues, members, mode.pop_share_queue_num)
        return pulled_queues(strategy, body.client_id, queues, members)

    async def _queues(self, topic: str) -> list[QueueKey] | None:
        """The queues of a topic that consumers read, as the name servers tell, sorted; None if they know none."""
        try:
            route = await self._registration.route(topic)
        except (RemotingError, RemotingCommandError):
            return None
        return None if route is None else sorted(subscribe_queues(topic, route))
