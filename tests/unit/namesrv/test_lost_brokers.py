from __future__ import annotations

from reput.namesrv.lost_brokers import KEPT_MS, MOST_BROKERS, MOST_TOPICS, LostBrokers
from reput.remoting.route_bodies import BrokerData, QueueData

LONG = "x" * 256
ONE = QueueData("broker-a", 4, 4, 6)


def noted(*names: str, topics: int = 1) -> LostBrokers:
    lost = LostBrokers()
    for name in names:
        lost.note(name, "c", {f"t{i}": QueueData(name, 4, 4, 6) for i in range(topics)}, 0)
    return lost


def test_a_lost_broker_has_queues_and_no_address() -> None:
    lost = noted("broker-a", "broker-b")
    assert lost.brokers() == {"broker-a": BrokerData("c", "broker-a"), "broker-b": BrokerData("c", "broker-b")}
    assert lost.queues("t0") == {"broker-a": ONE, "broker-b": QueueData("broker-b", 4, 4, 6)}
    assert list(lost.topics()) == ["t0", "t0"]
    assert lost.queues("unknown") == {}


def test_one_that_is_back_or_lost_for_too_long_is_forgotten() -> None:
    lost = noted("broker-a", "broker-b")
    lost.forget("broker-a")
    lost.forget("unknown")
    lost.expire(KEPT_MS)
    assert lost.brokers().keys() == {"broker-b"}
    lost.expire(KEPT_MS + 1)
    assert lost.brokers() == {}


def test_one_that_is_lost_again_before_its_topics_were_known_keeps_them() -> None:
    lost = noted("broker-a")
    lost.note("broker-a", "c", {}, 1)
    assert lost.queues("t0") == {"broker-a": ONE}
    lost.expire(KEPT_MS + 1)
    assert lost.queues("t0") == {"broker-a": ONE}


def test_a_topic_that_was_deleted_is_forgotten_and_its_broker_is_not() -> None:
    lost = noted("broker-a")
    lost.forget_topic("t0", "another")
    assert lost.queues("t0")
    lost.forget_topic("t0")
    assert (lost.queues("t0"), lost.brokers().keys()) == ({}, {"broker-a"})


def test_the_oldest_make_room() -> None:
    names = [f"broker-{i}" for i in range(MOST_BROKERS + 2)]
    assert list(noted(*names).brokers()) == names[2:]
    third = MOST_TOPICS // 3
    assert list(noted("a", "b", "c", "d", topics=third).brokers()) == ["b", "c", "d"]
    assert len(list(noted("a", "b", topics=MOST_TOPICS + 1).topics())) == MOST_TOPICS


def test_what_no_broker_of_rocketmq_names_takes_no_room() -> None:
    lost = noted("broker-a", LONG)
    lost.note("broker-b", LONG, {}, 0)
    lost.note("broker-c", "c", {LONG: ONE, "t": QueueData("broker-c", 1, 1, 6, others={"x": LONG})}, 0)
    assert lost.brokers().keys() == {"broker-a", "broker-c"}
    assert lost.queues(LONG) == {}
    assert lost.queues("t") == {"broker-c": QueueData("broker-c", 1, 1, 6)}
