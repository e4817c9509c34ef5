"""`reput admin`, against a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from reput import Broker
from reput.client import PullConsumer
from tests.support.broker import SMALL
from tests.support.commands import Answer, run_reput


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("broker")
    with Broker.start(path, bind_address="127.0.0.1", brokerIP1="127.0.0.1", **SMALL) as broker:
        assert run_reput("admin", "create-topic", "orders", "--queues", 1, "--namesrv", broker.namesrv).status == 0
        for key in ("o-1", "o-2"):
            sent = run_reput(
                "admin", "send", "orders", f"body of {key}", "--tags", "paid", "--key", key, "--json",
                "--namesrv", broker.namesrv,
            ).object()  # fmt: skip
            assert (sent["status"], sent["broker"], sent["queue_id"]) == ("SEND_OK", "broker-a", 0)
        asyncio.run(consume(broker.namesrv))
        yield broker.namesrv


async def consume(namesrv: str) -> None:
    async with PullConsumer(namesrv, group="shop", topics={"orders": "*"}, consume_from="first") as consumer:
        assert len(await consumer.poll(timeout=30)) == 2
        await consumer.commit()


@pytest.fixture
def admin(namesrv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)


def run_admin(*arguments: object) -> Answer:
    return run_reput("admin", *arguments)


@pytest.mark.usefixtures("admin")
def test_each_command_prints_a_table_or_one_object() -> None:
    for arguments, words in (
        (["cluster"], ["DefaultCluster", "broker-a", "V5_3_3"]),
        (["topics"], ["orders", "rw", "broker-a"]),
        (["topic", "orders"], ["broker-a", "2", "shop"]),
        (["groups"], ["shop"]),
        (["lag", "shop"], ["orders", "broker-a", "0"]),
        (["reset", "shop", "orders", "--to", "earliest"], ["nothing was changed: add --yes"]),
        (["delete-topic", "orders"], ["consumed by shop", "nothing was changed: add --yes"]),
        (["peek", "orders"], ["body of o-1", "body of o-2", "paid"]),
    ):
        answer = run_admin(*arguments)
        assert (answer.status, answer.err) == (0, "")
        assert [word for word in words if word not in answer.out] == []
    assert [one["topic"] for one in run_admin("topics", "--json").object()["topics"]] == ["orders"]
    assert run_admin("topic", "orders", "--json").object()["groups"] == ["shop"]
    assert run_admin("cluster", "--json").object()["brokers"][0]["broker"] == "broker-a"
    (group,) = run_admin("groups", "--json").object()["groups"]
    assert group == {"group": "shop", "members": 0, "topics": 1, "lag": 0}
    assert [one["body"] for one in run_admin("peek", "orders", "--count", 1, "--json").lines()] == ["body of o-2"]


@pytest.mark.usefixtures("admin")
def test_a_time_that_nobody_knows_is_null() -> None:
    assert run_admin("create-topic", "new", "--queues", 1).status == 0
    try:
        assert [one["last_stored"] for one in run_admin("topic", "new", "--json").object()["queues"]] == [None]
    finally:
        assert run_admin("delete-topic", "new", "--yes").status == 0


@pytest.mark.usefixtures("admin")
def test_the_words_of_consume_are_told_with_those_of_a_reset() -> None:
    answer = run_admin("reset", "shop", "orders", "--to", "first", "--yes")
    assert answer.status == 2
    assert "--to first: an offset of a group is set to earliest, latest or a TIME" in answer.err


@pytest.mark.usefixtures("admin")
def test_a_reset_changes_offsets_once_it_is_confirmed() -> None:
    for confirmation, done, lag in (([], False, 0), (["--yes"], True, 2)):
        answer = run_admin("reset", "shop", "orders", "--to", "earliest", "--json", *confirmation).object()
        assert (answer["done"], answer["queues"]) == (
            done, [{"broker": "broker-a", "queue_id": 0, "before": 2, "after": 0}],
        )  # fmt: skip
        assert run_admin("lag", "shop", "--json").object()["lag"] == lag
    assert run_admin("reset", "shop", "orders", "--to", "2100-01-01", "--yes").status == 0
    assert run_admin("lag", "shop", "--json").object()["lag"] == 0


@pytest.mark.usefixtures("admin")
def test_a_topic_is_deleted_once_that_is_confirmed() -> None:
    assert run_admin("create-topic", "gone").status == 0
    assert run_admin("delete-topic", "gone", "--json").object()["deleted"] is False
    assert "is deleted" in run_admin("delete-topic", "gone", "--yes").out
    answer = run_admin("topic", "gone")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("reput: there is no topic 'gone'")


@pytest.mark.usefixtures("admin")
def test_what_cannot_be_done_is_one_line_with_what_to_do() -> None:
    for arguments, text in (
        (["topic", "ordres"], "did you mean 'orders'?"),
        (["send", "ordres", "x"], "did you mean 'orders'?"),
        (["lag", "shpo"], "did you mean 'shop'?"),
        (["connections", "shop"], "nobody of group 'shop' is connected"),
        (["reset", "shop", "orders", "--to", "sometime"], "'sometime' is no time"),
        (["peek", "orders", "--offset", 1], "--offset counts only with --queue-id"),
        (["peek", "orders", "--queue-id", 7], "has no queue 7"),
        (
            ["cluster", "--namesrv", "127.0.0.1:1"],
            "Connection refused: expected a broker or a name server there; start it, or correct the address",
        ),
        (["cluster", "--namesrv", "here"], "expected HOST:PORT"),
    ):
        answer = run_admin(*arguments)
        assert (answer.status, answer.out) == (2, "")
        (line,) = answer.err.splitlines()
        assert text in line


@pytest.mark.usefixtures("admin")
def test_nothing_to_peek_is_told_with_where_to_look() -> None:
    answer = run_admin("peek", "orders", "--queue-id", 0, "--offset", 99)
    assert "`reput admin topic orders` shows its offsets" in answer.err
