"""JSON bodies: what fastjson writes, and what nobody should have sent."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from reput.errors import RemotingCommandError
from reput.remoting.body import decode_body, decode_json, encode_body
from reput.remoting.codes import ResponseCode
from reput.remoting.route_bodies import BrokerData, ClusterInfo, KVTable, QueueData, TopicList, TopicRouteData
from tests.support.frames import recorded_frames

NO_JSON = [
    b"",
    b"\0",
    b"x",
    b'{"a"',
    b'{"' + b"a" * 100_000,
    b"9" * 100_000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"{1:2,}",
]


def test_a_body_is_compact_sorted_and_without_null() -> None:
    route = TopicRouteData((QueueData("b", 4, 4, 6),), (BrokerData("c", "b", {0: "127.0.0.1:1"}),))
    assert encode_body(route) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:1"},"brokerName":"b","cluster":"c"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert decode_body(TopicRouteData, encode_body(route)) == route


def test_whole_numbers_as_keys_may_lack_their_quotes() -> None:
    info = decode_body(
        ClusterInfo, b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"x:1",1:"y:2"},"brokerName":"b","cluster":"c"}}}'
    )
    assert info.broker_addr_table["b"].broker_addrs == {0: "x:1", 1: "y:2"}


def test_a_newline_behind_a_body_is_ignored() -> None:
    assert decode_body(KVTable, b'{"table":{"a":"b"}}\n') == KVTable({"a": "b"})


def test_unknown_members_are_dropped_as_by_fastjson() -> None:
    assert decode_body(TopicList, b'{"topicList":["a"],"x":1}') == TopicList(("a",))


def test_the_routes_that_a_name_server_sent_are_read_and_written_again() -> None:
    routes = [one.body for one in recorded_frames() if one.body.startswith(b'{"brokerDatas"')]
    assert len(routes) >= 2
    for body in routes:
        route = decode_body(TopicRouteData, body)
        assert route.broker_datas
        assert json.loads(encode_body(route)) == json.loads(body)


def test_a_lone_surrogate_is_written_as_a_question_mark() -> None:
    assert encode_body(KVTable({"a": "\ud800"})) == b'{"table":{"a":"?"}}'


@pytest.mark.parametrize("body", NO_JSON, ids=range(len(NO_JSON)))
def test_a_body_that_is_no_json_is_refused_at_once(body: bytes) -> None:
    with pytest.raises(RemotingCommandError, match="the body") as caught:
        decode_json(body)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert len(caught.value.remark) < 200


@pytest.mark.parametrize(
    "body",
    [b"[]", b"null", b"7", b'"x"', b'{"topicList":7}', b'{"topicList":[7]}', b'{"topicList":{}}', b'{"brokerAddr":[]}'],
)
def test_a_member_of_another_type_is_refused(body: bytes) -> None:
    with pytest.raises(RemotingCommandError, match="TopicList: "):
        decode_body(TopicList, body)


def test_levels_of_any_number_are_refused_or_read() -> None:
    for depth in range(300, 1100):
        deep = b"[" * depth + b"]" * depth
        for body in (b'{"topicList":%s}' % deep, b'{"brokerAddr":%s}' % deep, b'{"x":%s}' % deep):
            with suppress(RemotingCommandError):
                assert decode_body(TopicList, body) == TopicList()
