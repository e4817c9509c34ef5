"""Requests that change and show the accounts of plain_acl.yml (4.9's `AdminBrokerProcessor`, codes 50 to 54)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.view import BrokerView
from reput.errors import RemotingCommandError, StoreError
from reput.events import Event
from reput.remoting.acl import ACCESS_KEY
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.service.access.plain_acl_changes import version_body
from reput.service.access.plain_acl_manager import PlainAclManager
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler

logger = logging.getLogger("reput.broker")

_Change = Callable[[PlainAclManager, dict[str, str], int], None]


class PlainAclProcessor:
    """Takes requests of accounts with `admin`; changes are on the disk before they are answered.

    Args:
        view, clock, pools: The broker's.
        accounts: The files; None if `aclEnable` is false: then each request is one that is not supported.
    """

    def __init__(
        self, view: BrokerView, clock: BrokerClock, pools: DiskPools, accounts: PlainAclManager | None
    ) -> None:
        self._view, self._clock, self._pools = view, clock, pools
        self._accounts = accounts

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        if (accounts := self._accounts) is None:
            return {}
        changes: dict[int, tuple[_Change, ResponseCode]] = {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (_put, ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED),
            RequestCode.DELETE_ACL_CONFIG: (_delete, ResponseCode.DELETE_ACL_CONFIG_FAILED),
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (
                _put_white_addresses,
                ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
            ),
        }
        return {code: self._changes(accounts, *change) for code, change in changes.items()} | {
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: lambda connection, command: self._versions(accounts, command),
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: lambda connection, command: command.response(
                body=json.dumps(accounts.config(), separators=(",", ":")).encode()
            ),
        }

    def _changes(self, accounts: PlainAclManager, change: _Change, failed: ResponseCode) -> Handler:
        async def handle(connection: Channel, command: RemotingCommand) -> Answer:
            fields = command.ext_fields or {}
            try:
                await self._pools.writes.run_for(connection, change, accounts, fields, self._clock.now_ms())
            except (ValueError, StoreError) as error:
                raise RemotingCommandError(failed, str(error)) from None
            by, account = fields.get(ACCESS_KEY, "")[:64], fields.get("accessKey", "")[:64]
            event = Event("accounts changed", code=command.code, account=account, by=by, client=connection.remote)
            logger.info(event)
            return command.response()

        return handle

    def _versions(self, accounts: PlainAclManager, command: RemotingCommand) -> RemotingCommand:
        of_default, by_path = accounts.versions()
        versions = {path: version_body(version) for path, version in by_path.items()}
        config = self._view.config
        fields = {
            "version": json.dumps(version_body(of_default)), "allAclFileVersion": json.dumps(versions),
            "brokerName": config.broker_name, "brokerAddr": self._view.address,
            "clusterName": config.broker_cluster_name,
        }  # fmt: skip
        return command.response(ext_fields=fields)


def _put(accounts: PlainAclManager, fields: dict[str, str], now_ms: int) -> None:
    accounts.put_account(fields, now_ms)


def _delete(accounts: PlainAclManager, fields: dict[str, str], now_ms: int) -> None:
    accounts.delete_account(fields.get("accessKey", ""), now_ms)


def _put_white_addresses(accounts: PlainAclManager, fields: dict[str, str], now_ms: int) -> None:
    if "globalWhiteAddrs" not in fields:
        raise ValueError("expected globalWhiteAddrs")
    accounts.put_white_addresses(fields["globalWhiteAddrs"], fields.get("aclFileFullPath"), now_ms)
