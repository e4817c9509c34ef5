"""Which policy entry decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.access import (
    Action,
    Decision,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    decode_access,
    encode_access,
)
from reput.service.access.policies import Need, decide

ALLOW, DENY = Decision.ALLOW, Decision.DENY
PUB = Need(ResourceType.TOPIC, "orders", (Action.PUB,))


def policies(*entries: tuple[str, Decision], kind: PolicyType = PolicyType.CUSTOM) -> Policies:
    return {kind: tuple(PolicyEntry(Resource.of(text), (Action.PUB,), (), decision) for text, decision in entries)}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], None),
        ([("Topic:other", ALLOW)], None),
        ([("Group:orders", ALLOW)], None),
        ([("Topic:orders", ALLOW), ("Topic:ord*", DENY)], ALLOW),
        ([("Topic:o*", ALLOW), ("Topic:ord*", DENY)], DENY),
        ([("Topic:ord*", ALLOW), ("Topic:o*", DENY)], ALLOW),
        ([("Topic:*", DENY), ("Topic:o*", ALLOW)], ALLOW),
        ([("*", DENY), ("Topic:*", ALLOW)], ALLOW),
        ([("Topic:orders", ALLOW), ("Topic:orders", DENY)], DENY),
        ([("*", ALLOW)], ALLOW),
    ],
)
def test_the_closest_resource_decides_and_no_among_equals(
    entries: list[tuple[str, Decision]], expected: Decision | None
) -> None:
    assert decide(policies(*entries), PUB, "10.0.0.1") is expected
    assert decide(policies(*reversed(entries)), PUB, "10.0.0.1") is expected


def test_default_policies_count_where_no_custom_one_matches() -> None:
    default = policies(("*", ALLOW), kind=PolicyType.DEFAULT)
    assert decide(default, PUB, "") is ALLOW
    assert decide(default | policies(("Topic:*", DENY)), PUB, "") is DENY
    assert decide(default | policies(("Group:*", DENY)), PUB, "") is ALLOW


@pytest.mark.parametrize(
    ("source_ip", "networks", "expected"),
    [
        ("192.168.0.7", ("192.168.0.0/24",), True),
        ("192.168.1.7", ("192.168.0.0/24",), False),
        ("::ffff:192.168.0.7", ("192.168.0.0/24",), True),
        ("10.0.0.1", ("10.0.0.2", "10.0.0.1"), True),
        ("2001:db8::1", ("2001:db8::/32",), True),
        ("2001:db9::1", ("2001:db8::/32", "0.0.0.0/0"), False),
        ("", ("0.0.0.0/0",), False),
    ],
)
def test_an_entry_for_some_addresses_matches_no_others(
    source_ip: str, networks: tuple[str, ...], expected: bool
) -> None:
    entry = PolicyEntry(Resource.of("*"), (Action.ALL,), networks)
    assert (decide({PolicyType.CUSTOM: (entry,)}, PUB, source_ip) is ALLOW) == expected


def test_one_of_the_actions_of_a_request_is_enough_and_another_is_not() -> None:
    entry = PolicyEntry(Resource.of("Topic:orders"), (Action.SUB,))
    both = Need(ResourceType.TOPIC, "orders", (Action.SUB, Action.GET))
    assert decide({PolicyType.CUSTOM: (entry,)}, both, "") is ALLOW
    assert decide({PolicyType.CUSTOM: (entry,)}, PUB, "") is None


NAMES = st.text(st.characters(exclude_characters="*"), min_size=1, max_size=5)
RESOURCES = st.one_of(
    st.just("*"),
    st.builds("{}:{}{}".format, st.sampled_from(["Topic", "Group", "Cluster"]), NAMES, st.sampled_from("*_")),
)


@given(RESOURCES)
def test_the_text_of_a_resource_is_read_back(text: str) -> None:
    assert Resource.of(text).text == text


@given(st.dictionaries(NAMES, st.lists(st.tuples(RESOURCES, st.sampled_from(Decision)), max_size=3), max_size=3))
def test_the_file_is_read_back(given_acls: dict[str, list[tuple[str, Decision]]]) -> None:
    acls = {name: policies(*entries) for name, entries in given_acls.items()}
    assert decode_access(encode_access({}, acls)) == ({}, acls)


@given(st.lists(st.tuples(RESOURCES, st.sampled_from(Decision)), max_size=5), NAMES)
def test_without_an_entry_that_allows_nothing_is_allowed(entries: list[tuple[str, Decision]], name: str) -> None:
    decision = decide(policies(*entries), Need(ResourceType.TOPIC, name, (Action.PUB,)), "")
    assert decision is not ALLOW or any(one is ALLOW for _, one in entries)
