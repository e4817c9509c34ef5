"""`reput consume` where a master is away, leaves or comes back: all messages, or the queues that are not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from reput import Broker
from reput.admin.admin_client import AdminClient
from reput.cli.commands import consumed_topic
from reput.cli.commands.consumed_topic import ConsumedTopic
from reput.client import PullConsumer
from reput.client.consuming.consumer_group import ConsumerGroup
from reput.errors import MQClientError, ReputError
from reput.remoting.codes import RequestCode
from reput.remoting.queue_tables import QueueKey
from tests.support.asking import ask, until
from tests.support.broker import make_topic
from tests.support.commands import Answer, run_reput
from tests.support.master_and_slave import NUMBERS, Pair, fill, hurry, lose, name_server, unreachable, until_copied
from tests.support.wire import send_numbers

SLAVE = "the master of broker-a is away"
GROUPS = pytest.mark.parametrize("options", [(), ("--group", "new")], ids=["alone", "group"])
Meanwhile = Callable[..., None]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


def consume(namesrv: str, *options: object) -> Answer:
    return run_reput("consume", "orders", "--namesrv", namesrv, *options)


def numbers_of(answer: Answer) -> list[int]:
    return sorted(map(int, answer.out.split()))


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Lets something happen once a command knows where the queues end, and has read nothing.

    With `most` the command has no patience any more once it has read so many messages.
    """

    def happens(work: Callable[[], object], most: int | None = None) -> None:
        ask_ends, is_over, left = ConsumedTopic.ask_ends, ConsumedTopic.is_over, [work]

        async def asked(self: ConsumedTopic) -> None:
            await ask_ends(self)
            while left:
                await asyncio.to_thread(left.pop())

        async def over(self: ConsumedTopic, consumer: PullConsumer) -> bool:
            if sum(consumer.position(one) or 0 for one in consumer.assignment) == most:
                monkeypatch.setattr(consumed_topic, "_PATIENCE_S", 0.0)
            return await is_over(self, consumer)

        monkeypatch.setattr(ConsumedTopic, "ask_ends", asked)
        monkeypatch.setattr(ConsumedTopic, "is_over", over)

    return happens


@contextmanager
def with_lagging_slave(path: Path) -> Iterator[Broker]:
    """A master with 20 messages, whose slave has 10 of them."""
    with name_server(path) as namesrv:
        pair = Pair(path, namesrv)
        with pair.start("master") as master, pair.slave() as slave:
            fill(master)
            until_copied(master, slave)
            follow_no_more(slave)
            send_numbers(namesrv, range(10, 20))
            yield master


def follow_no_more(slave: Broker) -> None:
    """Let a slave take nothing of its master's log any more."""
    following = slave.in_loop(lambda state: state.slave and state.slave._following)
    assert following
    stop, thread = following
    stop.set()
    thread.join()


@GROUPS
def test_a_slave_that_lags_ends_where_it_ends(tmp_path: Path, options: tuple[str, ...]) -> None:
    with with_lagging_slave(tmp_path) as master:
        master.close()
        answer = consume(master.namesrv, *options)
        assert (answer.status, numbers_of(answer), SLAVE in answer.err) == (0, list(NUMBERS), True)


@GROUPS
def test_a_master_that_leaves_for_a_slave_that_lags_leaves_queues_unread(
    tmp_path: Path, meanwhile: Meanwhile, options: tuple[str, ...]
) -> None:
    with with_lagging_slave(tmp_path) as master:
        meanwhile(master.close, most=10)
        answer = consume(master.namesrv, *options)
        assert (answer.status, numbers_of(answer)) == (2, list(NUMBERS))
        left = "broker-a:0 (up to offset 5 of 10), broker-a:1 (up to offset 5 of 10)"
        assert f"not read to their ends: {left}" in answer.err


@GROUPS
def test_brokers_that_are_all_lost_leave_queues_unread(
    tmp_path: Path, meanwhile: Meanwhile, options: tuple[str, ...]
) -> None:
    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("master") as master:
        fill(master)
        meanwhile(master.close, most=0)
        answer = consume(namesrv, *options)
        assert (answer.status, answer.out) == (2, "")
        assert answer.err


