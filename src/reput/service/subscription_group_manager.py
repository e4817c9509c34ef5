"""Consumer groups of a broker (`SubscriptionGroupManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from reput.errors import ConfigError
from reput.files import DISK, FileLayer
from reput.formats.metadata import SubscriptionGroupConfig, SubscriptionGroups
from reput.remoting.topic_validator import SYSTEM_GROUPS, is_legal_group, is_system_group
from reput.service.attributes import GROUP_ATTRIBUTES, alter_attributes
from reput.service.config_manager import ConfigManager
from reput.store.config_files import is_readable

#: The bit that forbids reading (`PermName.INDEX_PERM_READ`).
INDEX_PERM_READ = 2


def check_policies(configs: Iterable[SubscriptionGroupConfig]) -> None:
    """Raise ConfigError for a policy that the file of groups cannot hold; a group takes 0.3 ms."""
    for config in configs:
        if not is_readable(config):
            raise ConfigError(f"group {config.group_name}: its groupRetryPolicy could not be read again from its file")


class SubscriptionGroupManager(ConfigManager[SubscriptionGroups]):
    """The groups of `config/subscriptionGroup.json`, and those that every broker has.

    Args:
        root: The store directory.
        files: The file layer.
        auto_create_subscription_group: Whether `find` makes a group that it does not know; may be changed later.
        enable_create_sys_group: Whether it makes groups of the system (`CID_RMQ_SYS_...`) in any case.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    def __init__(
        self,
        root: str,
        files: FileLayer = DISK,
        *,
        auto_create_subscription_group: bool = True,
        enable_create_sys_group: bool = True,
    ) -> None:
        super().__init__(SubscriptionGroups, root, files)
        self.auto_create_subscription_group = auto_create_subscription_group
        self._creates_system_groups = enable_create_sys_group
        self._table = {group: SubscriptionGroupConfig(group) for group in SYSTEM_GROUPS}
        self._table.update(self._loaded.subscription_group_table)
        self._forbidden = {group: dict(topics) for group, topics in self._loaded.forbidden_table.items()}

    @property
    def subscription_group_table(self) -> Mapping[str, SubscriptionGroupConfig]:
        """The groups by name; a look at them makes none. It shows later changes."""
        return MappingProxyType(self._table)

    def content(self) -> SubscriptionGroups:
        """The content of `subscriptionGroup.json`, as of now."""
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return SubscriptionGroups(dict(self._table), forbidden, self.data_version, self._loaded.others)

    def find_subscription_group_config(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The configuration of a group, which is made if it is missing and may be made; None if it may not."""
        config = self._table.get(group)
        if config is not None or not is_legal_group(group):
            return config
        if not self.auto_create_subscription_group and not (self._creates_system_groups and is_system_group(group)):
            return None
        config = self._table[group] = SubscriptionGroupConfig(group)
        self._next_version(now_ms)
        return config

    def update_subscription_group_config(self, configs: Sequence[SubscriptionGroupConfig], now_ms: int) -> None:
        """Make groups or change them, all or none, as an operator asks.

        The attributes of `configs` are changes, `+name` and `-name` (`alter_attributes`). Policies are those that the
        file of groups can hold (`check_policies`).

        Raises:
            ConfigError: A name that no consumer could use, or an attribute that RocketMQ does not know.
        """
        changed: dict[str, SubscriptionGroupConfig] = {}
        for config in configs:
            group = config.group_name
            if not is_legal_group(group):
                raise ConfigError(f"group {group!r}: expected 1 to 255 letters a-z A-Z, digits, %, |, _ and -")
            before = changed.get(group) or self._table.get(group)
            current = None if before is None else before.attributes
            changed[group] = replace(config, attributes=alter_attributes(GROUP_ATTRIBUTES, current, config.attributes))
        if changed:
            self._table |= changed
            self._next_version(now_ms)

    def delete_subscription_group_config(self, group: str, now_ms: int) -> bool:
        """Forget a group and what is forbidden to it; False if there is no such group."""
        self._forbidden.pop(group, None)
        if self._table.pop(group, None) is None:
            return False
        self._next_version(now_ms)
        return True

    def copy(self, content: SubscriptionGroups) -> None:
        """Take over the groups of a master, and have no others but those that every broker has."""
        table = {group: SubscriptionGroupConfig(group) for group in SYSTEM_GROUPS}
        table |= content.subscription_group_table
        forbidden = {group: dict(topics) for group, topics in content.forbidden_table.items()}
        if (table, forbidden) != (self._table, self._forbidden):
            self._table, self._forbidden, self.data_version = table, forbidden, content.data_version
            self._changes += 1

    def forbidden(self, group: str, topic: str) -> int:
        """The bits that are forbidden to a group in a topic, as INDEX_PERM_READ."""
        return max(self._forbidden.get(group, {}).get(topic, 0), 0)

    def update_forbidden(self, group: str, topic: str, forbidden_index: int, set_or_clear: bool, now_ms: int) -> int:
        """Set or clear one bit, 0 to 30, and give all bits back.

        Raises:
            ConfigError: Another bit.
        """
        if not 0 <= forbidden_index <= 30:
            raise ConfigError(f"forbiddenIndex {forbidden_index}: expected 0 to 30")
        before, bit = self.forbidden(group, topic), 1 << forbidden_index
        after = before | bit if set_or_clear else before & ~bit
        if after != before:
            topics = self._forbidden.setdefault(group, {})
            topics[topic] = after
            if not after:
                del topics[topic]
            if not topics:
                del self._forbidden[group]
            self._next_version(now_ms)
        return after
