"""Accounts of plain_acl.yml as users with policies: nothing but what RocketMQ's own widens is allowed in addition."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from reput.formats.access import Action, Decision, PolicyType, ResourceType, UserType
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.service.access.migration import migrated, widened
from reput.service.access.plain_acl import Perm, read_plain_acl
from reput.service.access.plain_acl_changes import config_body
from reput.service.access.policies import Need, decide

PERMS = ("", "DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB", "nonsense")
ACTIONS = {Action.PUB: Perm.PUB, Action.SUB: Perm.SUB}


def account(**keys: Any) -> dict[str, Any]:
    return {"accessKey": "RocketMQ", "secretKey": "12345678"} | keys


def shown(given: dict[str, Any]) -> dict[str, Any]:
    """An account as administrators see it."""
    accounts: list[dict[str, Any]] = config_body({"f": {"accounts": [given]}})["plainAccessConfigs"]
    return accounts[0]


def test_an_account_becomes_a_user_with_the_policies_that_rocketmq_makes_of_it() -> None:
    given = account(
        defaultTopicPerm="DENY", defaultGroupPerm=" SUB ", topicPerms=["a=DENY", " b = PUB|SUB", "c=SUB"],
        groupPerms=["g=PUB"],
    )  # fmt: skip
    user, policies = migrated(shown(given))
    assert (user.username, user.password, user.user_type) == ("RocketMQ", "12345678", UserType.NORMAL)
    found = {
        kind: [(one.resource.text, [action.text for action in one.actions], one.decision.text) for one in entries]
        for kind, entries in policies.items()
    }
    assert found == {
        PolicyType.CUSTOM: [
            ("Topic:a", ["All"], "Deny"), ("Topic:b", ["Pub", "Sub"], "Allow"), ("Topic:c", ["Sub"], "Allow"),
            ("Group:g", ["Pub"], "Allow"),
        ],
        PolicyType.DEFAULT: [("Topic:*", ["All"], "Deny"), ("Group:*", ["Sub"], "Allow")],
    }  # fmt: skip


def test_an_account_without_permissions_has_no_policies_and_an_admin_is_a_super_user() -> None:
    assert migrated(shown(account()))[1] == {}
    assert migrated(shown(account(admin=True)))[0].user_type is UserType.SUPER


@pytest.mark.parametrize(("kind", "key", "default_key", "prefix"), [
    (ResourceType.TOPIC, "topicPerms", "defaultTopicPerm", ""),
    (ResourceType.GROUP, "groupPerms", "defaultGroupPerm", RETRY_TOPIC_PREFIX),
])  # fmt: skip
def test_a_user_may_what_its_account_might_and_what_is_more_is_told(
    kind: ResourceType, key: str, default_key: str, prefix: str
) -> None:
    told = 0
    for named, default in product(PERMS, PERMS):
        given = account(**{key: [f"named={named}"], default_key: default})
        before = read_plain_acl({"f": {"accounts": [given]}}).accounts["RocketMQ"]
        policies = migrated(shown(given))[1]
        more = set()
        for name, (action, perm) in product(("named", "other"), ACTIONS.items()):
            allowed = decide(policies, Need(kind, name, (action,)), "10.0.0.1") is Decision.ALLOW
            might = before.why_not(prefix + name, perm) is None
            assert allowed or not might
            if allowed and not might:
                more.add(f"{kind.text}:{name}")
        assert set(widened(shown(given))) == more
        told += len(more)
    assert told == 6  # PUB or SUB alone, where the default has the other, or both