@GROUPS
def test_a_master_that_comes_back_is_consumed_from(
    tmp_path: Path, meanwhile: Meanwhile, options: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(tmp_path))
        pair = Pair(tmp_path, namesrv)
        with pair.start("master") as master:
            fill(master)
            slave = stack.enter_context(pair.slave())
            until_copied(master, slave)

        def come_back() -> None:
            stack.enter_context(pair.start("master"))
            slave.close()

        meanwhile(come_back)
        answer = consume(namesrv, *options)
        assert (answer.status, numbers_of(answer)) == (0, list(NUMBERS))


def test_a_broker_that_comes_while_a_group_consumes_is_read_to_its_end(tmp_path: Path, meanwhile: Meanwhile) -> None:
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(tmp_path))
        fill(stack.enter_context(Pair(tmp_path, namesrv).start("a")))
        late = Pair(tmp_path, namesrv, broker_name="broker-b")
        with late.start("b") as b:
            make_topic(b.address, "orders", 2)
            send_numbers(namesrv, range(10, 20), broker_name="broker-b")
            lost = stack.enter_context(ExitStack())
        lost.enter_context(unreachable(namesrv, "broker-b", "orders"))

        def come() -> None:
            lost.close()
            stack.enter_context(late.start("b"))

        meanwhile(come)
        answer = consume(namesrv, "--group", "new")
        assert (answer.status, numbers_of(answer)) == (0, list(range(20)))
        assert "nobody answers for broker-b" in answer.err


def test_a_broker_that_is_lost_while_a_group_consumes_leaves_its_queues_unread(
    tmp_path: Path, meanwhile: Meanwhile
) -> None:
    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("a") as a, ExitStack() as b:
        fill(a)
        b.enter_context(unreachable(namesrv, "broker-b", "orders"))

        def go() -> None:
            b.close()
            until(lambda: "broker-b" not in ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body.decode())

        meanwhile(go)
        answer = consume(namesrv, "--group", "new")
        assert (answer.status, numbers_of(answer)) == (2, list(NUMBERS))
        assert "not read to their ends: broker-b:0 (its end is not known), broker-b:1 (" in answer.err


def test_a_lost_broker_that_comes_back_is_followed(tmp_path: Path, meanwhile: Meanwhile) -> None:
    with ExitStack() as stack:
        namesrv = stack.enter_context(name_server(tmp_path))
        fill(stack.enter_context(Pair(tmp_path, namesrv).start("a")))
        lose(namesrv, "broker-b", "orders")

        def come() -> None:
            b = stack.enter_context(Pair(tmp_path, namesrv, broker_name="broker-b").start("b"))
            make_topic(b.address, "orders", 2)
            send_numbers(namesrv, range(10, 20), broker_name="broker-b")

        meanwhile(come)
        answer = consume(namesrv, "--follow", "--count", 20)
        assert (answer.status, numbers_of(answer)) == (0, list(range(20)))
        assert "nobody answers for broker-b" in answer.err


async def test_who_is_away_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def told() -> str:
        for _ in range(2):
            await consumed.look()
        return capsys.readouterr().err

    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("a") as a:
        await asyncio.to_thread(fill, a)
        async with AdminClient(namesrv) as client:
            consumed = ConsumedTopic(client, "orders")
            assert await told() == ""
            with unreachable(namesrv, "broker-b", "orders"):
                assert (await told()).count("nobody answers for broker-b: 127.0.0.1:") == 1
            await asyncio.to_thread(lose, namesrv, "broker-b", "orders")
            assert (await told()).count("nobody answers for broker-b: no name server knows where") == 1
            await asyncio.to_thread(a.close)
            assert (await told()).count("nobody answers for broker-b") == 0
            assert client.silent == {}
            consumed.topic = "never-there"
            assert (await told()).count("there is no topic 'never-there'") == 1


def test_who_leaves_while_a_command_follows_is_told(
    tmp_path: Path, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumed_topic, "_LOOK_S", 0.01)
    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("a") as a:
        fill(a)
        tell_away = ConsumedTopic.tell_away

        def told(self: ConsumedTopic, error: ReputError | None = None) -> None:
            leaves = bool(self._client.silent)
            tell_away(self, error)
            if leaves:
                send_numbers(namesrv, range(10, 11))

        monkeypatch.setattr(ConsumedTopic, "tell_away", told)
        meanwhile(lambda: lose(namesrv, "broker-b", "orders"))
        answer = consume(namesrv, "--follow", "--count", 11)
        assert (answer.status, numbers_of(answer)) == (0, list(range(11)))
        assert "nobody answers for broker-b" in answer.err


