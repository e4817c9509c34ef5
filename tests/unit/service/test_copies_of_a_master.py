"""What a slave takes over of its master's groups, offsets and modes."""

from __future__ import annotations

from pathlib import Path

from reput.formats.consumers import MessageRequestMode
from reput.formats.metadata import (
    ConsumerOffsets,
    DataVersion,
    DelayOffsets,
    MessageRequestModeBody,
    MessageRequestModes,
    SubscriptionGroupConfig,
    SubscriptionGroups,
)
from reput.remoting.topic_validator import SYSTEM_GROUPS
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from reput.service.delay_offset_manager import DelayOffsetManager
from reput.service.pop.message_request_mode_manager import MessageRequestModeManager
from reput.service.subscription_group_manager import SubscriptionGroupManager

VERSION = DataVersion(7, 0, 1000)


def end(topic: str, queue_id: int) -> int:
    return 100


def copied(manager: ConsumerOffsetManager, **offsets: int) -> dict[str, int]:
    """The offsets of queue 0 of the groups after a copy."""
    content = ConsumerOffsets({f"orders@{group}": {0: offset} for group, offset in offsets.items()}, VERSION)
    manager.copy(content, end)
    return {group: manager.query_offset(group, "orders", 0) for _, group in manager.topics_and_groups()}


def test_offsets_follow_the_master_forth_and_back(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(str(tmp_path))
    assert copied(manager, a=5, b=1) == {"a": 5, "b": 1}
    assert copied(manager, a=3, b=1) == {"a": 3, "b": 1}
    assert copied(manager, b=2) == {"b": 2}
    assert manager.data_version == VERSION


def test_an_offset_that_was_committed_here_counts_until_the_master_has_it(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(str(tmp_path))
    copied(manager, a=5)
    manager.commit_offset("a", "orders", 0, 9, 0)
    manager.commit_offset("here", "orders", 0, 4, 0)
    assert copied(manager, a=5) == {"a": 9, "here": 4}
    assert copied(manager, a=6) == {"a": 9, "here": 4}
    assert copied(manager, a=9) == {"a": 9, "here": 4}
    assert copied(manager, a=7) == {"a": 7, "here": 4}


def test_offsets_of_a_file_are_those_of_the_master(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(str(tmp_path))
    copied(manager, a=5, gone=1)
    snapshot = manager.snapshot()
    assert snapshot is not None
    manager.persist(snapshot)
    again = ConsumerOffsetManager(str(tmp_path))
    assert copied(again, a=3) == {"a": 3}
    assert ConsumerOffsetManager(str(tmp_path)).query_offset("a", "orders", 0) == 5


def test_an_offset_that_was_committed_here_counts_over_a_restart(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(str(tmp_path))
    copied(manager, a=5, b=5)
    manager.commit_offset("a", "orders", 0, 9, 0)
    manager.commit_offset("here", "orders", 0, 4, 0)
    for life in range(3):  # the second and third commit nothing
        persist(manager)
        manager = ConsumerOffsetManager(str(tmp_path))
        assert copied(manager, a=5 + life, b=3) == {"a": 9, "b": 3, "here": 4}
    assert copied(manager, a=9, b=3) == {"a": 9, "b": 3, "here": 4}
    persist(manager)
    manager = ConsumerOffsetManager(str(tmp_path))
    assert copied(manager, a=8, b=3) == {"a": 8, "b": 3, "here": 4}
    assert "copiedOffsetTable" in (tmp_path / "config/consumerOffset.json").read_text()  # of `here`


def test_a_reset_at_the_master_ends_what_was_committed_here(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(str(tmp_path))
    copied(manager, a=10)
    manager.commit_offset("a", "orders", 0, 25, 0)
    assert copied(manager, a=10) == {"a": 25}
    assert copied(manager, a=0) == {"a": 0}
    assert copied(manager, a=5) == {"a": 5}


def test_a_master_writes_nothing_of_copies(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(str(tmp_path))
    copied(manager, a=5)
    manager.commit_offset("a", "orders", 0, 9, 0)
    persist(manager)
    promoted = ConsumerOffsetManager(str(tmp_path))
    promoted.commit_offset("a", "orders", 0, 30, 0)
    persist(promoted)
    assert "copiedOffsetTable" not in (tmp_path / "config/consumerOffset.json").read_text()
    assert copied(ConsumerOffsetManager(str(tmp_path)), a=20) == {"a": 20}  # it is a slave again


def persist(manager: ConsumerOffsetManager) -> None:
    snapshot = manager.snapshot()
    if snapshot is not None:
        manager.persist(snapshot)


def test_an_offset_is_taken_up_to_the_end_of_the_queue(tmp_path: Path) -> None:
    manager = ConsumerOffsetManager(str(tmp_path))
    assert copied(manager, a=101) == {"a": 100}
    content = ConsumerOffsets({"orders@a": {0: 101}})
    manager.copy(content, lambda topic, queue_id: 200)
    assert manager.query_offset("a", "orders", 0) == 101


def test_nothing_is_to_be_written_where_nothing_has_changed(tmp_path: Path) -> None:
    groups, modes = SubscriptionGroupManager(str(tmp_path)), MessageRequestModeManager(str(tmp_path))
    offsets, delays = ConsumerOffsetManager(str(tmp_path)), DelayOffsetManager(str(tmp_path))
    body = MessageRequestModeBody("orders", "a", MessageRequestMode.POP)
    for turn in range(2):
        groups.copy(SubscriptionGroups({"a": SubscriptionGroupConfig("a")}, {"a": {"orders": 4}}, VERSION))
        offsets.copy(ConsumerOffsets({"orders@a": {0: 1}}), end)
        delays.copy(DelayOffsets({3: 7, 4: 500}), lambda level: 100)
        modes.copy(MessageRequestModes({"orders": {"a": body}}))
        for manager in (groups, offsets, delays, modes):
            snapshot = manager.snapshot()
            assert (snapshot is None) is bool(turn)
            if snapshot is not None:
                manager.persist(snapshot)
    assert (delays.offset(3), delays.offset(4)) == (7, 100)
    assert modes.find("orders", "a") == body
    assert groups.forbidden("a", "orders") == 4


def test_groups_are_those_of_the_master_and_the_systems(tmp_path: Path) -> None:
    groups = SubscriptionGroupManager(str(tmp_path))
    assert groups.find_subscription_group_config("here", 0) is not None
    groups.copy(SubscriptionGroups({"a": SubscriptionGroupConfig("a", retry_max_times=3)}, {}, VERSION))
    assert set(groups.subscription_group_table) == {"a", *SYSTEM_GROUPS}
    assert groups.data_version == VERSION
