import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.formats.fastjson import decode_fastjson
from reput.formats.metadata import ConsumerOffsets, DataVersion, decode_metadata
from reput.service.consumer_offset_manager import ConsumerOffsetManager
from tests.support.examples import examples
from tests.support.faulty_files import FaultyFiles

GOLDEN = Path(__file__).parents[2] / "golden" / "config" / "5.3.3" / "consumerOffset.json"
NOW_MS = 1_700_000_000_001


def manager_at(root, **options):
    return ConsumerOffsetManager(str(root), FaultyFiles(), **options)


@pytest.fixture
def manager(tmp_path):
    return manager_at(tmp_path)


@pytest.fixture
def written(tmp_path):
    """A store with the offsets that RocketMQ wrote."""
    (tmp_path / "config").mkdir()
    shutil.copy(GOLDEN, tmp_path / "config")
    return tmp_path


def test_offsets_that_rocketmq_wrote_are_found(written):
    manager = manager_at(written)
    assert manager.query_offset("order-group", "order-topic", 11) == 1 << 40
    assert manager.query_offset("order-group", "order-topic", 2) == -1
    assert manager.query_offset("order-group", "unknown", 0) == -1
    assert manager.query_offsets("order-group", "order-topic") == {0: 12, 1: 7, 11: 1 << 40}
    assert manager.query_offsets("order-group", "unknown") == {}
    assert manager.which_topic_by_consumer("other-group") == {"%RETRY%other-group"}
    assert manager.which_group_by_topic("order-topic") == {"order-group"}
    assert manager.snapshot() is None


def test_the_file_is_the_one_that_rocketmq_would_write(written):
    manager = manager_at(written)
    manager.commit_offset("order-group", "order-topic", 0, 12, NOW_MS)
    manager.persist(manager.snapshot())
    data = (written / "config" / GOLDEN.name).read_bytes()
    assert decode_fastjson(data) == decode_fastjson(GOLDEN.read_bytes())
    assert b'"other-group":["%RETRY%other-group"]' in data
    manager.commit_offset("order-group", "more", 3, 4, NOW_MS)
    manager.persist(manager.snapshot())
    stored = decode_metadata(ConsumerOffsets, (written / "config" / GOLDEN.name).read_bytes())
    assert stored.offset_table == manager.content().offset_table
    assert stored.others["groupTopicMap"]["order-group"] == ("order-topic", "more")


def test_the_last_commit_counts_even_if_it_is_smaller(manager):
    for offset in (7, 3):
        manager.commit_offset("g", "t", 0, offset, NOW_MS)
    assert manager.query_offset("g", "t", 0) == 3


def test_the_data_version_counts_commits_by_steps(tmp_path):
    manager = manager_at(tmp_path, consumer_offset_update_version_step=3)
    seen = []
    for offset in range(7):
        manager.commit_offset("g", "t", 0, offset, NOW_MS + offset)
        seen.append(manager.data_version.counter)
    assert seen == [0, 0, 1, 1, 1, 2, 2]
    assert manager.data_version == DataVersion(2, 0, NOW_MS + 5)


def test_a_reset_waits_for_one_pull(manager):
    manager.commit_offset("g", "t", 0, 7, NOW_MS)
    assert manager.assign_reset_offset("t", "g", 0, 2, NOW_MS)
    assert manager.has_offset_reset("t", "g", 0)
    assert not manager.has_offset_reset("t", "g", 1)
    assert manager.query_offset("g", "t", 0) == 2
    assert manager.query_offsets("g", "t") == {0: 2}
    manager.commit_offset("g", "t", 0, 9, NOW_MS)
    assert manager.query_offset("g", "t", 0) == 2
    assert manager.query_then_erase_reset_offset("t", "g", 1) is None
    assert manager.query_then_erase_reset_offset("t", "g", 0) == 2
    assert manager.query_then_erase_reset_offset("t", "g", 0) is None
    assert not manager.has_offset_reset("t", "g", 0)
    assert manager.query_offset("g", "t", 0) == 9


@pytest.mark.parametrize("wrong", [("", "g", 0, 1), ("t", "", 0, 1), ("t", "g", -1, 1), ("t", "g", 0, -1)])
def test_a_reset_to_nothing_is_passed_over(manager, wrong):
    assert not manager.assign_reset_offset(*wrong, NOW_MS)
    assert manager.content().offset_table == {}


def test_a_pending_reset_is_lost_with_the_process_and_its_offset_is_not(tmp_path):
    manager = manager_at(tmp_path)
    manager.assign_reset_offset("t", "g", 0, 2, NOW_MS)
    manager.persist(manager.snapshot())
    again = manager_at(tmp_path)
    assert again.query_offset("g", "t", 0) == 2
    assert not again.has_offset_reset("t", "g", 0)


def test_pulls_are_counted_apart(manager):
    manager.commit_offset("g", "t", 0, 3, NOW_MS)
    assert manager.query_pull_offset("g", "t", 0) == 3
    manager.commit_pull_offset("g", "t", 0, 9)
    assert manager.query_pull_offset("g", "t", 0) == 9
    assert manager.query_offset("g", "t", 0) == 3
    assert manager.query_pull_offset("g", "t", 1) == -1


def test_a_group_gets_the_offsets_of_another(manager):
    manager.commit_offset("g", "t", 0, 3, NOW_MS)
    manager.clone_offset("g", "h", "t", NOW_MS)
    manager.clone_offset("g", "h", "unknown", NOW_MS)
    manager.commit_offset("g", "t", 0, 4, NOW_MS)
    assert manager.content().offset_table == {"t@g": {0: 4}, "t@h": {0: 3}}


def test_offsets_go_with_a_group_or_a_topic(manager):
    for topic in ("t", "tt"):
        for group in ("g", "gg"):
            manager.commit_offset(group, topic, 0, 3, NOW_MS)
            manager.commit_pull_offset(group, topic, 0, 5)
            manager.assign_reset_offset(topic, group, 0, 1, NOW_MS)
    manager.remove_offset("g", NOW_MS)
    assert set(manager.content().offset_table) == {"t@gg", "tt@gg"}
    assert not manager.has_offset_reset("t", "g", 0)
    assert manager.query_pull_offset("g", "t", 0) == -1
    manager.clean_offset_by_topic("t", NOW_MS)
    assert set(manager.content().offset_table) == {"tt@gg"}
    version = manager.data_version
    assert version.counter == 2
    manager.remove_offset("unknown", NOW_MS)
    assert manager.data_version == version


NAME = st.text("ab%-_", min_size=1, max_size=4)
COMMITS = st.lists(st.tuples(NAME, NAME, st.integers(0, 3), st.integers(0, 2**63 - 1)), max_size=12)


@settings(max_examples=examples(50), deadline=None)
@given(COMMITS)
def test_any_offsets_are_there_after_the_next_start(tmp_path_factory, commits):
    root = tmp_path_factory.mktemp("offsets")
    manager = manager_at(root, consumer_offset_update_version_step=5)
    expected = {}
    for group, topic, queue_id, offset in commits:
        manager.commit_offset(group, topic, queue_id, offset, NOW_MS)
        expected[group, topic, queue_id] = offset
    if commits:
        manager.persist(manager.snapshot())
    again = manager_at(root)
    assert again.content().offset_table == manager.content().offset_table
    assert again.data_version == manager.data_version
    assert all(again.query_offset(*queue) == offset for queue, offset in expected.items())
    assert all(
        topic in again.which_topic_by_consumer(group) and group in again.which_group_by_topic(topic)
        for group, topic, _ in expected
    )
