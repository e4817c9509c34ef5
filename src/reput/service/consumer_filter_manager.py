"""SQL92 filters of consumer groups, and `config/consumerFilter.json` (`ConsumerFilterManager`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from reput.files import DISK, FileLayer
from reput.filter.bloom_filter import BloomFilter
from reput.filter.expression_error import ExpressionError
from reput.filter.expression_filter import ExpressionFilter
from reput.formats.metadata import BloomFilterData, ConsumerFilterData, ConsumerFilters, FilterDataMapByTopic
from reput.remoting.subscription_data import SQL92, SubscriptionData, is_tag_type
from reput.service.config_manager import ConfigManager

#: Filters that are kept, and characters of their expressions. What heartbeats bring beyond is not registered.
MOST_FILTERS, MOST_CHARACTERS = 10_000, 16 << 20
#: How long before a start its filters' consumers are taken to have gone.
_DEAD_AT_START_MS = 30_000


class ConsumerFilterManager(ConfigManager[ConsumerFilters]):
    """The filters of groups, by topic. A filter whose group has gone is dead, and kept for a while.

    Args:
        root: The store directory.
        files: The file layer.
        bloom_filter: Gives the bits of each filter. If the file has been written with another one, its filters are
            dropped.
        is_enabled: See the attribute.
        now_ms: The time, ms since 1970 UTC.
        filter_data_clean_time_span: For how long a dead filter is kept, in ms.

    Attributes:
        is_enabled: Whether filters are registered (`enablePropertyFilter`). Without it nothing is compiled.

    Raises:
        CorruptMetadataError: The file and its backup are damaged.
    """

    def __init__(
        self,
        root: str,
        files: FileLayer = DISK,
        *,
        bloom_filter: BloomFilter,
        is_enabled: bool,
        now_ms: int,
        filter_data_clean_time_span: int = 24 * 3_600_000,
    ) -> None:
        super().__init__(ConsumerFilters, root, files)
        self.bloom_filter = bloom_filter
        self.is_enabled = is_enabled
        self._clean_after_ms = filter_data_clean_time_span
        self._data: dict[str, dict[str, ConsumerFilterData]] = {}
        self._filters: dict[tuple[str, str], ExpressionFilter] = {}
        self._kept = self._characters = 0
        self._load(now_ms)

    def _load(self, now_ms: int) -> None:
        found = [
            data for table in self._loaded.filter_data_by_topic.values() for data in table.group_filter_data.values()
        ]
        if not all(map(self._has_bits, found)):
            return
        for data in found:
            if data.dead_time == 0:  # no consumer is there yet
                data = replace(data, dead_time=max(now_ms - _DEAD_AT_START_MS, data.born_time))
            self._put(data)
        self._changes = 0

    def _has_bits(self, data: ConsumerFilterData) -> bool:
        """`BloomFilter.isValid`, and that the bits are in a bit map."""
        bits, bloom = data.bloom_filter_data, self.bloom_filter
        if bits is None or bits.bit_num != bloom.bit_num or len(bits.bit_pos) != bloom.hash_count:
            return False
        return all(0 <= one < bits.bit_num for one in bits.bit_pos)

    def content(self) -> ConsumerFilters:
        """The content of `consumerFilter.json`, as of now."""
        tables = {
            topic: FilterDataMapByTopic(topic, {group: _as_written(one) for group, one in table.items()})
            for topic, table in self._data.items()
        }
        return ConsumerFilters(tables, self._loaded.others)

    # -- who filters

    def register(self, group: str, subscriptions: Collection[SubscriptionData], now_ms: int) -> None:
        """Take the subscriptions of a heartbeat (`register`); filters of other topics of the group are dead then."""
        if not self.is_enabled:
            return
        for one in subscriptions:
            if not is_tag_type(one.expression_type) and one.sub_string:
                self._register(group, one, now_ms)
        topics = {one.topic for one in subscriptions}
        self._bury((data for data in self._of_group(group) if data.topic not in topics), now_ms)

    def unregister(self, group: str, now_ms: int) -> None:
        """The last consumer of a group has gone."""
        self._bury(self._of_group(group), now_ms)

    def filter_data(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Filter of a group for a topic; None if it has none."""
        return self._data.get(topic, {}).get(group)

    def filters(self, topic: str) -> list[ConsumerFilterData]:
        """Filters for a topic, including dead ones; for any thread."""
        return list(self._data.get(topic, {}).values())

    def message_filter(self, data: ConsumerFilterData) -> ExpressionFilter | None:
        """The filter of what `filter_data` gives; None if it does not compile, as another broker's may not."""
        key = data.topic, data.consumer_group
        found = self._filters.get(key)
        if found is None:
            found = _compile(data)
            if found is not None:
                self._filters[key] = found
        return found

    def clean(self, now_ms: int) -> None:
        """Forget the filters that have been dead for long; call it before the file is written."""
        for data in [data for table in self._data.values() for data in table.values()]:
            if _is_dead(data) and now_ms - data.dead_time >= self._clean_after_ms:
                self._remove(data)

    def _register(self, group: str, one: SubscriptionData, now_ms: int) -> None:
        old = self.filter_data(one.topic, group)
        if old is not None and one.sub_version <= old.client_version:
            if one.sub_version == old.client_version and _is_dead(old):
                self._replace(replace(old, dead_time=0))
            return
        if old is not None and (old.expression, old.expression_type) == (one.sub_string, one.expression_type):
            self._replace(replace(old, client_version=one.sub_version, dead_time=0 if _is_dead(old) else old.dead_time))
            return
        if old is not None:
            self._remove(old)
        elif self._kept >= MOST_FILTERS or self._characters >= MOST_CHARACTERS:
            return
        bits = BloomFilterData(self.bloom_filter.bit_num, self.bloom_filter.bit_positions(f"{group}#{one.topic}"))
        data = ConsumerFilterData(
            group, one.topic, one.sub_string, one.expression_type, born_time=now_ms, client_version=one.sub_version,
            bloom_filter_data=bits,
        )  # fmt: skip
        if self.message_filter(data) is not None:
            self._put(data)

    def _of_group(self, group: str) -> Iterator[ConsumerFilterData]:
        return (table[group] for table in list(self._data.values()) if group in table)

    def _bury(self, filters: Iterator[ConsumerFilterData], now_ms: int) -> None:
        for data in filters:
            if not _is_dead(data):
                self._replace(replace(data, dead_time=now_ms))

    def _put(self, data: ConsumerFilterData) -> None:
        self._kept += 1
        self._characters += len(data.expression)
        self._replace(data)

    def _replace(self, data: ConsumerFilterData) -> None:
        self._data.setdefault(data.topic, {})[data.consumer_group] = data
        self._changes += 1

    def _remove(self, data: ConsumerFilterData) -> None:
        self._kept -= 1
        self._characters -= len(data.expression)
        self._filters.pop((data.topic, data.consumer_group), None)
        del self._data[data.topic][data.consumer_group]
        if not self._data[data.topic]:
            del self._data[data.topic]
        self._changes += 1


def _compile(data: ConsumerFilterData) -> ExpressionFilter | None:
    if data.expression_type != SQL92:
        return None
    try:
        return ExpressionFilter(data.expression)
    except ExpressionError:
        return None


def _is_dead(data: ConsumerFilterData) -> bool:
    return data.dead_time >= data.born_time


def _as_written(data: ConsumerFilterData) -> ConsumerFilterData:
    return replace(data, dead=_is_dead(data))
