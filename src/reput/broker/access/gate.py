"""Gate: who asks is proven, and may do it, before a request is handed to its processor (`AuthenticationPipeline`)."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterable, Mapping

from reput.config.broker import BrokerConfig
from reput.errors import ConfigError, RemotingCommandError
from reput.events import Event
from reput.formats.access import Decision, User, UserStatus, UserType
from reput.remoting.acl import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, is_signed
from reput.remoting.codes import ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.access.access_manager import AccessManager
from reput.service.access.needs import needs_of
from reput.service.access.policies import Need, decide
from reput.transport.channel import Channel

logger = logging.getLogger("reput.broker")

_V4_9_4_SNAPSHOT = 400
#: A user for a name that is unknown, so that both answers take as long.
_NOBODY = User("", "no password")


class Gate:
    """Checks requests by the users and policies of ACL 2.0.

    Args:
        config: The broker's keys; `authenticationEnabled` is true.
        access: Users and policies.

    Raises:
        ConfigError: A white list is none.
    """

    def __init__(self, config: BrokerConfig, access: AccessManager) -> None:
        self._access = access
        self._authorizes = config.authorization_enabled
        self._cluster = config.broker_cluster_name
        self._unsigned = request_codes("authenticationWhitelist", config.authentication_whitelist)
        self._unauthorized = request_codes("authorizationWhitelist", config.authorization_whitelist)

    def refusal(self, connection: Channel, command: RemotingCommand) -> RemotingCommand | None:
        """The answer to a request that may not be done; None for one that may."""
        fields = command.ext_fields or {}
        user, reason = None, None
        if command.code not in self._unsigned:
            user, reason = self._authenticate(connection, command, fields)
        if reason is None and self._authorizes and command.code not in self._unauthorized:
            if user is None:  # a white list let it in, which is no proof of who it is
                user, reason = self._authenticate(connection, command, fields)
            if user is not None:
                reason, _ = self._authorize(connection, command, fields, user)
        if reason is None:
            return None
        tell_refused(connection, command, reason)
        return command.response(ResponseCode.NO_PERMISSION, reason)

    def require(self, connection: Channel, command: RemotingCommand, found: Mapping[str, str]) -> None:
        """Raise RemotingCommandError unless the user of a request may do it with what was found, by its fields."""
        if not self._authorizes or command.code in self._unauthorized:
            return
        fields = {**(command.ext_fields or {}), **found}
        user = self._access.users.get(fields.get(ACCESS_KEY, ""))
        refused: tuple[str | None, Need | None] = "the user is gone", None
        if user is not None:
            refused = self._authorize(connection, command, fields, user)
        reason, need = refused
        if reason is not None:
            if need is not None:
                reason = f"{reason} What was found needs {need.asked}."
            tell_refused(connection, command, reason)
            raise RemotingCommandError(ResponseCode.NO_PERMISSION, reason)

    def prove(self, name: str, content: str, signature: str) -> str | None:
        """Reason why a call is not of the user that it names; None if it is. `signature`: of its content, in hex."""
        if not name:
            return "username cannot be null."
        user = self._access.users.get(name)
        password = (user or _NOBODY).password.encode("utf-8", "replace")
        expected = hmac.new(password, content.encode("utf-8", "replace"), hashlib.sha1).hexdigest()
        is_right = hmac.compare_digest(expected.encode(), signature.lower().encode("utf-8", "replace"))
        return _why_nobody(name, user) or (None if is_right else "check signature failed.")

    def why_not(self, name: str, needs: Iterable[Need], source_ip: str) -> str | None:
        """Reason why a user whose name is proven may not do what needs this; None if it may."""
        if not self._authorizes:
            return None
        user = self._access.users.get(name)
        if user is None:
            return "the user is gone"
        return None if user.user_type is UserType.SUPER else self._first_refused(user, needs, source_ip)[0]

    def _authenticate(
        self, connection: Channel, command: RemotingCommand, fields: dict[str, str]
    ) -> tuple[User | None, str | None]:
        """(the user, None), or (None, why not)."""
        if not fields:
            return None, "authentication field is null"
        name = fields.get(ACCESS_KEY, "")
        if not name:
            return None, "username cannot be null."
        user = self._access.users.get(name)
        if connection.is_proven:
            why = _why_nobody(name, user)
            return (None, why) if why else (user, None)
        without = UNIQUE_KEY_QUERY if command.version < _V4_9_4_SNAPSHOT else SIGNATURE
        is_right = is_signed(fields, bytes(command.body), (user or _NOBODY).password, without=without)
        why = _why_nobody(name, user)
        if why:
            return None, why
        return (user, None) if is_right else (None, "check signature failed.")

    def _authorize(
        self, connection: Channel, command: RemotingCommand, fields: dict[str, str], user: User
    ) -> tuple[str | None, Need | None]:
        """Reason why a user may not do a request, and the need that is refused; (None, None) if it may."""
        if user.user_type is UserType.SUPER:
            return None, None
        try:
            needs = needs_of(command.code, fields, bytes(command.body), self._cluster)
        except RemotingCommandError:
            return "parse authorization context error", None
        if needs is None:
            return f"User:{user.username} has no permission: request {command.code} is for super users", None
        return self._first_refused(user, needs, connection.remote_host[0])

    def _first_refused(self, user: User, needs: Iterable[Need], source_ip: str) -> tuple[str | None, Need | None]:
        """Reason why a user may not do something, and the need that is refused; (None, None) if it may."""
        policies = self._access.acls.get(user.username, {})
        for need in needs:
            decision = decide(policies, need, source_ip)
            if decision is not Decision.ALLOW:
                why = "no matched policies." if decision is None else "the decision is deny."
                return f"User:{user.username} has no permission to access {need.key} from {source_ip}, {why}", need
        return None, None


def _why_nobody(name: str, user: User | None) -> str | None:
    """Reason why nobody can be this user."""
    if user is None:
        return f"User:{name[:64]} is not found."
    return f"User:{name} is disabled." if user.user_status is UserStatus.DISABLE else None


def tell_refused(connection: Channel, command: RemotingCommand, reason: str) -> None:
    """Log a request that a gate has refused, with the user or the access key that it names."""
    name = (command.ext_fields or {}).get(ACCESS_KEY, "")[:64]
    logger.warning(Event("request refused", client=connection.remote, code=command.code, user=name, reason=reason))


def request_codes(key: str, text: str | None) -> frozenset[int]:
    """The request codes of a white list; raises ConfigError if a text is none."""
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError(f"{key}={text}: expected request codes, as 34,38")
    return frozenset(map(int, parts))
