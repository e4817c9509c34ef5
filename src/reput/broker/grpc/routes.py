"""QueryRoute and QueryAssignment: the queues of topics, and which a consumer receives from (`RouteActivity`)."""

from __future__ import annotations

from reput.broker.grpc.client_channel import Caller
from reput.broker.view import BrokerView
from reput.formats.access import Action, ResourceType
from reput.formats.metadata import TopicConfig, TopicMessageType
from reput.remoting.codes import PermName
from reput.remoting.grpc.grpc_codes import AddressScheme, Code, GrpcMessageType, Permission
from reput.remoting.grpc.grpc_interface import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from reput.remoting.grpc.grpc_parts import Address, Assignment, Endpoints, GrpcBroker, GrpcMessageQueue, GrpcResource
from reput.remoting.grpc.protobuf import encode
from reput.service.access.policies import Need
from reput.service.grpc.client_settings import is_in_order
from reput.service.grpc.message_checks import checked_group, checked_topic, unknown_topic
from reput.service.grpc.statuses import RefusedCallError, ok
from reput.service.subscription_group_manager import SubscriptionGroupManager
from reput.service.topic_config_manager import TopicConfigManager

#: Bytes of the request's topic and endpoints, which come again with each queue.
_MOST_ECHO = 4096
#: Where a consumer that is not in order receives from: any queue.
_ANY_QUEUE = -1
_ACCEPTED: dict[str, tuple[GrpcMessageType, ...]] = {
    TopicMessageType.NORMAL: (GrpcMessageType.NORMAL,),
    TopicMessageType.FIFO: (GrpcMessageType.FIFO,),
    TopicMessageType.DELAY: (GrpcMessageType.DELAY,),
    TopicMessageType.TRANSACTION: (GrpcMessageType.TRANSACTION,),
    TopicMessageType.MIXED: (
        GrpcMessageType.NORMAL, GrpcMessageType.FIFO, GrpcMessageType.DELAY, GrpcMessageType.TRANSACTION,
    ),
}  # fmt: skip


class Routes:
    """Answers by the broker's own topics: each client that is here may go on here."""

    def __init__(self, view: BrokerView, topics: TopicConfigManager, groups: SubscriptionGroupManager) -> None:
        self._view, self._topics, self._groups = view, topics, groups

    def query_route(self, caller: Caller, request: QueryRouteRequest) -> QueryRouteResponse:
        """The queues of a topic; no topic is made."""
        config = self._topic(request.topic)
        caller.require(Need(ResourceType.TOPIC, config.topic_name, (Action.PUB, Action.SUB)))
        _check_echo(request)
        broker = self._broker(caller, request.endpoints)
        accepted = _ACCEPTED.get(message_type_of(config), (GrpcMessageType.UNSPECIFIED,))
        queues = [
            GrpcMessageQueue(request.topic, number, permission, broker, accepted)
            for number, permission in enumerate(_permissions(config))
        ]
        return QueryRouteResponse(ok(), queues)

    def query_assignment(self, caller: Caller, request: QueryAssignmentRequest) -> QueryAssignmentResponse:
        """The queues that a push consumer receives from: all as one, or of a group in order each."""
        checked_topic(request.topic)
        group = checked_group(request.group)
        config = self._topic(request.topic)
        caller.require(*consumer_needs(group, config.topic_name))
        if not config.perm & PermName.READ or not config.read_queue_nums:
            raise RefusedCallError(Code.FORBIDDEN, "no readable queue")
        _check_echo(request)
        broker = self._broker(caller, request.endpoints)
        permission = Permission.READ_WRITE if config.perm & PermName.WRITE else Permission.READ
        in_order = is_in_order(self._groups.subscription_group_table.get(group))
        ids = range(config.read_queue_nums) if in_order else (_ANY_QUEUE,)
        queues = [GrpcMessageQueue(request.topic, number, permission, broker) for number in ids]
        return QueryAssignmentResponse(ok(), [Assignment(queue) for queue in queues])

    def _topic(self, topic: GrpcResource | None) -> TopicConfig:
        name = checked_topic(topic)
        config = self._topics.select_topic_config(name)
        if config is None:
            raise unknown_topic(name)
        return config

    def _broker(self, caller: Caller, asked: Endpoints | None) -> GrpcBroker:
        """The broker at the address that the client has, where it reaches it, or else at its own."""
        ip, _, port_text = self._view.address.rpartition(":")
        port = self._view.config.grpc_server_port or int(port_text)
        if asked is not None and asked.addresses:
            endpoints = Endpoints(asked.scheme, [Address(one.host, port) for one in asked.addresses])
        else:
            ip = ip.strip("[]")
            scheme = AddressScheme.IPV6 if ":" in ip else AddressScheme.IPV4
            endpoints = Endpoints(scheme, [Address(ip, port)])
        config = self._view.config
        return GrpcBroker(config.broker_name, config.broker_id, endpoints)


def _check_echo(request: QueryRouteRequest | QueryAssignmentRequest) -> None:
    """Refuse names and addresses that would be long in the answer, where each queue has them."""
    size = sum(len(encode(part)) for part in (request.topic, request.endpoints) if part is not None)
    if size > _MOST_ECHO:
        raise RefusedCallError(Code.BAD_REQUEST, f"topic and endpoints of {size} bytes: expected {_MOST_ECHO} at most")


def producer_need(topic: str) -> Need:
    """Need of who sends to a topic."""
    return Need(ResourceType.TOPIC, topic, (Action.PUB,))


def consumer_needs(group: str, *topics: str) -> list[Need]:
    """Needs of who consumes topics."""
    of_topics = [Need(ResourceType.TOPIC, topic, (Action.SUB,)) for topic in topics]
    return [Need(ResourceType.GROUP, group, (Action.SUB,)), *of_topics]


def message_type_of(config: TopicConfig) -> str:
    """Kind of the messages that a topic takes."""
    return config.attributes.get("message.type", TopicMessageType.NORMAL)


def _permissions(config: TopicConfig) -> list[Permission]:
    """The permission of each queue: those that can only be read come first, then those for writes alone."""
    readable = config.read_queue_nums if config.perm & PermName.READ else 0
    writable = config.write_queue_nums if config.perm & PermName.WRITE else 0
    both = min(readable, writable)
    if not readable and not writable:
        return [Permission.NONE] * max(1, config.read_queue_nums, config.write_queue_nums)
    only_read, only_write = [Permission.READ] * (readable - both), [Permission.WRITE] * (writable - both)
    return [*only_read, *only_write, *[Permission.READ_WRITE] * both]