def test_a_commit_that_fails_is_made_up_for_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, failures = ConsumerGroup.commit, ["broker-a: gone"]

    async def committed(self: ConsumerGroup, queue: QueueKey, offset: int) -> None:
        if failures:
            raise MQClientError(failures.pop())
        await commit(self, queue, offset)

    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("master") as master:
        fill(master)
        monkeypatch.setattr(ConsumerGroup, "commit", committed)
        answer = consume(namesrv, "--group", "new")
        assert (answer.status, numbers_of(answer), failures) == (0, list(NUMBERS), [])
        assert consume(namesrv, "--group", "new").out == ""


def test_a_slave_that_is_not_to_be_read_is_told(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv:
        pair = Pair(tmp_path, namesrv, slave_read_enable=False)
        with pair.start("master") as master, pair.slave() as slave:
            fill(master)
            until_copied(master, slave)
            master.close()
            answer = consume(namesrv)
            assert (answer.status, answer.out) == (2, "")
            assert SLAVE in answer.err
            assert f"{slave.address} answers code 2: [REJECTREQUEST]" in answer.err


async def test_a_member_that_gets_no_queue_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(consumed_topic, "_PATIENCE_S", 0.0)

    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("master") as master:
        await asyncio.to_thread(fill, master)
        async with AdminClient(namesrv) as client, PullConsumer(namesrv, group="new") as consumer:
            consumed = ConsumedTopic(client, "orders")
            await consumed.ask_ends()
            while not await consumed.is_over(consumer):
                pass
            assert await consumed.tell_left() == 2

    assert "no queue of topic 'orders' in 0 s: other members of the group have them" in capsys.readouterr().err


def test_a_topic_that_nobody_may_read_is_told(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("master") as master:
        make_topic(master.address, "orders", 2)
        fields = {
            "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 2, "perm": 2,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }  # fmt: skip
        ask(master.address, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)
        for answer in (consume(namesrv), run_reput("admin", "peek", "orders", "--namesrv", namesrv)):
            assert (answer.status, answer.out) == (2, "")
            assert "topic 'orders' has no queue that gives messages: nobody may read it" in answer.err


def test_messages_of_the_brokers_that_answer_are_printed_and_the_queues_of_others_are_named(tmp_path: Path) -> None:
    with name_server(tmp_path) as namesrv, Pair(tmp_path, namesrv).start("a") as a:
        fill(a)
        with unreachable(namesrv, "broker-b", "orders"):
            answer = consume(namesrv)
            assert (answer.status, numbers_of(answer)) == (2, list(NUMBERS))
            assert "nobody answers for broker-b: " in answer.err
            nobody = "its end is not known"
            assert f"not read to their ends: broker-b:0 ({nobody}), broker-b:1 ({nobody})" in answer.err
            assert consume(namesrv, "--count", 3).status == 0


async def test_queues_of_a_broker_that_the_consumers_name_server_does_not_list_yet_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was started anew; another one, which admin commands ask too, has told where its queues end."""
    with name_server(tmp_path) as namesrv:
        consumed = ConsumedTopic(AdminClient(namesrv), "orders")
        there, absent, empty = (QueueKey("orders", name, 0) for name in ("broker-a", "broker-b", "broker-c"))
        consumed._ends = {there: 3, absent: 5, empty: 0}
        assert consumed.with_end([there]) == [there]
        consumed._positions = consumed._seen = {there: 3}
        assert await consumed.tell_left() == 2
    assert "that are not read to their ends: broker-b:0 (nothing of 5)" in capsys.readouterr().err


class At:
    """A consumer at these offsets."""

    def __init__(self, positions: dict[QueueKey, int]) -> None:
        self.assignment, self.position = frozenset(positions), positions.get


async def test_a_queue_that_is_past_its_end_keeps_nobody_waiting_for_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumed_topic, "_PATIENCE_S", 0.0)
    busy, lost = QueueKey("orders", "a", 0), QueueKey("orders", "b", 0)
    consumed = ConsumedTopic(AdminClient("127.0.0.1:1"), "orders")
    consumed._ends = dict.fromkeys((busy, lost), 10)

    found = []
    for at in range(10, 13):  # a producer goes on sending to the one, the broker of the other is away
        positions = {busy: at, lost: 5}
        found.append(await consumed.is_over(At(positions)))  # type: ignore[arg-type]
    assert found[1:] == [True, True]
