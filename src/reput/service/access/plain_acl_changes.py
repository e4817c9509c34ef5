"""Changes of plain_acl.yml that administrators ask for, and what the file says to them (`PlainPermissionManager`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reput.formats.metadata import DataVersion
from reput.service.access.plain_acl import is_perm

#: What YAML says, by the name of its key.
Content = dict[str, Any]
_TEXTS = ("secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
_LISTS = ("topicPerms", "groupPerms")


def put_account(content: Content, fields: Mapping[str, str]) -> None:
    """Make an account, or change the one of this `accessKey`: keys that a request does not name stay.

    Args:
        content: The file's; changed.
        fields: The request's, as `CreateAccessConfigRequestHeader` has them.

    Raises:
        ValueError: A permission is none, or there is no `secretKey`; the error quotes no secret.
    """
    if not fields.get("secretKey"):
        raise ValueError("expected a secretKey")
    account: Content = {"accessKey": fields.get("accessKey", "")}
    account |= {key: fields[key] for key in _TEXTS if key in fields}
    account |= {key: _list(fields[key]) for key in _LISTS if key in fields}
    if "admin" in fields:
        account["admin"] = fields["admin"].lower() == "true"
    perms = [(key, fields[key]) for key in ("defaultTopicPerm", "defaultGroupPerm") if fields.get(key)]
    perms += [(key, one.rpartition("=")[2]) for key in _LISTS for one in account.get(key, ())]
    for key, perm in perms:
        if not is_perm(perm):
            raise ValueError(f"{key}: expected PUB, SUB, PUB|SUB or DENY, found {perm!r:.40}")
    before = find_account(content, account["accessKey"])
    if before is None:
        content["accounts"] = [*(content.get("accounts") or ()), account]
    else:
        before |= account


def remove_account(content: Content, access_key: str) -> None:
    """Remove an account, which is there."""
    account = find_account(content, access_key)
    content["accounts"] = [one for one in content["accounts"] if one is not account]


def find_account(content: Content, access_key: str) -> Content | None:
    """The account of a key; None if there is none."""
    return next((one for one in content.get("accounts") or () if str(one.get("accessKey")) == access_key), None)


def put_white_addresses(content: Content, addresses: str) -> None:
    """Replace the global white list of a file: addresses with commas between them, or the empty text."""
    content["globalWhiteRemoteAddresses"] = _list(addresses)


def version_of(content: Content) -> DataVersion:
    """Number of a file's changes by requests, and the time of the last one."""
    try:
        version = content["dataVersion"][0]
        return DataVersion(int(version["counter"]), timestamp=int(version["timestamp"]))
    except (KeyError, IndexError, TypeError, ValueError):
        return DataVersion()


def put_version(content: Content, version: DataVersion) -> None:
    """Inverse of `version_of`."""
    content["dataVersion"] = [version_body(version)]


def version_body(version: DataVersion) -> Content:
    """As RocketMQ writes it into JSON and into YAML."""
    return {"counter": version.counter, "timestamp": version.timestamp}


def config_body(contents: Mapping[str, Content]) -> Content:
    """Accounts with their secrets, and addresses of all files (`GetBrokerClusterAclConfigResponseBody`)."""
    white = [str(one) for content in contents.values() for one in content.get("globalWhiteRemoteAddresses") or ()]
    accounts = [one for content in contents.values() for one in content.get("accounts") or ()]
    return {"globalWhiteAddrs": white, "plainAccessConfigs": [_account_body(one) for one in accounts]}


def _account_body(account: Content) -> Content:
    texts = {key: str(account[key]) for key in ("accessKey", *_TEXTS) if account.get(key) is not None}
    lists = {key: [str(one) for one in account[key]] for key in _LISTS if account.get(key) is not None}
    return texts | lists | {"admin": str(account.get("admin")).lower() == "true"}


def _list(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
