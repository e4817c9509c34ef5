import pytest

from reput.service.producer_manager import ProducerManager


@pytest.fixture
def manager():
    return ProducerManager()


def register(manager, group, channel, *, client_id=None, now_ms=0):
    return manager.register_producer(
        group, channel, client_id=client_id or f"id-of-{channel}", language="GO", version=453, now_ms=now_ms
    )


def test_a_producer_is_known_by_group_and_by_client_id(manager):
    assert register(manager, "g", "a") is True
    assert register(manager, "g", "a") is False
    assert register(manager, "h", "a") is True
    assert manager.groups() == ["g", "h"]
    assert manager.channels("g")["a"].client_id == "id-of-a"
    assert manager.find_channel("id-of-a") == "a"
    assert manager.find_channel("unknown") is None


def test_a_client_is_found_as_long_as_it_is_in_a_group(manager):
    register(manager, "g", "a")
    register(manager, "h", "a")
    assert manager.unregister_producer("g", "a")
    assert manager.find_channel("id-of-a") == "a"
    assert manager.unregister_producer("h", "a")
    assert manager.find_channel("id-of-a") is None
    assert not manager.unregister_producer("h", "a")
    assert manager.groups() == []


def test_the_newer_connection_of_a_client_outlives_the_older(manager):
    register(manager, "g", "old", client_id="one")
    register(manager, "g", "new", client_id="one")
    assert manager.channel_closed("old") == ["g"]
    assert manager.find_channel("one") == "new"


def test_another_client_id_on_a_connection_replaces_the_first(manager):
    register(manager, "g", "a", client_id="one")
    assert register(manager, "g", "a", client_id="two") is False
    assert manager.find_channel("one") is None
    assert manager.find_channel("two") == "a"


def test_a_closed_connection_leaves_all_its_groups(manager):
    for group in ("g", "h"):
        register(manager, group, "a")
    register(manager, "g", "b")
    assert manager.channel_closed("a") == ["g", "h"]
    assert manager.groups() == ["g"]
    assert manager.find_channel("id-of-a") is None
    assert manager.channel_closed("a") == []


def test_a_silent_connection_expires(manager):
    register(manager, "g", "a", now_ms=0)
    register(manager, "h", "a", now_ms=5)
    register(manager, "g", "b", now_ms=5)
    assert manager.scan_not_active_channel(120_000) == []
    assert manager.scan_not_active_channel(120_001) == ["a"]
    assert list(manager.channels("g")) == ["b"]
    assert list(manager.channels("h")) == []


def test_members_of_a_group_are_chosen_in_turn(manager):
    for channel in "abc":
        register(manager, "g", channel)
    chosen = [manager.available_channel("g", lambda channel: True) for _ in range(6)]
    assert sorted(chosen[:3]) == ["a", "b", "c"]
    assert chosen[3:] == chosen[:3]
    assert manager.available_channel("unknown", lambda channel: True) is None


def test_a_busy_member_is_passed_over_unless_all_are_busy(manager):
    for channel in "ab":
        register(manager, "g", channel)
    assert {manager.available_channel("g", lambda channel: channel == "b") for _ in range(4)} == {"b"}
    assert manager.available_channel("g", lambda channel: False) in ("a", "b")
