"""Accounts of plain_acl.yml, and the addresses that its white lists mean."""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.service.access.plain_acl import Perm, address_pattern, read_plain_acl

ADDRESSES = [
    ("", "10.0.0.1", False), ("*", "10.0.0.1", True), ("*.*.*.*", "2001:db8::1", True),
    ("*:*:*:*:*:*:*:*", "10.0.0.1", True), ("10.0.0.1", "10.0.0.1", True), ("10.0.0.1", "10.0.0.2", False),
    ("10.0.0.1", "::ffff:10.0.0.1", True), ("10.0.0.1,10.0.0.3", "10.0.0.3", True),
    ("10.0.0.1,10.0.0.3", "10.0.0.2", False), ("10.0.0.{1,3}", "10.0.0.3", True), ("10.0.0.{1,3}", "10.0.0.2", False),
    ("10.0.0.{1,3}", "10.0.1.1", False), ("10.0.0.*", "10.0.0.255", True), ("10.0.0.*", "10.0.1.0", False),
    ("10.1-5.*.*", "10.5.9.9", True), ("10.1-5.*.*", "10.6.9.9", False), ("10.0.0.10-20", "10.0.0.10", True),
    ("10.0.0.10-20", "10.0.0.1", False), ("10.0.0.10-20", "10.0.0.21", False), ("10.0.0.*", "nobody", False),
    ("2001:db8::1", "2001:DB8:0:0:0:0:0:1", True), ("2001:db8:0:0:0:0:0:{1,2}", "2001:db8::2", True),
    ("2001:db8:0:0:0:0:0:1-ff", "2001:db8::fe", True), ("2001:db8:0:0:0:0:0:1-ff", "2001:db8::100", False),
    ("2001:db8:*:*:*:*:*:*", "2001:db8::1", True), ("2001:db8:*:*:*:*:*:*", "2001:db9::1", False),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "address", "expected"), ADDRESSES)
def test_patterns_of_addresses_match_as_in_rocketmq(pattern: str, address: str, expected: bool) -> None:
    assert address_pattern(pattern)(address) is expected


@pytest.mark.parametrize(
    "pattern",
    ["10.0.0", "10.0.0.256", "10.0.0.5-1", "10.0.0.1-256", "10.0.*", "nobody", "10.0.0.1,", "10.0.{1,2}.3", "{1,2}",
     "10.0.0.{1,x}", "10.0.0.-5", "1:2:3-4", "10.0.0.1-2-3", "10.0.0.٣-٤"],
)  # fmt: skip
def test_a_pattern_that_is_none_is_told(pattern: str) -> None:
    with pytest.raises(ValueError, match="address"):
        address_pattern(pattern)


PARTS = st.integers(0, 255)


@given(PARTS, PARTS, PARTS, st.tuples(PARTS, PARTS, PARTS, PARTS))
def test_a_range_matches_what_lies_between(head: int, first: int, last: int, address: tuple[int, ...]) -> None:
    first, last = sorted((first, last))
    text = str(IPv4Address(bytes(address)))
    expected = address[0] == head and first <= address[1] <= last
    assert address_pattern(f"{head}.{first}-{last}.*.*")(text) is expected


@given(st.ip_addresses(), st.ip_addresses())
def test_an_address_matches_itself_alone(one: object, other: object) -> None:
    assert address_pattern(str(one))(str(one))
    assert address_pattern(str(one))(str(other)) is (one == other)


def account(**keys: Any) -> dict[str, Any]:
    return {"accessKey": "RocketMQ", "secretKey": "12345678"} | keys


def test_permissions_are_those_of_the_resource_or_else_the_default() -> None:
    given_account = account(
        defaultTopicPerm="PUB", defaultGroupPerm="SUB", topicPerms=["a=DENY", "b=PUB|SUB", "c=SUB", "d=nonsense"],
        groupPerms=["g=DENY"],
    )  # fmt: skip
    one = read_plain_acl({"f": {"accounts": [given_account]}}).accounts["RocketMQ"]
    assert one.why_not("a", Perm.PUB) == "No permission for topic:a"
    assert one.why_not("b", Perm.PUB) is one.why_not("b", Perm.SUB) is None
    assert one.why_not("c", Perm.PUB) == "No permission for topic:c"
    assert one.why_not("d", Perm.PUB) == "No permission for topic:d"
    assert one.why_not("other", Perm.PUB) is None
    assert one.why_not("other", Perm.SUB) == "No default permission for topic:other"
    assert one.why_not("%RETRY%g", Perm.SUB) == "No permission for group:g"
    assert one.why_not("%RETRY%other", Perm.SUB) is None


def test_without_permissions_an_account_may_nothing_unless_it_is_an_admin() -> None:
    for admin, expected in ((False, "No default permission for topic:a"), (True, None)):
        one = read_plain_acl({"f": {"accounts": [account(admin=admin)]}}).accounts["RocketMQ"]
        assert one.why_not("a", Perm.PUB) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([], "f: expected globalWhiteRemoteAddresses or accounts"),
        ({"accounts": ["x"]}, "f: expected lists"),
        ({"accounts": 5}, "f: expected lists"),
        ({"accounts": [account(secretKey="short")]}, "f: account 'RocketMQ': both its keys must have more than 6"),
        ({"accounts": [account(accessKey=None)]}, "f: account '': both its keys"),
        ({"accounts": [account(), account()]}, "f: account RocketMQ: is there twice"),
        ({"accounts": [account(topicPerms=["a"])]}, "f: account RocketMQ: topicPerms: expected NAME=PUB"),
        ({"accounts": [account(whiteRemoteAddress="nowhere")]}, "f: address 'nowhere'"),
        ({"globalWhiteRemoteAddresses": ["nowhere"]}, "f: address 'nowhere'"),
    ],
)
def test_a_file_that_is_wrong_is_told_without_secrets(content: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        read_plain_acl({"f": content})
    assert "12345678" not in str(caught.value)
    assert "short" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"topicPerms": ["orders=PUP"]}, "f: account RocketMQ: topicPerms: orders: 'PUP' counts as DENY; known .*PUB"),
        ({"groupPerms": ["g=sub"]}, "f: account RocketMQ: groupPerms: g: 'sub' counts as DENY; known .*SUB"),
        ({"defaultTopicPerm": "ALL"}, "f: account RocketMQ: defaultTopicPerm: 'ALL' counts as DENY"),
        ({"whiteRemoteAdress": "*"}, "'whiteRemoteAdress' is ignored; known keys: .*whiteRemoteAddress"),
    ],
)
def test_what_rocketmq_ignores_is_told(keys: dict[str, Any], told: str) -> None:
    acl = read_plain_acl({"f": {"accounts": [account(**keys)]}})
    (text,) = acl.odd
    assert re.search(told, text)
    assert "12345678" not in text


def test_what_rocketmq_reads_is_not_told() -> None:
    perms = ["a=PUB", "b=SUB", "c=PUB|SUB", "d=SUB|PUB", "e = DENY"]
    one = account(
        whiteRemoteAddress="", admin=True, defaultTopicPerm="DENY", defaultGroupPerm="SUB", topicPerms=perms,
        groupPerms=perms,
    )  # fmt: skip
    content = {"globalWhiteRemoteAddresses": [], "dataVersion": [], "accounts": [one]}
    assert read_plain_acl({"f": content}).odd == ()
    assert read_plain_acl({"f": {"globalWhiteRemoteAdresses": ["*"]}}).odd[0].startswith("f: 'globalWhiteRemoteAdr")
