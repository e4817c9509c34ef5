"""Needs of each request (`DefaultAuthorizationContextBuilder`, and annotations of the header classes)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from reput.formats.access import Action, ResourceType
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.body import decode_json
from reput.remoting.client_call_headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from reput.remoting.codes import RequestCode as Code
from reput.remoting.consumer_headers import (
    GetConsumerListByGroupRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from reput.remoting.header import header_fields
from reput.remoting.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PopMessageRequestHeader,
)
from reput.remoting.pull_headers import (
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from reput.remoting.recall_headers import (
    RecallMessageRequestHeader,
)
from reput.remoting.send_headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    send_names,
)
from reput.remoting.statistics_headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from reput.remoting.topic_headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from reput.remoting.topic_validator import (
    SCHEDULE_GROUP,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    dlq_topic_of,
)
from reput.remoting.transaction_headers import (
    EndTransactionRequestHeader,
)
from reput.service.access.policies import Need
from reput.service.pop.topics import normal_topic_of, revive_topic_of

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_PUB, _SUB, _GET, _LIST = (Action.PUB,), (Action.SUB,), (Action.GET,), (Action.LIST,)
_CREATE, _UPDATE, _DELETE = (Action.CREATE,), (Action.UPDATE,), (Action.DELETE,)
#: Topics in which messages of all topics wait, or end that can never be delivered, and the one that says how
#: transactions of all topics ended; and the revive topic of a cluster.
_OF_ALL_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC,
        dlq_topic_of(SCHEDULE_GROUP),
    )
)  # fmt: skip

#: By request code: what is done, and the header, whose fields name topics and groups.
_BY_HEADER: dict[int, tuple[tuple[Action, ...], type]] = {
    Code.SEND_MESSAGE: (_PUB, SendMessageRequestHeader),
    Code.SEND_MESSAGE_V2: (_PUB, SendMessageRequestHeader),
    Code.SEND_BATCH_MESSAGE: (_PUB, SendMessageRequestHeader),
    Code.SEND_REPLY_MESSAGE: (_PUB, SendMessageRequestHeader),
    Code.SEND_REPLY_MESSAGE_V2: (_PUB, SendMessageRequestHeader),
    Code.END_TRANSACTION: (_PUB, EndTransactionRequestHeader),
    Code.RECALL_MESSAGE: (_PUB, RecallMessageRequestHeader),
    Code.CONSUMER_SEND_MSG_BACK: (_SUB, ConsumerSendMsgBackRequestHeader),
    Code.PULL_MESSAGE: (_SUB, PullMessageRequestHeader),
    Code.LITE_PULL_MESSAGE: (_SUB, PullMessageRequestHeader),
    Code.POP_MESSAGE: (_SUB, PopMessageRequestHeader),
    Code.PEEK_MESSAGE: (_SUB, PeekMessageRequestHeader),
    Code.ACK_MESSAGE: (_SUB, AckMessageRequestHeader),
    Code.CHANGE_MESSAGE_INVISIBLETIME: (_SUB, ChangeInvisibleTimeRequestHeader),
    Code.NOTIFICATION: (_SUB, NotificationRequestHeader),
    Code.POLLING_INFO: (_GET, PollingInfoRequestHeader),
    Code.QUERY_MESSAGE: ((Action.SUB, Action.GET), QueryMessageRequestHeader),
    Code.VIEW_MESSAGE_BY_ID: (_GET, ViewMessageRequestHeader),
    Code.QUERY_CONSUMER_OFFSET: ((Action.SUB, Action.GET), QueryConsumerOffsetRequestHeader),
    Code.UPDATE_CONSUMER_OFFSET: ((Action.SUB, Action.UPDATE), UpdateConsumerOffsetRequestHeader),
    Code.GET_CONSUMER_LIST_BY_GROUP: ((Action.SUB, Action.GET), GetConsumerListByGroupRequestHeader),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: (_GET, SearchOffsetRequestHeader),
    Code.GET_MAX_OFFSET: (_GET, GetMaxOffsetRequestHeader),
    Code.GET_MIN_OFFSET: (_GET, GetMinOffsetRequestHeader),
    Code.GET_EARLIEST_MSG_STORETIME: (_GET, GetEarliestMsgStoretimeRequestHeader),
    Code.GET_TOPIC_CONFIG: (_GET, GetTopicConfigRequestHeader),
    Code.GET_TOPIC_STATS_INFO: (_GET, GetTopicStatsInfoRequestHeader),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (_GET, QueryTopicConsumeByWhoRequestHeader),
    Code.QUERY_CONSUME_QUEUE: (_GET, QueryConsumeQueueRequestHeader),
    Code.QUERY_CORRECTION_OFFSET: (_GET, QueryCorrectionOffsetHeader),
    Code.QUERY_CONSUME_TIME_SPAN: (_GET, QueryConsumeTimeSpanRequestHeader),
    Code.GET_CONSUME_STATS: (_GET, GetConsumeStatsRequestHeader),
    Code.GET_CONSUMER_CONNECTION_LIST: (_GET, GetConsumerConnectionListRequestHeader),
    Code.GET_CONSUMER_RUNNING_INFO: (_GET, GetConsumerRunningInfoRequestHeader),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (_GET, GetSubscriptionGroupConfigRequestHeader),
    Code.QUERY_TOPICS_BY_CONSUMER: (_GET, QueryTopicsByConsumerRequestHeader),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (_GET, QuerySubscriptionByConsumerRequestHeader),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_GET, GetConsumerStatusRequestHeader),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_UPDATE, ResetOffsetRequestHeader),
    Code.CLONE_GROUP_OFFSET: (_UPDATE, CloneGroupOffsetRequestHeader),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: (_UPDATE, UpdateGroupForbiddenRequestHeader),
    Code.CONSUME_MESSAGE_DIRECTLY: (_SUB, ConsumeMessageDirectlyResultRequestHeader),
    Code.UPDATE_AND_CREATE_TOPIC: (_CREATE, CreateTopicRequestHeader),
    Code.DELETE_TOPIC_IN_BROKER: (_DELETE, DeleteTopicRequestHeader),
    Code.DELETE_SUBSCRIPTIONGROUP: (_DELETE, DeleteSubscriptionGroupRequestHeader),
}
#: What the fields of headers name, and what separates several names in one field.
_NAMES: dict[str, tuple[ResourceType, str | None]] = {
    **dict.fromkeys(("topic", "origin_topic"), (_TOPIC, None)),
    **dict.fromkeys(("group", "consumer_group", "group_name"), (_GROUP, None)),
    **dict.fromkeys(("src_group", "dest_group", "compare_group"), (_GROUP, None)),
    "topic_list": (_TOPIC, ";"),
    "filter_groups": (_GROUP, ","),
}
#: Requests about the whole broker.
_OF_CLUSTER: dict[int, tuple[Action, ...]] = {
    Code.GET_ALL_TOPIC_CONFIG: _LIST,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _LIST,
    Code.GET_BROKER_CONFIG: _GET,
    Code.GET_BROKER_RUNTIME_INFO: _GET,
    Code.GET_ALL_CONSUMER_OFFSET: _GET,
    Code.GET_ALL_DELAY_OFFSET: _GET,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _GET,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _GET,
    Code.VIEW_BROKER_STATS_DATA: _GET,
    Code.GET_BROKER_CONSUME_STATS: _GET,
    Code.GET_ALL_PRODUCER_INFO: _GET,
    Code.UPDATE_BROKER_CONFIG: _UPDATE,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _UPDATE,
    Code.CLEAN_UNUSED_TOPIC: _UPDATE,
    Code.DELETE_EXPIRED_COMMITLOG: _UPDATE,
    **dict.fromkeys((Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL), _GET),
    **dict.fromkeys((Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER), _UPDATE),
    **dict.fromkeys((Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL, Code.AUTH_DELETE_ACL), _UPDATE),
}
#: Requests whose body names what they are about.
_BY_BODY: dict[int, tuple[Action, ...]] = {
    Code.HEART_BEAT: _SUB,
    Code.CHECK_CLIENT_CONFIG: _SUB,
    Code.LOCK_BATCH_MQ: _SUB,
    Code.UNLOCK_BATCH_MQ: _SUB,
    Code.QUERY_ASSIGNMENT: _SUB,
    Code.BATCH_ACK_MESSAGE: _SUB,
    Code.SET_MESSAGE_REQUEST_MODE: _UPDATE,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _CREATE,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _CREATE,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _CREATE,
}
_TOPIC_MEMBERS = ("topic", "topicName", "t")
_GROUP_MEMBERS = ("consumerGroup", "groupName", "group", "c")
#: Members of bodies that hold what names topics and groups.
_INNER_MEMBERS = (
    "consumerDataSet", "subscriptionDataSet", "subscriptionData", "acks", "topicConfigList", "groupConfigList",
    "mqSet",
)  # fmt: skip


def names_in_body(code: int) -> bool:
    """Whether `needs_of` reads the body of a request."""
    return code in _BY_BODY


def needs_of(code: int, fields: Mapping[str, str], body: bytes, cluster: str) -> list[Need] | None:
    """Needs of a request; None if only super users may ask for it.

    It names what its processor takes: fields and body are read as there. Who could send to a topic in which messages of
    all topics wait, or consume it, could do so with every topic.

    Raises RemotingCommandError if the body cannot be read.
    """
    needs = _named_by(code, fields, body, cluster)
    if needs is not None and any(_is_of_all_topics(need, cluster) for need in needs):
        return None
    return needs


def _is_of_all_topics(need: Need, cluster: str) -> bool:
    if need.resource_type is not _TOPIC or {Action.PUB, Action.SUB}.isdisjoint(need.actions):
        return False
    return need.name in _OF_ALL_TOPICS or need.name == revive_topic_of(cluster)


def _named_by(code: int, fields: Mapping[str, str], body: bytes, cluster: str) -> list[Need] | None:
    if code == Code.UNREGISTER_CLIENT:
        group = fields.get("consumerGroup")
        return [Need(_GROUP, group, (Action.PUB, Action.SUB))] if group else []
    if code == Code.GET_PRODUCER_CONNECTION_LIST:
        group = fields.get("producerGroup")
        return [Need(_GROUP, group, _GET) if group else Need(_CLUSTER, cluster, _GET)]
    if code in _OF_CLUSTER:
        return [Need(_CLUSTER, cluster, _OF_CLUSTER[code])]
    if code in _BY_BODY:
        return list(dict.fromkeys(_named_in(decode_json(body), _BY_BODY[code])))
    if code not in _BY_HEADER:
        return None
    actions, header = _BY_HEADER[code]
    if code == Code.CONSUMER_SEND_MSG_BACK:
        fields = _with_normal_topic(fields)
    needs = [
        _need(kind, name, actions)
        for wire_names, kind, separator in _name_fields(code, header)
        for name in _split(_first(fields, wire_names), separator)
        if name
    ]
    return list(dict.fromkeys(needs)) or [Need(_CLUSTER, cluster, actions)]


def _with_normal_topic(fields: Mapping[str, str]) -> Mapping[str, str]:
    """A message that its group popped from its retry topic is of the topic that the group popped before."""
    group, topic = fields.get("group"), fields.get("originTopic", "")
    normal = normal_topic_of(topic, group) if group else topic
    return {**fields, "originTopic": normal} if normal and normal != topic else fields


def _first(fields: Mapping[str, str], wire_names: Iterable[str]) -> str:
    for name in wire_names:
        if name in fields:
            return fields[name]
    return ""


def _split(text: str, separator: str | None) -> list[str]:
    return [text] if separator is None else text.split(separator)


@cache
def _name_fields(code: int, header: Any) -> tuple[tuple[tuple[str, ...], ResourceType, str | None], ...]:
    """The fields of a header class that name topics and groups: (names on the wire, what, separator)."""
    return tuple(
        (send_names(code, one.wire_name), *_NAMES[one.name]) for one in header_fields(header) if one.name in _NAMES
    )


def _need(kind: ResourceType, name: str, actions: tuple[Action, ...]) -> Need:
    """A retry topic is its group's."""
    if kind is _TOPIC and name.startswith(RETRY_TOPIC_PREFIX):
        actions = _SUB if actions == _PUB else actions
        return Need(_GROUP, name.removeprefix(RETRY_TOPIC_PREFIX), actions)
    return Need(kind, name, actions)


def _named_in(value: Any, actions: tuple[Action, ...]) -> Iterable[Need]:
    if isinstance(value, list):
        for one in value:
            yield from _named_in(one, actions)
    if isinstance(value, dict):
        for kind, members in ((_TOPIC, _TOPIC_MEMBERS), (_GROUP, _GROUP_MEMBERS)):
            for name in members:
                if isinstance(value.get(name), str) and value[name]:
                    yield _need(kind, value[name], actions)
        for name in _INNER_MEMBERS:
            yield from _named_in(value.get(name), actions)
