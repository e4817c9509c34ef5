"""The gate asks for what the processor takes: needs and decoded header of each request, with all names at once."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from reput.broker.admin.topic_processor import CreateTopicListRequestBody, GroupList
from reput.formats.access import ResourceType
from reput.formats.metadata import MessageRequestModeBody, SubscriptionGroupConfig
from reput.remoting.body import decode_body
from reput.remoting.client_bodies import LockBatchBody, decode_heartbeat
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.pop_bodies import QueryAssignmentRequestBody, decode_batch_acks
from reput.service.access.needs import needs_of
from tests.support.broker import serving_broker
from tests.support.header_table import every_field

#: Fields that name topics and groups of which nothing is asked, as by RocketMQ: templates, and who produces.
_NO_RIGHTS = {"default_topic", "producer_group"}
_UNKNOWN = 32_000


def named(header: Any) -> set[str]:
    """The topics and groups of a header."""
    return {
        getattr(header, one.name)
        for one in fields(header)
        if (one.name.endswith(("topic", "group", "group_name", "topic_list", "filter_groups")))
        and one.name not in _NO_RIGHTS
        and getattr(header, one.name) is not None
    }


@pytest.mark.parametrize("is_short_first", [False, True])
async def test_needs_are_the_topics_and_groups_of_the_header_that_the_processor_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_short_first: bool
) -> None:
    taken: list[Any] = []

    def decode(*arguments: Any, **more: Any) -> Any:
        taken.append(decode_header(*arguments, **more))
        return taken[-1]

    given, seen = every_field(), set()
    if is_short_first:
        given = dict(reversed(given.items()))
    async with serving_broker(tmp_path, authenticationMetadataProvider="local") as served:
        client = await served.client()
        for name, module in list(sys.modules.items()):
            if name.startswith(("reput.broker", "reput.remoting.send_headers")) and hasattr(module, "decode_header"):
                monkeypatch.setattr(module, "decode_header", decode)
        for code in RequestCode:
            taken.clear()
            # Not all are answered; when the one behind it is, its handler has begun.
            await client.begin_all([RemotingCommand(code, ext_fields=dict(given)), RemotingCommand(_UNKNOWN)])[1]
            headers = [one for one in taken if named(one)]
            needs = needs_of(code, given, b"{}", "c")
            if headers and needs is not None:
                seen.add(code)
                found = {one.name for one in needs if one.resource_type is not ResourceType.CLUSTER}
                assert found == {name for one in headers for name in named(one)}, code
    assert len(seen) > 40
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.POP_MESSAGE} <= seen


def names_in(value: Any) -> set[str]:
    """The topics and groups of what a body was decoded into."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return {name for one in value for name in names_in(one)}
    names = (
        getattr(value, "_fields", None) or [one.name for one in fields(value)] if hasattr(value, "__slots__") else []
    )
    found = {getattr(value, name) for name in names if name in _BODY_NAMES and isinstance(getattr(value, name), str)}
    return found | {one for name in names if name in _INNER for one in names_in(getattr(value, name))}


_BODY_NAMES = {"topic", "topic_name", "group", "group_name", "consumer_group"}
_INNER = {"consumers", "subscriptions", "mq_set", "topic_config_list", "group_config_list"}
_MEMBERS = {
    "topic": "t1", "topicName": "t2", "t": "t3", "consumerGroup": "g1", "groupName": "g2", "group": "g3", "c": "g4",
    "clientID": "c", "clientId": "c", "brokerName": "b", "queueId": 0, "q": 0, "so": 0, "pt": 0, "it": 0, "rq": 0,
    "r": "0", "b": "AQ==",
}  # fmt: skip


def members(where: str) -> dict[str, object]:
    """Members whose names of topics and groups are nowhere else."""
    return {name: f"{one}-{where}" if str(one)[1:].isdigit() else one for name, one in _MEMBERS.items()}


_LISTS = ("consumerDataSet", "subscriptionDataSet", "acks", "topicConfigList", "groupConfigList", "mqSet")
_DECODERS = {
    RequestCode.HEART_BEAT: decode_heartbeat,
    RequestCode.LOCK_BATCH_MQ: lambda body: decode_body(LockBatchBody, body),
    RequestCode.UNLOCK_BATCH_MQ: lambda body: decode_body(LockBatchBody, body),
    RequestCode.QUERY_ASSIGNMENT: lambda body: decode_body(QueryAssignmentRequestBody, body),
    RequestCode.BATCH_ACK_MESSAGE: lambda body: decode_batch_acks(body)[1],
    RequestCode.SET_MESSAGE_REQUEST_MODE: lambda body: decode_body(MessageRequestModeBody, body),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda body: decode_body(SubscriptionGroupConfig, body),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda body: decode_body(GroupList, body),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda body: decode_body(CreateTopicListRequestBody, body),
}


@pytest.mark.parametrize("code", _DECODERS)
@pytest.mark.parametrize("quote", ['"', '"\\u0074'])
def test_needs_have_all_topics_and_groups_of_a_body(code: RequestCode, quote: str) -> None:
    lists = {one: [members(one) | {other: [members(f"{one}-{other}")] for other in _LISTS}] for one in _LISTS}
    text = json.dumps(members("outer") | lists)
    text = text.replace('"t', quote + ("t" if quote == '"' else ""))  # as JSON may write it, too
    text = text[:-1] + ', "topic": "t5", "consumerGroup": "g6", "groupName": "g7"}'  # of two, the last one counts
    found = names_in(_DECODERS[code](text.encode()))
    needs = needs_of(code, {}, text.encode(), "c")
    assert needs is not None
    assert found
    assert found <= {one.name for one in needs}
