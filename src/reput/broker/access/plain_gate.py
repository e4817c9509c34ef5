"""PlainGate: requests are checked by the accounts of plain_acl.yml, which is read again when it changes (ACL 1.0)."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from reput.errors import ConfigError, ReputError
from reput.events import Event
from reput.extras import require
from reput.files import FileLayer
from reput.formats.access import Action, ResourceType
from reput.formats.message import RETRY_TOPIC_PREFIX
from reput.remoting.acl import ACCESS_KEY, UNIQUE_KEY_QUERY, is_signed
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.access.needs import needs_of
from reput.service.access.plain_acl import Account, Perm, read_plain_acl
from reput.service.access.policies import Need
from reput.transport.connection import Connection

logger = logging.getLogger("reput.broker")

_RELOAD_S = 1.0
_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


class PlainGate:
    """Checks requests by the accounts of `conf/plain_acl.yml` and `conf/acl/*.yml`.

    Args:
        home: The folder that has `conf`.
        cluster: The broker's.
        files: The file layer.

    Raises:
        ConfigError: A file is missing or wrong; or YAML is not installed.
    """

    def __init__(self, home: str, cluster: str, files: FileLayer) -> None:
        require("yaml", "aclEnable=true")
        self._conf = os.path.join(os.path.expanduser(home), "conf")
        self._cluster = cluster
        self._files = files
        self._contents = self._read()
        try:
            self._acl = read_plain_acl(_load(self._contents))
        except ValueError as error:
            raise ConfigError(f"aclEnable=true: {error}") from None

    def _read(self) -> dict[str, bytes]:
        """The files by their paths; waits for the disk."""
        paths = [os.path.join(self._conf, "plain_acl.yml")]
        folder = os.path.join(self._conf, "acl")
        if self._files.is_directory(folder):
            names = [entry.name for entry in self._files.list_directory(folder)]
            paths += [os.path.join(folder, name) for name in names if name.endswith((".yml", ".yaml"))]
        found = {path: self._files.read_bytes(path) for path in paths if self._files.exists(path)}
        if not found:
            raise ConfigError(f"aclEnable=true: {paths[0]} is missing; make it, or name its home by rocketmqHome")
        return found

    def reload(self) -> None:
        """Take changed files, if they are right; else all stays as it was. Waits for the disk."""
        try:
            contents = self._read()
            if contents == self._contents:
                return
            self._contents = contents
            self._acl = read_plain_acl(_load(contents))
        except (ValueError, ReputError) as error:
            logger.warning(Event("changed accounts are not used", error=error))
        else:
            logger.info(Event("changed accounts are used", accounts=len(self._acl.accounts)))

    async def keep_reloading(self) -> None:
        """Look at the files each second, until it is cancelled."""
        while True:
            await asyncio.sleep(_RELOAD_S)
            await asyncio.to_thread(self.reload)

    def refusal(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """The answer to a request that may not be done; None for one that may."""
        fields = command.ext_fields or {}
        reason = self._why_not(connection.remote_host[0], command, fields)
        if reason is None:
            return None
        key = fields.get(ACCESS_KEY, "")[:64]
        logger.warning(Event("request refused", client=connection.remote, code=command.code, user=key, reason=reason))
        return command.response(ResponseCode.SYSTEM_ERROR, f"{_EXCEPTION}: {reason}")

    def _why_not(self, address: str, command: RemotingCommand, fields: dict[str, str]) -> str | None:
        acl = self._acl
        if acl.is_white(address):
            return None
        key = fields.get(ACCESS_KEY, "")
        if not key:
            return "No accessKey is configured"
        account = acl.accounts.get(key)
        if account is None:
            return f"No acl config for {key[:64]}"
        if account.is_white(address):
            return None
        body = bytes(command.body)
        is_right = is_signed(fields, body, account.secret_key)
        if not is_right and command.code == RequestCode.QUERY_MESSAGE:  # 4.9.7's own tools sign without this field
            is_right = is_signed(fields, body, account.secret_key, without=UNIQUE_KEY_QUERY)
        if not is_right:
            return f"Check signature failed for accessKey={key}"
        try:
            needs = needs_of(command.code, fields, body, self._cluster)
        except (ValueError, RecursionError):
            return "the body of the request cannot be read"
        if not account.admin and (needs is None or any(_CHANGES.issuperset(one.actions) for one in needs)):
            return f"Need admin permission for request code={command.code}, but accessKey={key} is not"
        return next((why for one in needs or () if (why := _check(account, one)) is not None), None)


def _check(account: Account, need: Need) -> str | None:
    """Why an account may not do one thing; requests that only look need no permission but an account."""
    perms = {Action.PUB: Perm.PUB, Action.SUB: Perm.SUB}
    needed = Perm(0)
    for action in need.actions:
        needed |= perms.get(action, Perm(0))
    if not needed or need.resource_type is ResourceType.CLUSTER:
        return None
    is_group = need.resource_type is ResourceType.GROUP
    return account.why_not(RETRY_TOPIC_PREFIX + need.name if is_group else need.name, needed)


def _load(contents: dict[str, bytes]) -> dict[str, Any]:
    """What YAML says; errors have the line, and nothing of the text, which has secrets."""
    import yaml

    loaded = {}
    for path, data in contents.items():
        try:
            loaded[path] = yaml.safe_load(data)
        except (yaml.YAMLError, RecursionError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            where = "" if mark is None else f" in line {mark.line + 1}"
            raise ValueError(f"{path}: no YAML{where}") from None
        loaded[path] = {} if loaded[path] is None else loaded[path]
    return loaded
