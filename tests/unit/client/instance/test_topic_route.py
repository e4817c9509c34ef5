from __future__ import annotations

import pytest

from reput.client.instance.topic_route import (
    default_publish_queues,
    nothing_to_publish,
    publish_queues,
    serving,
    subscribe_queues,
)
from reput.remoting.route_bodies import BrokerData, QueueData, TopicRouteData


def route(*brokers: tuple[str, int, int, int], masters: str = "ab", conf: str | None = None) -> TopicRouteData:
    """A route; brokers: name, read queues, write queues, perm."""
    queues = tuple(QueueData(name, read, write, perm) for name, read, write, perm in brokers)
    datas = tuple(
        BrokerData("c", name, {0 if name in masters else 1: f"{name}:10911"})
        for name in dict.fromkeys(b[0] for b in brokers)
    )
    return TopicRouteData(queues, datas, order_topic_conf=conf)


def test_messages_go_to_write_queues_of_brokers_whose_master_is_there() -> None:
    found = publish_queues("t", route(("b", 3, 1, 6), ("a", 1, 2, 6), ("slave", 4, 4, 6), masters="ab"))
    assert found == (("t", "a", 0), ("t", "a", 1), ("t", "b", 0))


def test_messages_come_from_read_queues_of_all_brokers_in_one_order_for_all_members() -> None:
    found = subscribe_queues("t", route(("slave", 1, 4, 6), ("a", 2, 1, 6), masters="a"))
    assert found == (("t", "a", 0), ("t", "a", 1), ("t", "slave", 0))


def test_a_queue_that_may_not_be_written_or_read_is_left_out() -> None:
    both = route(("a", 1, 1, 4), ("b", 1, 1, 2))
    assert publish_queues("t", both) == (("t", "b", 0),)
    assert subscribe_queues("t", both) == (("t", "a", 0),)


def test_an_order_topic_has_the_queues_of_its_configuration() -> None:
    ordered = route(("a", 8, 8, 6), ("b", 8, 8, 6), conf="b:1;a:2;odd;c:x;gone:3")
    assert publish_queues("t", ordered) == (("t", "b", 0), ("t", "a", 0), ("t", "a", 1))
    assert subscribe_queues("t", ordered)[:3] == (("t", "a", 0), ("t", "a", 1), ("t", "b", 0))


def test_a_topic_that_a_send_makes_has_four_queues_at_most() -> None:
    assert [queue.queue_id for queue in default_publish_queues("t", route(("a", 8, 8, 7)))] == [0, 1, 2, 3]
    assert [queue.queue_id for queue in default_publish_queues("t", route(("a", 2, 2, 7)))] == [0, 1]


@pytest.mark.parametrize(
    ("addresses", "broker_id", "expected"),
    [
        ({1: "slave", 0: "master"}, 0, "master"),
        ({1: "slave", 0: "master"}, 1, "slave"),
        ({2: "second", 1: "first"}, 0, "first"),
        ({2: "second", 0: "master"}, 1, "master"),
        ({}, 0, None),
    ],
)
def test_a_master_serves_its_queues_and_else_a_slave(
    addresses: dict[int, str], broker_id: int, expected: str | None
) -> None:
    assert serving(addresses, broker_id) == expected


def test_why_nothing_can_be_sent_is_told() -> None:
    for found, text in (
        (None, "make it with `reput admin create-topic t`"),
        (route(("a", 1, 1, 6), masters=""), "the master of a is away, and a slave changes nothing: start it"),
        (route(("a", 1, 1, 6), ("b", 1, 1, 4), masters="b"), "the master of a is away"),
        (route(("a", 1, 1, 6), conf="a:1;gone:1"), "the master of gone is away"),
        (route(("a", 1, 1, 4)), "nobody may write to it"),
    ):
        told = nothing_to_publish("t", found)
        assert told.startswith("topic 't' has no queue that takes messages: ")
        assert text in told
