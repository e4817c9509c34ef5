"""Topics of a broker; facts of RocketMQ 5.3.3: `TopicConfigManager.init`, `createTopicInSendMessageMethod`."""

import pytest

import reput
from reput.errors import ConfigError
from reput.formats.metadata import TopicConfig
from reput.service.topic_config_manager import TopicConfigManager, broker_topics
from reput.store.message_reader import MessageReader


def manager_of(store, *, created=True, **options):
    """The manager of a broker `broker-a`, whose own topics are made."""
    manager = TopicConfigManager(store, broker_topics("broker-a"), **options)
    if created:
        manager.create(manager.own_topics)
    return manager


def rows(configs):
    return {config.topic_name: (config.read_queue_nums, config.write_queue_nums, config.perm) for config in configs}


FRESH = {
    "SELF_TEST_TOPIC": (1, 1, 6),
    "TBW102": (8, 8, 7),
    "BenchmarkTest": (1024, 1024, 6),
    "DefaultCluster": (16, 16, 7),
    "broker-a": (1, 1, 7),
    "OFFSET_MOVED_EVENT": (1, 1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 1, 6),
    "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 8, 6),
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1, 1),
    "RMQ_SYS_TRANS_HALF_TOPIC": (1, 1, 6),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 1, 6),
    "rmq_sys_wheel_timer": (1, 1, 6),
}


def test_a_fresh_broker_has_rocketmqs_topics():
    assert rows(broker_topics("broker-a")) == FRESH


def test_keys_of_the_broker_change_its_topics():
    topics = rows(
        broker_topics(
            "b", broker_cluster_name="c", auto_create_topic_enable=False, cluster_topic_enable=False,
            broker_topic_enable=False, trace_topic_enable=True, revive_queue_num=2, timer_wheel_enable=False,
        )
    )  # fmt: skip
    assert topics.keys().isdisjoint({"TBW102", "rmq_sys_wheel_timer"})
    assert (topics["c"], topics["b"], topics["RMQ_SYS_TRACE_TOPIC"]) == ((16, 16, 1), (1, 1, 1), (1, 1, 6))
    assert topics["rmq_sys_REVIVE_LOG_c"] == (2, 2, 6)
    assert rows(broker_topics("b", default_topic_queue_nums=4))["TBW102"] == (4, 4, 7)


def test_a_brokers_name_that_is_no_topic_is_refused():
    with pytest.raises(
        ConfigError, match=r"brokerName=.a\.b.: a broker has a topic of this name\. .*illegal characters"
    ):
        broker_topics("a.b")
    with pytest.raises(ConfigError, match="brokerClusterName=''"):
        broker_topics("a", broker_cluster_name="")


def test_topics_are_made_at_the_first_start_alone(tmp_path, store):
    store.update_topic(reput.TopicConfig("TBW102", 2, 2, 7))
    manager = manager_of(store, created=False)
    assert rows(manager.create(manager.own_topics)) == {name: row for name, row in FRESH.items() if name != "TBW102"}
    version = manager.data_version
    assert manager.create(manager.own_topics) == []
    assert manager.data_version == version == store.topic_metadata.data_version
    assert manager.topic_config_table == store.topics
    assert manager.select_topic_config("TBW102").write_queue_nums == 2
    assert manager.select_topic_config("unknown") is None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("t", "TBW102", 4), reput.TopicConfig("t", 4, 4, 6)),
        (("t", "TBW102", 100), reput.TopicConfig("t", 8, 8, 6)),
        (("t", "TBW102", -1), reput.TopicConfig("t", 0, 0, 6)),
        (("t", "broker-a", 4), reput.TopicConfig("t", 1, 1, 6)),
        (("t", "BenchmarkTest", 4), None),
        (("t", "unknown", 4), None),
        (("%RETRY%g", "TBW102", 4), reput.TopicConfig("%RETRY%g", 4, 4, 6)),
        (("%RETRY%g", "unknown", 4), reput.TopicConfig("%RETRY%g", 1, 1, 6)),
    ],
)
def test_a_send_makes_a_topic_after_a_template_that_is_inherited(store, asked, expected):
    manager = manager_of(store)
    assert manager.create_topic_in_send_message(*asked) == expected
    assert manager.select_topic_config(asked[0]) is None


def test_the_topic_of_a_unit_has_its_flag(store):
    manager = manager_of(store)
    assert manager.create_topic_in_send_message("t", "TBW102", 4, unit_mode=True).topic_sys_flag == 1
    assert manager.create_topic_in_send_message("%RETRY%g", "TBW102", 4, unit_mode=True).topic_sys_flag == 2
    assert manager.create_topic_in_send_message("%RETRY%g", "none", 4, unit_mode=True).topic_sys_flag == 2
    assert manager.create_retry_topic("g", 1, unit_mode=True).topic_sys_flag == 2


def test_without_automatic_creation_the_template_of_an_earlier_start_makes_nothing(store):
    store.update_topic(reput.TopicConfig("TBW102", 8, 8, 7))
    manager = manager_of(store, auto_create_topic_enable=False)
    assert manager.create_topic_in_send_message("t", "TBW102", 4) is None
    assert manager.create_topic_in_send_message("t", "broker-a", 4) == reput.TopicConfig("t", 1, 1, 6)


