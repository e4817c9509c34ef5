import shutil
from pathlib import Path

import pytest

from reput.errors import ConfigError
from reput.formats.metadata import DataVersion, SubscriptionGroupConfig, SubscriptionGroups, decode_metadata
from reput.remoting.topic_validator import SYSTEM_GROUPS
from reput.service.subscription_group_manager import SubscriptionGroupManager
from tests.support.faulty_files import Crash, FaultyFiles, crash_at

GOLDEN = Path(__file__).parents[2] / "golden" / "config" / "5.3.3" / "subscriptionGroup.json"
NOW_MS = 1_700_000_000_001


def manager_at(root, files=None, **options):
    return SubscriptionGroupManager(str(root), files or FaultyFiles(), **options)


@pytest.fixture
def written(tmp_path):
    """A store with the groups that RocketMQ wrote."""
    (tmp_path / "config").mkdir()
    shutil.copy(GOLDEN, tmp_path / "config")
    return tmp_path


def test_a_fresh_broker_has_rocketmqs_groups_and_writes_none(tmp_path):
    manager = manager_at(tmp_path)
    assert dict(manager.subscription_group_table) == {group: SubscriptionGroupConfig(group) for group in SYSTEM_GROUPS}
    assert manager.snapshot() is None


def test_groups_that_rocketmq_wrote_stay_beside_new_ones(written):
    golden = decode_metadata(SubscriptionGroups, GOLDEN.read_bytes())
    manager = manager_at(written)
    assert manager.snapshot() is None
    assert manager.data_version == golden.data_version
    assert manager.forbidden("order-group", "order-topic") == 1
    made = manager.find_subscription_group_config("g", NOW_MS)
    assert made == SubscriptionGroupConfig("g")
    manager.persist(manager.snapshot())
    stored = decode_metadata(SubscriptionGroups, (written / "config" / GOLDEN.name).read_bytes())
    assert stored.subscription_group_table == {
        **{group: SubscriptionGroupConfig(group) for group in SYSTEM_GROUPS},
        **golden.subscription_group_table,
        "g": made,
    }
    assert stored.forbidden_table == golden.forbidden_table
    assert stored.data_version == DataVersion(golden.data_version.counter + 1, 0, NOW_MS)
    assert (written / "config" / (GOLDEN.name + ".bak")).read_bytes() == GOLDEN.read_bytes()
    assert manager_at(written).content() == manager.content() == stored


def test_a_group_of_the_file_counts_more_than_the_brokers_own(tmp_path):
    manager = manager_at(tmp_path)
    mine = SubscriptionGroupConfig("TOOLS_CONSUMER", consume_enable=False)
    manager.update_subscription_group_config([mine], NOW_MS)
    manager.persist(manager.snapshot())
    assert manager_at(tmp_path).subscription_group_table["TOOLS_CONSUMER"] == mine


@pytest.mark.parametrize(
    ("options", "group", "made"),
    [
        ({}, "g", True),
        ({}, "g" * 256, False),
        ({}, "", False),
        ({}, "a.b", False),
        ({"auto_create_subscription_group": False}, "g", False),
        ({"auto_create_subscription_group": False}, "CID_RMQ_SYS_X", True),
        ({"auto_create_subscription_group": False, "enable_create_sys_group": False}, "CID_RMQ_SYS_X", False),
        ({"auto_create_subscription_group": False}, "TOOLS_CONSUMER", True),
    ],
)
def test_a_missing_group_is_made_where_that_is_allowed(tmp_path, options, group, made):
    manager = manager_at(tmp_path, **options)
    found = manager.find_subscription_group_config(group, NOW_MS)
    assert found == (SubscriptionGroupConfig(group) if made else None)
    assert (group in manager.subscription_group_table) is made


def test_a_found_group_is_no_change(tmp_path):
    manager = manager_at(tmp_path)
    assert manager.find_subscription_group_config("TOOLS_CONSUMER", NOW_MS) is not None
    assert manager.snapshot() is None


def test_an_operator_changes_several_groups_or_none(written):
    manager = manager_at(written)
    before = manager.content()
    with pytest.raises(ConfigError, match=r"group 'a\.b': expected 1 to 255"):
        manager.update_subscription_group_config([SubscriptionGroupConfig("g"), SubscriptionGroupConfig("a.b")], NOW_MS)
    with pytest.raises(ConfigError, match="unsupported key: x"):
        manager.update_subscription_group_config([SubscriptionGroupConfig("g", attributes={"+x": "y"})], NOW_MS)
    assert manager.content() == before
    manager.update_subscription_group_config([], NOW_MS)
    assert manager.snapshot() is None
    manager.update_subscription_group_config(
        [SubscriptionGroupConfig("g"), SubscriptionGroupConfig("order-group", retry_max_times=3)], NOW_MS
    )
    order_group = manager.subscription_group_table["order-group"]
    assert (order_group.retry_max_times, order_group.attributes) == (3, {"lite.bind.topic": "x"})
    assert manager.data_version == DataVersion(before.data_version.counter + 1, 0, NOW_MS)


def test_a_deleted_group_takes_what_is_forbidden_to_it_along(written):
    manager = manager_at(written)
    assert manager.delete_subscription_group_config("order-group", NOW_MS)
    assert manager.forbidden("order-group", "order-topic") == 0
    manager.persist(manager.snapshot())
    again = manager_at(written)
    assert "order-group" not in again.subscription_group_table
    assert again.content().forbidden_table == {}
    assert not manager.delete_subscription_group_config("order-group", NOW_MS)
    assert manager.snapshot() is None


def test_bits_are_forbidden_one_by_one(tmp_path):
    manager = manager_at(tmp_path)
    assert manager.update_forbidden("g", "t", 2, True, NOW_MS) == 4
    assert manager.update_forbidden("g", "t", 0, True, NOW_MS) == 5
    assert manager.update_forbidden("g", "u", 1, True, NOW_MS) == 2
    assert manager.update_forbidden("g", "t", 2, False, NOW_MS) == 1
    version = manager.data_version
    assert manager.update_forbidden("g", "t", 2, False, NOW_MS) == 1
    assert manager.data_version == version
    assert manager.update_forbidden("g", "t", 0, False, NOW_MS) == 0
    assert manager.content().forbidden_table == {"g": {"u": 2}}
    assert manager.update_forbidden("g", "u", 1, False, NOW_MS) == 0
    assert manager.content().forbidden_table == {}
    with pytest.raises(ConfigError, match="forbiddenIndex 31: expected 0 to 30"):
        manager.update_forbidden("g", "t", 31, True, NOW_MS)


def test_a_kill_at_any_operation_leaves_the_old_groups_or_the_new_ones(tmp_path, written):
    for number in range(100):
        work = tmp_path / str(number)
        shutil.copytree(written / "config", work / "config")
        manager = manager_at(work, FaultyFiles(crash_at(number)))
        before = manager.content()
        manager.find_subscription_group_config("g", NOW_MS)
        try:
            manager.persist(manager.snapshot())
        except Crash:
            assert manager_at(work).content() in (before, manager.content())
        else:
            assert manager_at(work).content() == manager.content()
            break
    assert number > 5
