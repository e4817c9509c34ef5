"""Users and policies of ACL 2.0, and their file config/reputAccess.json (docs/formats/metadata.md).

The values are as in RocketMQ's RocksDB directories `users` and `acls` (classes `User` and `Acl` of its module auth).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import ip_network
from typing import Any, Self, TypeVar

#: Its name below `config`, and the largest length of a name.
ACCESS_FILE = "reputAccess.json"


class NamedNumber(IntEnum):
    """A number on the disk, a name on the wire."""

    @property
    def text(self) -> str:
        """The name on the wire."""
        return self.name.capitalize()

    @classmethod
    def of(cls, text: object) -> Self:
        """The member of a name, in any letter case; raises ValueError if there is none."""
        for one in cls:
            if isinstance(text, str) and one.name == text.upper():
                return one
        raise ValueError(f"{text!r:.60}: expected {' or '.join(one.text for one in cls)}")


class UserType(NamedNumber):
    """Super users may do everything."""

    SUPER = 1
    NORMAL = 2


class UserStatus(NamedNumber):
    """A disabled user may do nothing."""

    ENABLE = 1
    DISABLE = 2

    @property
    def text(self) -> str:
        """The name on the wire."""
        return self.name.lower()


class Action(NamedNumber):
    """Action on a resource."""

    ALL = 1
    ANY = 2
    PUB = 3
    SUB = 4
    CREATE = 5
    UPDATE = 6
    DELETE = 7
    GET = 8
    LIST = 9


class Decision(NamedNumber):
    """Decision of an entry."""

    ALLOW = 1
    DENY = 2


class PolicyType(NamedNumber):
    """Entries of DEFAULT count if none of CUSTOM matches."""

    CUSTOM = 1
    DEFAULT = 2


class ResourceType(NamedNumber):
    """Type of a resource."""

    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5


class ResourcePattern(NamedNumber):
    """Pattern type of a name."""

    ANY = 1
    LITERAL = 2
    PREFIXED = 3


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with a password; it is kept as it is, since signatures are made with it."""

    username: str
    password: str = field(repr=False)
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource or many: `Topic:name`, `Topic:prefix*`, `Topic:*`, `*`."""

    resource_type: ResourceType
    resource_name: str | None
    resource_pattern: ResourcePattern

    @classmethod
    def of(cls, text: object) -> Resource:
        """The resource of a text; raises ValueError if it is none."""
        if text == "*":
            return cls(ResourceType.ANY, None, ResourcePattern.ANY)
        kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
        if not colon or not name:
            raise ValueError(f"resource {text!r:.60}: expected *, or Topic:NAME, Group:PREFIX*, Cluster:*")
        if name == "*":
            return cls(ResourceType.of(kind), None, ResourcePattern.ANY)
        if name.endswith("*"):
            return cls(ResourceType.of(kind), name[:-1], ResourcePattern.PREFIXED)
        return cls(ResourceType.of(kind), name, ResourcePattern.LITERAL)

    @property
    def text(self) -> str:
        """Inverse of `of`."""
        if self.resource_type is ResourceType.ANY:
            return "*"
        star = "" if self.resource_pattern is ResourcePattern.LITERAL else "*"
        return f"{self.resource_type.text}:{self.resource_name or ''}{star}"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """Whether something may be done to resources, from some addresses or all (`source_ips`: IP or CIDR)."""

    resource: Resource
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...] = ()
    decision: Decision = Decision.ALLOW

    def __post_init__(self) -> None:
        for one in self.source_ips:
            ip_network(one, strict=False)  # raises ValueError


#: The entries of a user, by their type.
Policies = dict[PolicyType, tuple[PolicyEntry, ...]]
_N = TypeVar("_N", bound=NamedNumber)


def encode_access(users: dict[str, User], acls: dict[str, Policies]) -> bytes:
    """The content of the file; `acls` by username."""
    content = {
        "users": {name: _user_to_json(user) for name, user in users.items()},
        "acls": {f"User:{name}": _acl_to_json(name, policies) for name, policies in acls.items()},
    }
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode_access(data: bytes) -> tuple[dict[str, User], dict[str, Policies]]:
    """Inverse of `encode_access`; raises ValueError, without a password, if the content is another."""
    try:
        content = json.loads(data)
        users = {name: _user_of_json(one) for name, one in content["users"].items()}
        acls = {name.removeprefix("User:"): _policies_of_json(one) for name, one in content["acls"].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        where = f" at position {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"expected users and acls, found something else{where}") from None
    return users, acls


def _user_to_json(user: User) -> dict[str, Any]:
    return {
        "password": user.password, "subjectType": 1, "userStatus": user.user_status, "userType": user.user_type,
        "username": user.username,
    }  # fmt: skip


def _user_of_json(value: dict[str, Any]) -> User:
    if not (isinstance(value["username"], str) and isinstance(value["password"], str)):
        raise ValueError("no texts")
    return User(value["username"], value["password"], UserType(value["userType"]), UserStatus(value["userStatus"]))


def _acl_to_json(name: str, policies: Policies) -> dict[str, Any]:
    written = [
        {"entries": [_entry_to_json(one) for one in entries], "policyType": kind} for kind, entries in policies.items()
    ]
    return {"policies": written, "subject": {"subjectType": 1, "username": name}}


def _entry_to_json(entry: PolicyEntry) -> dict[str, Any]:
    resource: dict[str, Any] = {
        "resourcePattern": entry.resource.resource_pattern, "resourceType": entry.resource.resource_type,
    }  # fmt: skip
    if entry.resource.resource_name is not None:
        resource["resourceName"] = entry.resource.resource_name
    written: dict[str, Any] = {"actions": list(entry.actions), "decision": entry.decision, "resource": resource}
    return written | ({"environment": {"sourceIps": list(entry.source_ips)}} if entry.source_ips else {})


def _policies_of_json(value: dict[str, Any]) -> Policies:
    return {PolicyType(one["policyType"]): tuple(map(_entry_of_json, one["entries"])) for one in value["policies"]}


def _entry_of_json(value: dict[str, Any]) -> PolicyEntry:
    given = value["resource"]
    kind, pattern = ResourceType(given["resourceType"]), ResourcePattern(given["resourcePattern"])
    return PolicyEntry(
        Resource(kind, given.get("resourceName"), pattern), tuple(map(Action, value["actions"])),
        tuple(value.get("environment", {}).get("sourceIps", ())), Decision(value["decision"]),
    )  # fmt: skip
