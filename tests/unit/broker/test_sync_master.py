"""SYNC_MASTER: what a send is answered, by what slaves do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from reput import ConfigError
from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.state import BrokerState
from reput.files import DISK, FileLayer
from reput.formats.hosts import encode_host
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from tests.support.broker import (
    SMALL,
    SYNCED,
    Client,
    batch_command,
    controller_of,
    messages_of,
    send_command,
    serving_broker,
)
from tests.support.fake_slave import FakeSlave, followed
from tests.support.faulty_files import FaultyFiles
from tests.support.held_disk import HeldDisk
from tests.support.sockets import free_ports

MODES = pytest.mark.parametrize("mode", [SMALL, SYNCED], ids=["async flush", "sync flush"])


@asynccontextmanager
async def serving_master(
    path: Path, files: FileLayer = DISK, **keys: object
) -> AsyncIterator[tuple[Client, BrokerState]]:
    """A SYNC_MASTER with the topic orders, of one message, and a client of it."""
    (port,) = free_ports(1)
    keys = {"brokerRole": "SYNC_MASTER", "haListenPort": port, "slaveTimeout": 60_000} | keys
    async with serving_broker(path, files=files, **keys) as served:
        client = await served.client()
        assert (await client.send_message("orders", b"first")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        yield client, served.controller.state


SENDS: dict[str, Callable[[], RemotingCommand]] = {
    "one": lambda: send_command("orders", b"one"),
    "a batch": lambda: batch_command("orders", [b"a", b"b"]),
    "of a new topic": lambda: send_command("another", b"one"),
    "with a delay": lambda: send_command("orders", b"one", properties={"DELAY": "3"}),
    "a half message": lambda: send_command("orders", b"one", properties={"TRAN_MSG": "true", "PGROUP": "p"}),
}


@MODES
@pytest.mark.parametrize("kind", SENDS)
async def test_a_send_is_answered_once_a_slave_has_acknowledged_its_end(
    tmp_path: Path, mode: dict[str, object], kind: str
) -> None:
    async with serving_master(tmp_path / "store", **mode) as (client, state), followed(state) as (slave,):
        for _ in range(2):
            before = state.store.max_commit_log_offset
            (begun,) = client.begin_all([SENDS[kind]()])
            while state.store.max_commit_log_offset == before:
                await client.round_trip()
            end = await slave.receive()
            slave.report(end - 1)
            await slave.is_heard(end - 1)
            await client.round_trip()
            assert not begun.done()
            slave.report(end)
            assert (await begun).code == 0


@MODES
async def test_without_a_slave_a_send_is_stored_and_answered_at_once(
    tmp_path: Path, mode: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_master(tmp_path / "store", **mode) as (client, _):
        for number in (1, 2):
            answer = await client.send_message("orders", b"%d" % number)
            assert (answer.code, answer.remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, None)
            assert (answer.ext_fields or {})["queueOffset"] == str(number)
        assert [one.body for one in messages_of(await client.pull("orders", 1, hold_ms=60_000))][:1] == [b"1"]
    told = [one for one in caplog.messages if "sends that wait for slaves" in one]
    assert told == ["sends that wait for slaves answered=SLAVE_NOT_AVAILABLE needed=1"]


@MODES
async def test_a_message_that_does_not_wait_is_answered_without_slaves(tmp_path: Path, mode: dict[str, object]) -> None:
    async with serving_master(tmp_path / "store", **mode) as (client, state):
        assert (await client.send_message("orders", properties={"WAIT": "false"})).code == 0
        async with followed(state):
            assert (await client.send_message("orders", properties={"WAIT": "false"})).code == 0


@MODES
async def test_a_slave_that_holds_its_acknowledgements_is_late(tmp_path: Path, mode: dict[str, object]) -> None:
    keys = mode | {"slaveTimeout": 30}
    async with serving_master(tmp_path / "store", **keys) as (client, state), followed(state) as (slave,):
        answers = await asyncio.gather(*client.begin_all([send_command("orders") for _ in range(3)]))
        assert [one.code for one in answers] == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 3
        slave.report(await slave.receive())
        await change(client, slaveTimeout=60_000)
        (begun,) = client.begin_all([send_command("orders")])
        await client.round_trip()
        slave.report(await slave.receive())
        assert (await begun).code == 0
        assert client.requests.empty()


async def change(client: Client, **keys: object) -> None:
    text = "".join(f"{name}={value}\n" for name, value in keys.items())
    assert (await client.ask(RequestCode.UPDATE_BROKER_CONFIG, text.encode())).code == 0


async def test_one_acknowledgement_answers_all_turns_that_it_covers(tmp_path: Path) -> None:
    async with serving_master(tmp_path / "store") as (client, state), followed(state) as (slave,):
        begun, ends = [], []
        for _ in range(4):
            begun += client.begin_all([send_command("orders")])
            await client.round_trip()
            ends.append(await slave.receive())
        slave.report(ends[2])
        assert [(await one).code for one in begun[:3]] == [0, 0, 0]
        await client.round_trip()
        assert not begun[3].done()
        slave.report(ends[3])
        assert (await begun[3]).code == 0


async def test_two_slaves_are_needed_for_three_copies(tmp_path: Path) -> None:
    async with serving_master(tmp_path / "store", inSyncReplicas=3) as (client, state):
        async with followed(state):
            assert (await client.send_message("orders")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        while state.ha is not None and state.ha.slaves:
            await client.round_trip()
        async with followed(state, 2) as slaves:
            (begun,) = client.begin_all([send_command("orders")])
            await client.round_trip()
            for slave in slaves:
                assert not begun.done()
                slave.report(await slave.receive())
                await slave.is_heard(slave.end_offset)
                await client.round_trip()
            assert (await begun).code == 0
            await change(client, inSyncReplicas=2)
            (begun,) = client.begin_all([send_command("orders")])
            await client.round_trip()
            slaves[1].report(await slaves[1].receive())
            assert (await begun).code == 0


async def test_a_slave_that_has_not_asked_for_the_log_or_is_far_behind_is_not_waited_for(tmp_path: Path) -> None:
    async with serving_master(tmp_path / "store") as (client, state):
        silent = await FakeSlave.connect(state)
        while state.ha is not None and not state.ha.slaves:
            await client.round_trip()
        assert (await client.send_message("orders")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        await silent.gone()
        await change(client, haMaxGapNotInSync=100)
        async with followed(state) as (slave,):
            (begun,) = client.begin_all([send_command("orders", bytes(200))])  # near before it, far after it
            assert (await begun).code == ResponseCode.SLAVE_NOT_AVAILABLE
            slave.report(await slave.receive())


async def test_a_slave_that_acknowledges_what_it_was_not_sent_is_sent_away_and_counts_for_nothing(
    tmp_path: Path,
) -> None:
    keys = {"slaveTimeout": 200}
    async with serving_master(tmp_path / "store", **keys) as (client, state), followed(state) as (slave,):
        slave.report(1 << 40)
        (begun,) = client.begin_all([send_command("orders")])
        await slave.sent_away()
        assert (await begun).code in (ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE)


async def test_an_acknowledgement_counts_that_came_right_before_the_end_of_its_connection(tmp_path: Path) -> None:
    async with serving_master(tmp_path / "store") as (client, state), followed(state) as (slave,):
        replicas = state.send_path.replicas
        assert replicas is not None
        (begun,) = client.begin_all([send_command("orders")])
        await client.round_trip()
        slave.report(await slave.receive())
        while replicas._acknowledged_by(1) < slave.end_offset:  # no turn of the loop between this and the end
            pass
        assert state.ha is not None
        [connection] = state.ha._connections
        state.ha.ended(connection)
        state.ha.on_acknowledged()  # as after a report of another slave, which has less
        assert (await begun).code == 0


async def test_a_slave_that_lost_its_connection_says_with_its_next_request_what_it_has(tmp_path: Path) -> None:
    async with serving_master(tmp_path / "store") as (client, state), followed(state) as (slave,):
        (begun,) = client.begin_all([send_command("orders")])
        await client.round_trip()
        end = await slave.receive()
        await slave.gone()
        await client.round_trip()
        assert not begun.done()
        again = await FakeSlave.connect(state)
        again.report(end)
        assert (await begun).code == 0
        await again.gone()


async def test_what_is_acknowledged_at_the_deadline_is_not_late(tmp_path: Path) -> None:
    async with serving_master(tmp_path / "store") as (client, state), followed(state) as (slave,):
        assert state.ha is not None
        assert state.send_path.replicas is not None
        state.ha.on_acknowledged = lambda: None  # nobody tells the loop
        (begun,) = client.begin_all([send_command("orders")])
        await client.round_trip()
        slave.report(await slave.receive())
        await slave.is_heard(slave.end_offset)
        while not any(state.send_path.replicas._waiting.values()):
            await client.round_trip()
        ((wait,),) = state.send_path.replicas._waiting.values()
        wait.timer.cancel()
        state.send_path.replicas._late(wait)
        assert (await begun).code == 0


async def test_where_the_sync_is_late_the_answer_tells_of_the_slaves(tmp_path: Path) -> None:
    disk = HeldDisk()

    keys = SYNCED | {"syncFlushTimeout": 50}
    files = FaultyFiles(disk.judge)
    async with serving_master(tmp_path / "store", files, **keys) as (client, state):
        with disk.held():
            answer = await client.send_message("orders", b"1")
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        await client.pull("orders", 1, hold_ms=60_000)
        async with followed(state) as (slave,):
            with disk.held():
                (begun,) = client.begin_all([send_command("orders", b"2")])
                assert (await begun).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert len(state.send_path.queue) == 1
            await slave.receive()  # it is sent what is synced
            slave.report(slave.end_offset)
            while len(state.send_path.queue):
                await client.round_trip()


NOT_ENOUGH = (ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")


async def is_refused(client: Client, state: BrokerState, command: RemotingCommand) -> bool:
    """Whether a send is refused for too few replicas, and nothing was appended."""
    end = state.store.max_commit_log_offset
    answer = await client.begin_all([command])[0]
    if (answer.code, answer.remark) != NOT_ENOUGH:
        return False
    assert (answer.ext_fields or {}).keys() == {"MSG_REGION", "TRACE_ON"}
    assert state.store.max_commit_log_offset == end
    return True


@MODES
@pytest.mark.parametrize("kind", SENDS)
async def test_a_send_is_refused_while_fewer_are_in_sync_than_min_in_sync_replicas(
    tmp_path: Path, mode: dict[str, object], kind: str
) -> None:
    async with serving_master(tmp_path / "store", **mode) as (client, state):
        await change(client, minInSyncReplicas=2)
        assert await is_refused(client, state, SENDS[kind]())
        async with followed(state) as (slave,):
            (begun,) = client.begin_all([SENDS[kind]()])
            before = slave.end_offset
            while state.store.max_commit_log_offset == before:
                await client.round_trip()
            slave.report(await slave.receive())
            assert (await begun).code == 0
            await change(client, minInSyncReplicas=3)
            assert await is_refused(client, state, SENDS[kind]())


@MODES
async def test_many_sends_of_one_read_are_refused_and_logged_once(
    tmp_path: Path, mode: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_master(tmp_path / "store", **mode) as (client, state), followed(state) as (slave,):
        (begun,) = client.begin_all([send_command("orders")])  # the kernel knows the topic now
        await client.round_trip()
        slave.report(await slave.receive())
        assert (await begun).code == 0
        await slave.gone()
        await change(client, minInSyncReplicas=2)
        end = state.store.max_commit_log_offset
        one_way = send_command("orders", one_way=True)
        *begun_all, _ = client.begin_all([*(send_command("orders") for _ in range(50)), one_way])
        answers = await asyncio.gather(*begun_all)
        assert {(one.code, one.remark) for one in answers} == {NOT_ENOUGH}
        await client.round_trip()
        assert state.store.max_commit_log_offset == end
        assert (await client.send_message("orders", properties={"WAIT": "false"})).code == 0
        assert state.store.max_commit_log_offset > end
    told = [one for one in caplog.messages if "IN_SYNC_REPLICAS_NOT_ENOUGH" in one]
    assert told == ["sends that wait for slaves answered=IN_SYNC_REPLICAS_NOT_ENOUGH needed=1"]


async def test_a_slave_that_lacks_as_much_as_the_gap_is_not_in_sync(tmp_path: Path) -> None:
    keys = {"slaveTimeout": 1, "minInSyncReplicas": 1}
    async with serving_master(tmp_path / "store", **keys) as (client, state), followed(state) as (slave,):
        assert (await client.send_message("orders", bytes(300))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        lack = state.store.max_commit_log_offset - slave.end_offset
        await change(client, minInSyncReplicas=2, haMaxGapNotInSync=lack)
        assert await is_refused(client, state, send_command("orders"))
        await change(client, haMaxGapNotInSync=lack + 1)
        assert not await is_refused(client, state, send_command("orders"))


async def test_with_auto_in_sync_replicas_as_many_are_waited_for_as_are_in_sync(tmp_path: Path) -> None:
    async with serving_master(tmp_path / "store", inSyncReplicas=3) as (client, state):
        await change(client, enableAutoInSyncReplicas="true")
        assert (await client.send_message("orders")).code == 0  # its own copy is all there is
        async with followed(state, 2) as slaves:
            (begun,) = client.begin_all([send_command("orders")])
            await client.round_trip()
            slaves[0].report(await slaves[0].receive())
            await slaves[0].is_heard(slaves[0].end_offset)
            await client.round_trip()
            assert not begun.done()
            await slaves[1].gone()  # the number is that of the moment of the send
            await client.round_trip()
            assert not begun.done()
            (later,) = client.begin_all([send_command("orders")])
            await client.round_trip()
            slaves[0].report(await slaves[0].receive())
            assert (await later).code == 0
            assert not begun.done()
            again = await FakeSlave.connect(state)
            again.report(slaves[0].end_offset)
            assert (await begun).code == 0
            await again.gone()
        while state.ha is not None and state.ha.slaves:
            await client.round_trip()
        await change(client, minInSyncReplicas=2)
        assert await is_refused(client, state, send_command("orders"))


async def test_where_no_slave_is_waited_for_a_late_sync_is_what_the_answer_tells(tmp_path: Path) -> None:
    disk = HeldDisk()

    keys = SYNCED | {"syncFlushTimeout": 50}
    async with serving_master(tmp_path / "store", FaultyFiles(disk.judge), **keys) as (client, _):
        await change(client, enableAutoInSyncReplicas="true")
        with disk.held():
            assert (await client.send_message("orders")).code == ResponseCode.FLUSH_DISK_TIMEOUT


async def test_messages_of_the_broker_wait_for_slaves_where_a_client_is_told(tmp_path: Path) -> None:
    message = MessageExtBrokerInner("orders", 0, b"own", {}, 0, 0, 1_700_000_000_000, encode_host("127.0.0.1:1"))

    async with serving_master(tmp_path / "store") as (client, state), followed(state) as (slave,):
        put = asyncio.ensure_future(state.appends.put(message))
        await client.round_trip()
        await state.appends.safe(state.store.max_commit_log_offset)  # as services do
        assert not put.done()
        slave.report(await slave.receive())
        await put
        await change(client, slaveTimeout=30)
        await state.appends.put(message)  # it is stored, whatever slaves do


def test_a_sync_master_without_an_ha_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="brokerRole=SYNC_MASTER needs haListenPort"):
        controller_of(tmp_path / "store", brokerRole="SYNC_MASTER")
