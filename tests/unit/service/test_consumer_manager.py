import pytest

from reput.formats.consumers import ConsumeFromWhere, ConsumeType, MessageModel
from reput.remoting.subscription_data import SubscriptionData
from reput.service.consumer_manager import ConsumerGroupChange, ConsumerManager


@pytest.fixture
def manager():
    return ConsumerManager()


def register(
    manager, group, channel, *subscriptions, client_id=None, model=MessageModel.CLUSTERING, now_ms=0, **options
):
    return manager.register_consumer(
        group,
        channel,
        client_id=client_id or f"id-of-{channel}",
        language="JAVA",
        version=453,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscriptions=options.pop("subscriptions", subscriptions),
        now_ms=now_ms,
        **options,
    )


def to(topic, version=0, text="*"):
    return SubscriptionData(topic, text, sub_version=version)


def test_a_new_member_is_told_to_all_and_a_heartbeat_to_nobody(manager):
    assert register(manager, "g", "a", to("t")) == ConsumerGroupChange("g", True, True, ("a",))
    assert register(manager, "g", "b", to("t")) == ConsumerGroupChange("g", True, False, ("a", "b"))
    assert register(manager, "g", "a", to("t")) == ConsumerGroupChange("g", False, False, ())
    assert manager.client_ids("g") == ["id-of-a", "id-of-b"]
    assert manager.groups() == ["g"]
    info = manager.channels("g")["b"]
    assert (info.client_id, info.language, info.version) == ("id-of-b", "JAVA", 453)


@pytest.mark.parametrize(
    "options", [{"model": MessageModel.BROADCASTING}, {"notify_consumer_ids_changed_enable": False}]
)
def test_nobody_is_told_where_that_is_not_wanted(manager, options):
    assert register(manager, "g", "a", to("t"), **options) == ConsumerGroupChange("g", True, True, ())


def test_topics_that_come_and_go_are_told(manager):
    register(manager, "g", "a", to("t"))
    assert register(manager, "g", "a", to("t"), to("u")) == ConsumerGroupChange("g", False, True, ("a",))
    assert register(manager, "g", "a", to("u")) == ConsumerGroupChange("g", False, True, ("a",))
    assert manager.find_subscription_data("g", "t") is None
    assert manager.find_subscription_data("g", "u") == to("u")
    assert manager.query_topic_consume_by_who("u") == {"g"}
    assert manager.query_topic_consume_by_who("t") == set()


def test_a_greater_version_replaces_a_subscription_in_silence(manager):
    """The subscription belongs to the group: the members' versions compete (7.3 of RocketMQ's rules)."""
    register(manager, "g", "a", to("t", 5, "x"))
    for version, text in ((5, "y"), (4, "z")):
        assert register(manager, "g", "a", to("t", version, text)).subscriptions_changed is False
        assert manager.find_subscription_data("g", "t") == to("t", 5, "x")
    assert register(manager, "g", "a", to("t", 6, "y")) == ConsumerGroupChange("g", False, False, ())
    assert manager.find_subscription_data("g", "t") == to("t", 6, "y")


def test_a_heartbeat_without_subscriptions_leaves_them(manager):
    register(manager, "g", "a", to("t"))
    assert register(manager, "g", "b", subscriptions=None) == ConsumerGroupChange("g", True, False, ("a", "b"))
    assert manager.find_subscription_data("g", "t") == to("t")
    assert register(manager, "g", "b", subscriptions=[]).subscriptions_changed is True
    assert manager.find_subscription_data("g", "t") is None


def test_the_last_heartbeat_says_how_a_group_consumes(manager):
    register(manager, "g", "a", to("t"), now_ms=5)
    register(manager, "g", "b", to("t"), model=MessageModel.BROADCASTING, now_ms=6)
    info = manager.consumer_group_info("g")
    assert (info.message_model, info.last_update_ms) == (MessageModel.BROADCASTING, 6)
    assert manager.consumer_group_info("unknown") is None


def test_another_client_id_on_a_connection_replaces_the_first(manager):
    register(manager, "g", "a", to("t"), client_id="one")
    assert register(manager, "g", "a", to("t"), client_id="two").ids_changed is False
    assert manager.client_ids("g") == ["two"]
    assert manager.find_channel("g", "one") is None


def test_a_client_that_came_back_before_its_old_connection_went_is_one_member(manager):
    register(manager, "g", "old", to("t"), client_id="one")
    register(manager, "g", "new", to("t"), client_id="one")
    assert manager.client_ids("g") == ["one"]
    assert manager.find_channel("g", "one").channel == "new"
    manager.channel_closed("old")
    assert manager.client_ids("g") == ["one"]


def test_a_consumer_that_leaves_is_told_to_the_rest(manager):
    register(manager, "g", "a", to("t"))
    register(manager, "g", "b", to("t"))
    assert manager.unregister_consumer("g", "a") == ConsumerGroupChange("g", True, False, ("b",))
    assert manager.unregister_consumer("g", "a") is None
    assert manager.unregister_consumer("unknown", "a") is None
    left = manager.unregister_consumer("g", "b", notify_consumer_ids_changed_enable=False)
    assert left == ConsumerGroupChange("g", True, False, ())
    assert manager.groups() == []
    assert manager.client_ids("g") == []
    assert manager.find_subscription_data("g", "t") is None


def test_a_closed_connection_leaves_all_its_groups(manager):
    for group in ("g", "h"):
        register(manager, group, "a", to("t"))
    register(manager, "g", "b", to("t"))
    register(manager, "broadcast", "a", to("t"), model=MessageModel.BROADCASTING)
    register(manager, "broadcast", "b", to("t"), model=MessageModel.BROADCASTING)
    assert manager.channel_closed("a") == [
        ConsumerGroupChange("g", True, False, ("b",)),
        ConsumerGroupChange("h", True, False, ()),
        ConsumerGroupChange("broadcast", True, False, ()),
    ]
    assert manager.groups() == ["g", "broadcast"]
    assert manager.channel_closed("a") == []


def test_a_connection_that_is_silent_in_one_group_is_closed_for_all(manager):
    register(manager, "g", "a", to("t"), now_ms=0)
    register(manager, "g", "b", to("t"), now_ms=0)
    register(manager, "g", "c", to("t"), now_ms=1)
    register(manager, "h", "a", to("t"), now_ms=120_000)
    assert manager.scan_not_active_channel(120_000) == ([], [])
    assert manager.scan_not_active_channel(120_001) == (
        ["a", "b"],
        [ConsumerGroupChange("g", True, False, ("c",)), ConsumerGroupChange("h", True, False, ())],
    )
    assert manager.groups() == ["g"]
    register(manager, "g", "c", to("t"), now_ms=120_001)
    assert manager.scan_not_active_channel(240_001) == ([], [])


def test_enumerations_have_the_order_of_javas_ordinals():
    """C++ clients send 1, 1 and 0 for a push consumer of a cluster."""
    assert list(ConsumeType)[1] is ConsumeType.CONSUME_PASSIVELY
    assert list(MessageModel)[1] is MessageModel.CLUSTERING
    assert [list(ConsumeFromWhere)[i] for i in (0, 4, 5)] == [
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_FROM_FIRST_OFFSET",
        "CONSUME_FROM_TIMESTAMP",
    ]
