"""What each request needs (`DefaultAuthorizationContextBuilder`, and annotations of the header classes)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from reput.formats.access import Action, ResourceType
from reput.formats.consume_queue import SCHEDULE_TOPIC
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.codes import RequestCode as Code
from reput.service.access.policies import Need
from reput.service.pop.topics import revive_topic_of
from reput.service.topic_validator import TIMER_TOPIC, TRANS_HALF_TOPIC

_Fields = tuple[tuple[ResourceType, str], ...]
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_PUB, _SUB, _GET, _LIST = (Action.PUB,), (Action.SUB,), (Action.GET,), (Action.LIST,)
_CREATE, _UPDATE, _DELETE = (Action.CREATE,), (Action.UPDATE,), (Action.DELETE,)
_T: _Fields = ((_TOPIC, "topic"),)
_G: _Fields = ((_GROUP, "consumerGroup"),)
_TG: _Fields = (*_T, *_G)

#: Topics in which messages of all topics wait; and the revive topic of a cluster.
_OF_ALL_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC})

#: By request code: what is done, and the fields that name topics and groups.
_BY_FIELDS: dict[int, tuple[tuple[Action, ...], _Fields]] = {
    Code.SEND_MESSAGE: (_PUB, _T),
    Code.SEND_MESSAGE_V2: (_PUB, ((_TOPIC, "b"),)),
    Code.SEND_BATCH_MESSAGE: (_PUB, ((_TOPIC, "b"),)),
    Code.SEND_REPLY_MESSAGE: (_PUB, _T),
    Code.SEND_REPLY_MESSAGE_V2: (_PUB, ((_TOPIC, "b"),)),
    Code.END_TRANSACTION: (_PUB, _T),
    Code.RECALL_MESSAGE: (_PUB, _T),
    Code.CONSUMER_SEND_MSG_BACK: (_SUB, ((_GROUP, "group"),)),
    Code.PULL_MESSAGE: (_SUB, _TG),
    Code.LITE_PULL_MESSAGE: (_SUB, _TG),
    Code.POP_MESSAGE: (_SUB, _TG),
    Code.PEEK_MESSAGE: (_SUB, _TG),
    Code.ACK_MESSAGE: (_SUB, _TG),
    Code.CHANGE_MESSAGE_INVISIBLETIME: (_SUB, _TG),
    Code.NOTIFICATION: (_SUB, _TG),
    Code.POLLING_INFO: (_GET, _TG),
    Code.QUERY_MESSAGE: ((Action.SUB, Action.GET), _T),
    Code.VIEW_MESSAGE_BY_ID: (_GET, _T),
    Code.QUERY_CONSUMER_OFFSET: ((Action.SUB, Action.GET), _TG),
    Code.UPDATE_CONSUMER_OFFSET: ((Action.SUB, Action.UPDATE), _TG),
    Code.GET_CONSUMER_LIST_BY_GROUP: ((Action.SUB, Action.GET), _G),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: (_GET, _T),
    Code.GET_MAX_OFFSET: (_GET, _T),
    Code.GET_MIN_OFFSET: (_GET, _T),
    Code.GET_EARLIEST_MSG_STORETIME: (_GET, _T),
    Code.GET_TOPIC_CONFIG: (_GET, _T),
    Code.GET_TOPIC_STATS_INFO: (_GET, _T),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: (_GET, _T),
    Code.QUERY_CONSUME_QUEUE: (_GET, _T),
    Code.QUERY_CORRECTION_OFFSET: (_GET, _T),
    Code.QUERY_CONSUME_TIME_SPAN: (_GET, (*_T, (_GROUP, "group"))),
    Code.GET_CONSUME_STATS: (_GET, _G),
    Code.GET_CONSUMER_CONNECTION_LIST: (_GET, _G),
    Code.GET_CONSUMER_RUNNING_INFO: (_GET, _G),
    Code.GET_PRODUCER_CONNECTION_LIST: (_GET, ((_GROUP, "producerGroup"),)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: (_GET, ((_GROUP, "group"),)),
    Code.QUERY_TOPICS_BY_CONSUMER: (_GET, ((_GROUP, "group"),)),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: (_GET, ((_GROUP, "group"),)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_GET, (*_T, (_GROUP, "group"))),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (_UPDATE, (*_T, (_GROUP, "group"))),
    Code.CLONE_GROUP_OFFSET: (_UPDATE, ((_GROUP, "srcGroup"), (_GROUP, "destGroup"))),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: (_UPDATE, (*_T, (_GROUP, "group"))),
    Code.CONSUME_MESSAGE_DIRECTLY: (_SUB, _G),
    Code.UPDATE_AND_CREATE_TOPIC: (_CREATE, _T),
    Code.DELETE_TOPIC_IN_BROKER: (_DELETE, _T),
    Code.DELETE_SUBSCRIPTIONGROUP: (_DELETE, ((_GROUP, "groupName"),)),
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
)  # fmt: skip


def needs_of(code: int, fields: Mapping[str, str], body: bytes, cluster: str) -> list[Need] | None:
    """What a request needs; None where only super users may ask for it.

    Who could send to a topic in which messages of all topics wait, or consume it, could do so with every topic.

    Raises ValueError where the body cannot be read.
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
    if code in _OF_CLUSTER:
        return [Need(_CLUSTER, cluster, _OF_CLUSTER[code])]
    if code in _BY_BODY:
        return list(dict.fromkeys(_named_in(json.loads(body), _BY_BODY[code])))
    if code not in _BY_FIELDS:
        return None
    actions, named = _BY_FIELDS[code]
    needs = [_need(kind, fields[field], actions) for kind, field in named if fields.get(field)]
    return list(dict.fromkeys(needs)) or [Need(_CLUSTER, cluster, actions)]


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
