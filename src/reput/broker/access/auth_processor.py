"""Requests that make, change, show and delete users and policies (of `AdminBrokerProcessor`, codes 3001 to 3010)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from reput.broker.disk_work import DiskPools
from reput.errors import RemotingCommandError
from reput.events import Event
from reput.formats.access import (
    Action,
    Decision,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
)
from reput.remoting.acl import ACCESS_KEY
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.access.access_manager import AccessManager, changed_user, entries_of
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

_NOT_KEPT = "An system error occurred, please try again later."
#: The longest names and passwords, and most entries of one request.
_MOST_TEXT, _MOST_ENTRIES = 255, 1000


class AuthProcessor:
    """Takes requests about users and policies; changes are on the disk before they are answered."""

    def __init__(self, pools: DiskPools, access: AccessManager | None) -> None:
        self._pools = pools
        self._access = access
        self._changing = asyncio.Lock()

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        changes: dict[int, Callable[[AccessManager, dict[str, str], Any], str]] = {
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_CREATE_ACL: self._put_acl,
            RequestCode.AUTH_UPDATE_ACL: self._put_acl,
            RequestCode.AUTH_DELETE_ACL: self._delete_acl,
        }
        looks: dict[int, Callable[[AccessManager, dict[str, str]], Any]] = {
            RequestCode.AUTH_GET_USER: self._get_user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_GET_ACL: self._get_acl,
            RequestCode.AUTH_LIST_ACL: self._list_acls,
        }
        return {code: self._changes(work) for code, work in changes.items()} | {
            code: self._looks(work) for code, work in looks.items()
        }

    def _changes(self, work: Callable[[AccessManager, dict[str, str], Any], str]) -> Handler:
        async def handle(connection: Channel, command: RemotingCommand) -> Answer:
            access, fields = self._kept(), command.ext_fields or {}
            body = _json(command.body)
            async with self._changing:
                try:
                    name = await self._pools.writes.run_for(connection, work, access, fields, body)
                except (ValueError, TypeError, AttributeError) as error:
                    raise RemotingCommandError(ResponseCode.INVALID_PARAMETER, str(error)) from None
            by = fields.get(ACCESS_KEY, "")[:64]
            logger.info(Event("access changed", code=command.code, user=name, by=by, client=connection.remote))
            return command.response()

        return handle

    def _looks(self, work: Callable[[AccessManager, dict[str, str]], Any]) -> Handler:
        def handle(connection: Channel, command: RemotingCommand) -> Answer:
            found = work(self._kept(), command.ext_fields or {})
            text = json.dumps(found, separators=(",", ":"), sort_keys=True, ensure_ascii=False) if found else ""
            return command.response(body=text.encode("utf-8", "replace"))  # as Java writes half of a character

        return handle

    def _kept(self) -> AccessManager:
        if self._access is None:
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, _NOT_KEPT)
        return self._access

    # -- users

    @staticmethod
    def _create_user(access: AccessManager, fields: dict[str, str], body: Any) -> str:
        body = _object(body, "user")
        name = _username(fields.get("username") or body.get("username"))
        password = _text(body.get("password"), "The password is blank")
        kind, status = body.get("userType"), body.get("userStatus")
        user = User(
            name, password,
            UserType.of(kind) if kind else UserType.NORMAL, UserStatus.of(status) if status else UserStatus.ENABLE,
        )  # fmt: skip
        access.create_user(user, fields.get(ACCESS_KEY, ""))
        return name

    @staticmethod
    def _update_user(access: AccessManager, fields: dict[str, str], body: Any) -> str:
        body = _object(body, "user")
        name = _username(fields.get("username") or body.get("username"))
        password, kind, status = body.get("password"), body.get("userType"), body.get("userStatus")
        user = changed_user(
            access.user(name),
            password=_text(password, "") if password else None,
            user_type=UserType.of(kind) if kind else None,
            user_status=UserStatus.of(status) if status else None,
        )
        access.update_user(user, fields.get(ACCESS_KEY, ""))
        return name

    @staticmethod
    def _delete_user(access: AccessManager, fields: dict[str, str], body: Any) -> str:
        name = _username(fields.get("username"))
        access.delete_user(name, fields.get(ACCESS_KEY, ""))
        return name

    @staticmethod
    def _get_user(access: AccessManager, fields: dict[str, str]) -> Any:
        user = access.users.get(_username(fields.get("username")))
        return None if user is None else _user_body(user)

    @staticmethod
    def _list_users(access: AccessManager, fields: dict[str, str]) -> Any:
        wanted = fields.get("filter") or ""
        return [_user_body(user) for name, user in access.users.items() if wanted in name]

    # -- policies

    @staticmethod
    def _put_acl(access: AccessManager, fields: dict[str, str], body: Any) -> str:
        body = _object(body, "acl")
        name = _subject(body.get("subject") or fields.get("subject"))
        access.put_entries(name, _policies(body.get("policies")))
        return name

    @staticmethod
    def _delete_acl(access: AccessManager, fields: dict[str, str], body: Any) -> str:
        name = _subject(fields.get("subject"))
        kind, resource = fields.get("policyType"), fields.get("resource")
        access.delete_entries(
            name, PolicyType.of(kind) if kind else PolicyType.CUSTOM, Resource.of(resource) if resource else None
        )
        return name

    @staticmethod
    def _get_acl(access: AccessManager, fields: dict[str, str]) -> Any:
        name = _subject(fields.get("subject"))
        policies = access.policies(name)
        return _acl_body(name, policies) if policies else None

    @staticmethod
    def _list_acls(access: AccessManager, fields: dict[str, str]) -> Any:
        subject, resource = fields.get("subjectFilter") or "", fields.get("resourceFilter") or ""
        found = [(name, entries_of(one, resource)) for name, one in access.acls.items() if subject in f"User:{name}"]
        return [_acl_body(name, policies) for name, policies in found if policies]


def _json(body: bytes | memoryview) -> Any:
    try:
        return json.loads(bytes(body)) if len(body) else None
    except (ValueError, RecursionError):
        raise RemotingCommandError(ResponseCode.INVALID_PARAMETER, "the body is no JSON") from None


def _object(body: Any, of: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"The body of {of} is null")
    return body


def _username(name: Any) -> str:
    return _text(name, "The username is blank")


def _text(text: Any, blank: str) -> str:
    """A text of a request; the errors do not repeat it."""
    if not isinstance(text, str) or not text.strip():
        raise RemotingCommandError(ResponseCode.INVALID_PARAMETER, blank or "expected a text")
    if len(text) > _MOST_TEXT:
        raise RemotingCommandError(ResponseCode.INVALID_PARAMETER, f"a text of more than {_MOST_TEXT} characters")
    return text


def _subject(text: Any) -> str:
    kind, _, name = _text(text, "The subject is blank").partition(":")
    if kind.lower() != "user":
        raise RemotingCommandError(ResponseCode.INVALID_PARAMETER, "The subject type is unknown: expected User:NAME")
    return _username(name)


def _policies(given: Any) -> Policies:
    policies: Policies = {}
    for policy in given or ():
        kind = policy.get("policyType")
        entries = tuple(_entry(one) for one in policy.get("entries") or ())
        key = PolicyType.of(kind) if kind else PolicyType.CUSTOM
        policies[key] = policies.get(key, ()) + entries
    count = sum(map(len, policies.values()))
    if not 0 < count <= _MOST_ENTRIES:
        raise RemotingCommandError(ResponseCode.INVALID_PARAMETER, f"expected 1 to {_MOST_ENTRIES} policy entries")
    return policies


def _entry(given: Any) -> PolicyEntry:
    actions = tuple(Action.of(one) for one in given.get("actions") or ())
    if not actions or Action.ANY in actions:
        raise RemotingCommandError(ResponseCode.INVALID_PARAMETER, "The actions is empty, or has Any")
    return PolicyEntry(
        Resource.of(given.get("resource")), actions,
        tuple(_text(one, "a blank source ip") for one in given.get("sourceIps") or ()),
        Decision.of(given.get("decision")),
    )  # fmt: skip


def _user_body(user: User) -> dict[str, str]:
    return {
        "password": user.password, "userStatus": user.user_status.text, "userType": user.user_type.text,
        "username": user.username,
    }  # fmt: skip


def _acl_body(name: str, policies: Policies) -> dict[str, Any]:
    return {
        "policies": [
            {"entries": [_entry_body(one) for one in entries], "policyType": kind.text}
            for kind, entries in policies.items()
        ],
        "subject": f"User:{name}",
    }


def _entry_body(entry: PolicyEntry) -> dict[str, Any]:
    body: dict[str, Any] = {
        "actions": [one.text for one in entry.actions], "decision": entry.decision.text,
        "resource": entry.resource.text,
    }  # fmt: skip
    return body | ({"sourceIps": list(entry.source_ips)} if entry.source_ips else {})
