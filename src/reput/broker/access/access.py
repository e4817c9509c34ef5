"""Access to one broker: users or accounts, the gate that asks them, and the processors that change them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

from reput.broker.access.auth_processor import AuthProcessor
from reput.broker.access.gate import Gate, request_codes
from reput.broker.access.plain_acl_processor import PlainAclProcessor
from reput.broker.access.plain_gate import PlainGate
from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.view import BrokerView
from reput.client.instance.session_credentials import SessionCredentials
from reput.config.broker import BrokerConfig
from reput.errors import ConfigError
from reput.events import Event
from reput.files import FileLayer
from reput.formats.access import Policies, User, UserType
from reput.formats.hosts import is_of_this_machine
from reput.service.access.access_manager import AccessManager
from reput.service.access.migration import migrated, widened
from reput.service.access.plain_acl_manager import PlainAclManager

logger = logging.getLogger("reput.broker")

_MIGRATE = "migrateAuthFromV1Enabled"


class Access:
    """Access control of a broker: users, accounts and the gate that checks requests.

    Args:
        path: The store's directory.
        config: The broker's keys.
        files: The file layer.

    Attributes:
        gate: What checks requests; None if nobody asks.

    Raises:
        ConfigError: A key is wrong, or contradicts another; or plain_acl.yml is missing or wrong.
        CorruptMetadataError: The file of users cannot be read.
    """

    def __init__(self, path: str, config: BrokerConfig, files: FileLayer) -> None:
        check_keys(config)
        self._bind_address = config.bind_address
        self._first: list[tuple[User, Policies]] = [(user, {}) for user in _first_users(config)]
        self._users = AccessManager(path, files) if _keeps_users(config) else None
        self._accounts = PlainAclManager(str(config.rocketmq_home), files) if config.acl_enable else None
        self.gate: Gate | PlainGate | None = None
        if self._accounts is not None:
            self.gate = PlainGate(self._accounts, config.broker_cluster_name)
        elif config.authentication_enabled and self._users is not None:
            self.gate = Gate(config, self._users)
        self._old: list[dict[str, Any]] = []
        if config.migrate_auth_from_v1_enabled:
            old = PlainAclManager(str(config.rocketmq_home), files, f"{_MIGRATE}=true")
            self._old = old.config()["plainAccessConfigs"]

    def create_first(self) -> None:
        """Make the users of the configuration and of plain_acl.yml that are not there. Waits for the disk.

        A warning is logged if nobody is asked who he is, and others than this machine reach the broker.
        """
        if self.gate is None and not is_of_this_machine(self._bind_address):
            advice = "authenticationEnabled=true and authorizationEnabled=true, or bindAddress=127.0.0.1"
            what = "whoever reaches the broker may read, send, delete and change its keys"
            logger.warning(Event(what, listens=self._bind_address, advice=advice))
        if self._users is None:
            return
        if self.gate is None:
            logger.warning(Event("anybody may ask for the users and their passwords, until authenticationEnabled"))
        made = self._users.create_first((*self._first, *map(migrated, self._old)))
        for account in self._old:
            if (name := account["accessKey"]) in made:
                logger.info(Event("account became a user", user=name, admin=account["admin"]))
                if resources := widened(account):
                    more = "; ".join(resources)
                    logger.warning(Event("a user may do more than its account might", user=name, resources=more))

    def processors(
        self, view: BrokerView, clock: BrokerClock, pools: DiskPools
    ) -> tuple[AuthProcessor, PlainAclProcessor]:
        """Processors of the requests that change users and accounts."""
        return AuthProcessor(pools, self._users), PlainAclProcessor(view, clock, pools, self._accounts)


def _first_users(config: BrokerConfig) -> Iterable[User]:
    """The super users of the configuration; raises ConfigError, without their passwords, if a text is none."""
    if (text := config.init_authentication_user) is not None:
        yield User(*_name_and_secret("initAuthenticationUser", text, "username", "password"), UserType.SUPER)
    if (credentials := inner_credentials(config)) is not None:
        yield User(credentials.access_key, credentials.secret_key, UserType.SUPER)


def inner_credentials(config: BrokerConfig) -> SessionCredentials | None:
    """Credentials of the broker for requests to its cluster, as a slave's (`BrokerOuterAPI.newAclRPCHook`); None: none.

    Raises ConfigError, without the secret, if the text is none.
    """
    text = config.inner_client_authentication_credentials
    if text is None:
        return None
    return SessionCredentials(*_name_and_secret("innerClientAuthenticationCredentials", text, "accessKey", "secretKey"))


def _name_and_secret(key: str, text: str, name: str, secret: str) -> tuple[str, str]:
    """The two members of a JSON object; raises ConfigError, without what they are, if the text is none."""
    try:
        value = json.loads(text)
        found = value[name], value[secret]
    except (ValueError, KeyError, TypeError):
        found = None, None
    if not all(isinstance(one, str) and one for one in found):
        raise ConfigError(f'{key}: expected {{"{name}":"...","{secret}":"..."}}')
    return found


def _keeps_users(config: BrokerConfig) -> bool:
    return config.authentication_enabled or config.authentication_metadata_provider is not None


def check_keys(config: BrokerConfig) -> None:
    """Raises ConfigError for keys of access that contradict each other."""
    if config.acl_enable and config.authentication_enabled:
        raise ConfigError("aclEnable and authenticationEnabled: choose plain_acl.yml, or users and policies")
    if config.acl_enable and config.rocketmq_home is None:
        raise ConfigError("aclEnable=true needs rocketmqHome, the folder of conf/plain_acl.yml")
    if config.migrate_auth_from_v1_enabled and config.rocketmq_home is None:
        raise ConfigError(f"{_MIGRATE}=true needs rocketmqHome, the folder of conf/plain_acl.yml")
    if config.migrate_auth_from_v1_enabled and not _keeps_users(config):
        raise ConfigError(
            f"{_MIGRATE}=true needs authenticationEnabled or authenticationMetadataProvider: no users are kept"
        )
    if config.migrate_auth_from_v1_enabled and not (config.authentication_enabled or config.acl_enable):
        raise ConfigError(
            f"{_MIGRATE}=true needs authenticationEnabled or aclEnable: else anybody may ask for users and passwords"
        )
    if config.authorization_enabled and not config.authentication_enabled:
        raise ConfigError("authorizationEnabled needs authenticationEnabled: else anybody may say who he is")
    _ = (
        *_first_users(config),
        request_codes("authenticationWhitelist", config.authentication_whitelist),
        request_codes("authorizationWhitelist", config.authorization_whitelist),
    )