def test_retry_and_dead_letter_topics_are_made_once(store):
    manager = manager_of(store)
    retry, dlq = manager.create_retry_topic("g", 3, order=True), manager.create_dlq_topic("g")
    assert retry == reput.TopicConfig("%RETRY%g", 3, 3, 6, order=True)
    assert dlq == reput.TopicConfig("%DLQ%g", 1, 1, 6)
    assert manager.create([retry, dlq]) == [retry, dlq]
    assert manager.create_retry_topic("g", 1) is None
    assert manager.create_dlq_topic("g") is None


def test_two_creations_of_a_topic_are_one(store):
    """Two sends of one turn may ask for the same topic before it is on the disk."""
    manager = manager_of(store)
    first, second = (manager.create_topic_in_send_message("t", "TBW102", queues) for queues in (4, 2))
    assert manager.create([first]) == [first]
    assert manager.create([second]) == []
    assert manager.select_topic_config("t") == first


def test_an_operators_change_keeps_attributes_that_it_does_not_name(store):
    manager = manager_of(store)
    made = manager.update([reput.TopicConfig("t", 4, 4, attributes={"+message.type": "FIFO"})])
    assert made == [reput.TopicConfig("t", 4, 4, attributes={"message.type": "FIFO"})]
    version = manager.data_version.counter
    changed = manager.update([reput.TopicConfig("t", 8, 8), reput.TopicConfig("u", 1, 1)])
    assert changed == [reput.TopicConfig("t", 8, 8, attributes={"message.type": "FIFO"}), reput.TopicConfig("u", 1, 1)]
    assert manager.data_version.counter == version + 1
    assert manager.update([reput.TopicConfig("t", 8, 8)]) == []
    assert manager.data_version.counter == version + 1


def test_two_changes_of_a_topic_in_one_request_follow_each_other(store):
    manager = manager_of(store)
    manager.update(
        [
            reput.TopicConfig("t", 4, 4, attributes={"+message.type": "FIFO"}),
            reput.TopicConfig("t", 8, 8, attributes={"-message.type": ""}),
        ]
    )
    assert manager.select_topic_config("t") == reput.TopicConfig("t", 8, 8)


def test_a_wrong_attribute_changes_no_topic_of_the_request(store):
    manager = manager_of(store)
    before = store.topic_metadata
    with pytest.raises(ConfigError, match="unsupported key: x"):
        manager.update([reput.TopicConfig("t"), reput.TopicConfig("u", attributes={"+x": "y"})])
    assert store.topic_metadata == before


def test_a_deleted_topic_is_unknown(store):
    manager = manager_of(store)
    manager.update([reput.TopicConfig("t")])
    manager.delete(["t", "unknown"])
    assert manager.select_topic_config("t") is None
    assert "t" not in store.topics


@pytest.mark.parametrize(
    ("topic", "update", "delete"),
    [
        ("t", None, None),
        ("%RETRY%g", None, None),
        ("", "The specified topic is blank.", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$", None),
        *(
            (
                name,
                f"The topic[{name}] is conflict with system topic.",
                f"The topic[{name}] is conflict with system topic.",
            )
            for name in ("TBW102", "DefaultCluster", "broker-a", "rmq_sys_anything", "TRANS_CHECK_MAX_TIME_TOPIC")
        ),
    ],
)
def test_an_operator_leaves_the_brokers_own_topics_alone(store, topic, update, delete):
    manager = manager_of(store)
    assert manager.validate_update(topic) == update
    assert manager.validate_delete(topic) == delete
    assert manager.is_system_topic(topic) is ("conflict" in (update or ""))


def put_in_queues(store, topic, *queue_ids):
    for queue_id in queue_ids:
        store.put_message(reput.Message(topic, b"x"), queue_id)
    store.wait_dispatched()


@pytest.mark.parametrize("change", ["create", "update"])
def test_a_new_topic_has_all_queues_with_messages_to_read_and_as_many_to_write_as_asked_for(store, change):
    put_in_queues(store, "orders", 3, 12)
    manager = manager_of(store)
    getattr(manager, change)([TopicConfig("orders", 4, 4), TopicConfig("fresh", 4, 4)])
    assert rows(store.topics.values()).items() >= {"orders": (13, 4, 6), "fresh": (4, 4, 6)}.items()
    manager.update([TopicConfig("orders", 2, 2)])  # an operator who has seen it decides
    assert rows([manager.select_topic_config("orders")]) == {"orders": (2, 2, 6)}


def test_a_new_topic_looks_for_no_queues_that_a_start_has_found(store, monkeypatch):
    put_in_queues(store, "orders", 12)
    manager = manager_of(store, created=False)
    assert manager.queues_with_messages() == {"orders": 13}
    monkeypatch.delattr(MessageReader, "queues")
    manager.create([TopicConfig("orders", 4, 4)])
    assert rows(store.topics.values()).items() >= {"orders": (13, 4, 6)}.items()


def test_an_odd_queue_id_makes_no_topic_of_millions_of_queues(store):
    put_in_queues(store, "orders", 2**31 - 1)
    manager = manager_of(store)
    manager.create([TopicConfig("orders", 4, 4)])
    assert rows([manager.select_topic_config("orders")]) == {"orders": (4, 4, 6)}
