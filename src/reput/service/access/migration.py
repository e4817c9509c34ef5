"""Accounts of plain_acl.yml as users with policies (`AuthMigrator`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reput.formats.access import (
    Action,
    Decision,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    User,
    UserType,
)
from reput.service.access.plain_acl import Perm, perm_of

_ACTIONS = {Perm.PUB: Action.PUB, Perm.SUB: Action.SUB}
_KEYS = (
    (ResourceType.TOPIC, "topicPerms", "defaultTopicPerm"),
    (ResourceType.GROUP, "groupPerms", "defaultGroupPerm"),
)


def migrated(account: Mapping[str, Any]) -> tuple[User, Policies]:
    """The user of an account, and its policies: what is named is CUSTOM, defaults are DEFAULT.

    Args:
        account: As `config_body` shows it.
    """
    user = User(
        account["accessKey"], account["secretKey"], UserType.SUPER if account["admin"] else UserType.NORMAL
    )  # fmt: skip
    custom: dict[Resource, PolicyEntry] = {}
    default = []
    for kind, named, key in _KEYS:
        for name, perm in _named(account, named):
            resource = Resource(kind, name, ResourcePattern.LITERAL)
            custom[resource] = _entry(resource, perm)
        if account.get(key, "").strip():
            default.append(_entry(Resource(kind, None, ResourcePattern.ANY), perm_of(account[key])))
    policies = {PolicyType.CUSTOM: tuple(custom.values()), PolicyType.DEFAULT: tuple(default)}
    return user, {kind: entries for kind, entries in policies.items() if entries}


def widened(account: Mapping[str, Any]) -> list[str]:
    """Resources of an account with which a user may do more than the account may.

    ACL 2.0 asks the default if the entry of a name does not have the action, ACL 1.0 does not.
    """
    found = []
    for kind, named, key in _KEYS:
        default = perm_of(account.get(key)) & (Perm.PUB | Perm.SUB)
        for name, perm in _named(account, named):
            if perm is not Perm.DENY and default & ~perm:
                found.append(f"{kind.text}:{name}")
    return found


def _named(account: Mapping[str, Any], key: str) -> Iterator[tuple[str, Perm]]:
    for text in account.get(key, ()):
        name, _, perm = text.partition("=")
        yield name.strip(), perm_of(perm)


def _entry(resource: Resource, perm: Perm) -> PolicyEntry:
    if perm is Perm.DENY:
        return PolicyEntry(resource, (Action.ALL,), decision=Decision.DENY)
    return PolicyEntry(resource, tuple(action for one, action in _ACTIONS.items() if one & perm))
