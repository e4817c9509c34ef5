"""PlainGate: requests are checked by the accounts of plain_acl.yml, which is read again when it changes (ACL 1.0)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from reput.broker.access.gate import tell_refused
from reput.errors import RemotingCommandError, ReputError
from reput.events import Event
from reput.formats.access import Action, ResourceType
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.acl import ACCESS_KEY, UNIQUE_KEY_QUERY, is_signed
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.access.needs import needs_of
from reput.service.access.plain_acl import Account, Perm
from reput.service.access.plain_acl_manager import PlainAclManager
from reput.service.access.policies import Need
from reput.transport.channel import Channel

logger = logging.getLogger("reput.broker")

_RELOAD_S = 1.0
_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
#: They show or change accounts and users with their secrets.
_ABOUT_ACCESS = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        *(code for code in RequestCode if code.name.startswith("AUTH_")),
    }
)
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


class PlainGate:
    """Checks requests by the accounts of plain_acl.yml.

    Args:
        accounts: The files with accounts.
        cluster: The broker's.
    """

    def __init__(self, accounts: PlainAclManager, cluster: str) -> None:
        self._accounts = accounts
        self._cluster = cluster
        self._tell_odd()

    def _tell_odd(self) -> None:
        for text in self._accounts.acl.odd:
            logger.warning(Event("accounts say what nobody reads", error=text))

    def _reload(self) -> None:
        """Take changed files, if they are right; else all stays as it was. Waits for the disk."""
        try:
            if self._accounts.reload():
                logger.info(Event("changed accounts are used", accounts=len(self._accounts.acl.accounts)))
                self._tell_odd()
        except (ValueError, ReputError) as error:
            logger.warning(Event("changed accounts are not used", error=error))

    async def keep_reloading(self) -> None:
        """Look at the files each second, until it is cancelled."""
        while True:
            await asyncio.sleep(_RELOAD_S)
            await asyncio.to_thread(self._reload)

    def prove(self, name: str, content: str, signature: str) -> str | None:
        """Reason why nobody may call by gRPC: the accounts are of clients of the remoting protocol."""
        return "aclEnable knows no clients of gRPC: they need authenticationEnabled and users"

    def why_not(self, name: str, needs: Iterable[Need], source_ip: str) -> str | None:
        """Reason why nobody may do something by gRPC."""
        return self.prove(name, "", "")

    def refusal(self, connection: Channel, command: RemotingCommand) -> RemotingCommand | None:
        """The answer to a request that may not be done; None for one that may."""
        reason = self._why_not(connection.remote_host[0], command)
        if reason is None:
            return None
        tell_refused(connection, command, reason)
        return command.response(ResponseCode.SYSTEM_ERROR, f"{_EXCEPTION}: {reason}")

    def require(self, connection: Channel, command: RemotingCommand, found: Mapping[str, str]) -> None:
        """Raise RemotingCommandError unless the account of a request may do it with what was found, by its fields."""
        reason = self._why_not(connection.remote_host[0], command, found)
        if reason is not None:
            tell_refused(connection, command, reason)
            raise RemotingCommandError(ResponseCode.SYSTEM_ERROR, f"{_EXCEPTION}: {reason}")

    def _why_not(self, address: str, command: RemotingCommand, found: Mapping[str, str] | None = None) -> str | None:
        """Reason why a request is refused, else None; one with `found` has had its signature checked."""
        acl, is_about_access = self._accounts.acl, command.code in _ABOUT_ACCESS
        fields = command.ext_fields or {}
        if acl.is_white(address) and not is_about_access:
            return None
        key = fields.get(ACCESS_KEY, "")
        if not key:
            return "No accessKey is configured"
        account = acl.accounts.get(key)
        if account is None:
            return f"No acl config for {key[:64]}"
        if account.is_white(address) and not is_about_access:
            return None
        body = bytes(command.body)
        is_right = found is not None or is_signed(fields, body, account.secret_key)
        if not is_right and command.code == RequestCode.QUERY_MESSAGE:  # 4.9.7's own tools sign without this field
            is_right = is_signed(fields, body, account.secret_key, without=UNIQUE_KEY_QUERY)
        if not is_right:
            return f"Check signature failed for accessKey={key}"
        try:
            needs = needs_of(command.code, {**fields, **(found or {})}, body, self._cluster)
        except RemotingCommandError:
            return "the body of the request cannot be read"
        if is_about_access:
            needs = None
        if not account.admin and (needs is None or any(_CHANGES.issuperset(one.actions) for one in needs)):
            return f"Need admin permission for request code={command.code}, but accessKey={key} is not"
        for need in needs or ():
            why = _check(account, need)
            if why is not None:
                return why if found is None else f"{why}; what was found needs {need.asked}"
        return None


def _check(account: Account, need: Need) -> str | None:
    """Reason why an account may not do one thing, else None; a request that only reads needs an account alone."""
    perms = {Action.PUB: Perm.PUB, Action.SUB: Perm.SUB}
    needed = Perm(0)
    for action in need.actions:
        needed |= perms.get(action, Perm(0))
    if not needed or need.resource_type is ResourceType.CLUSTER:
        return None
    is_group = need.resource_type is ResourceType.GROUP
    return account.why_not(RETRY_TOPIC_PREFIX + need.name if is_group else need.name, needed)
