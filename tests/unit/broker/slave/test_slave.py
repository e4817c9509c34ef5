"""A slave: the log, topics, groups and offsets of its master; it answers readers, and takes nothing of its own."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reput import Broker, ConfigError, Message, MessageStore
from reput.broker.metrics.metric_families import MetricFamilies
from reput.broker.metrics.replication_metrics import replication_metrics
from reput.broker.slave.slave import Slave
from reput.broker.state import BrokerState
from reput.config.properties import parse_properties
from reput.formats.message_id import decode_message_id
from reput.formats.metadata import ConsumerOffsets, SubscriptionGroups, decode_metadata
from reput.formats.timer_checkpoint import TimerCheckpoint, decode_timer_checkpoint
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.pull_headers import PullMessageResponseHeader
from reput.replication.follower import Follower
from reput.store.replica_writer import ReplicaWriter
from reput.transport.blocking_client import BlockingConnection
from reput.transport.tls import ClientTls
from tests.support.asking import ask, call, request, until
from tests.support.async_tests import run
from tests.support.broker import SMALL, batch_command, make_topic, pull_command, send_command
from tests.support.certificates import Files, write_certificate
from tests.support.fake_master import log_of
from tests.support.header_table import every_field
from tests.support.master_and_slave import KEYS, Pair, hurry, until_copied
from tests.support.metrics import MEASURED, page
from tests.support.pop import pop_command
from tests.support.signed import AUTHORIZATION, ROOT_PASSWORD, signed

HOUR_MS = 3_600_000
#: Begins the warning of a master that lacks topics.
NOT_THERE = "messages cannot be read, as their topics are not there"


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def pair(tmp_path: Path, without_pauses: None) -> Iterator[Pair]:
    with Broker.start(tmp_path / "names", **KEYS, broker_name="names") as names:
        yield Pair(tmp_path, names.namesrv)


def send_count(broker: Broker, count: int, topic: str = "orders") -> None:
    for number in range(count):
        assert call(broker.address, send_command(topic, b"%d" % number)).code == 0


def pull(broker: Broker, offset: int, topic: str = "orders", **more: Any) -> tuple[int, PullMessageResponseHeader]:
    answer = call(broker.address, pull_command(topic, offset, **more))
    return answer.code, decode_header(PullMessageResponseHeader, answer.ext_fields)


def max_offset(broker: Broker, topic: str = "orders") -> int:
    answer = call(broker.address, request(RequestCode.GET_MAX_OFFSET, topic=topic, queueId=0))
    return int((answer.ext_fields or {}).get("offset", -1))


def commit(broker: Broker, offset: int, group: str = "g") -> None:
    assert call(broker.address, pull_command("orders", group=group)).code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    fields = {"consumerGroup": group, "topic": "orders", "queueId": 0, "commitOffset": offset}
    ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, **fields)


def committed(broker: Broker, group: str = "g") -> int | None:
    body = ask(broker.address, RequestCode.GET_ALL_CONSUMER_OFFSET).body
    return decode_metadata(ConsumerOffsets, body).offset_table.get(f"orders@{group}", {}).get(0)


def topics(broker: Broker) -> set[str]:
    return broker.in_loop(lambda state: set(state.topics.topic_config_table))


def has_master(broker: Broker) -> bool:
    return broker.in_loop(lambda state: state.slave is not None and state.slave.has_master)


@contextmanager
def both(pair: Pair, **keys: Any) -> Iterator[tuple[Broker, Broker]]:
    with pair.start("master", **keys) as master, pair.slave(**keys) as slave:
        yield master, slave


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_slave_has_the_log_topics_groups_and_offsets_of_its_master(pair: Pair, flush_disk_type: str) -> None:
    with both(pair, flush_disk_type=flush_disk_type) as (master, slave):
        send_count(master, 10)
        until(lambda: max_offset(slave) == 10)
        group = {"groupName": "billing", "retryMaxTimes": 3}
        body = json.dumps(group).encode()
        ask(master.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        commit(master, 7)
        until(lambda: committed(slave) == 7)

        def groups() -> Any:
            answer = ask(slave.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            return decode_metadata(SubscriptionGroups, answer.body).subscription_group_table

        until(lambda: "billing" in groups())
        assert groups()["billing"].retry_max_times == 3
        assert "orders" in topics(slave)
        end = master.in_loop(lambda state: state.store.max_commit_log_offset)
    assert log_of(pair.path("slave"), end) == log_of(pair.path("master"), end)
    with MessageStore.open(pair.path("slave"), read_only=True) as store:
        assert [one.body for one in store.get_message("orders", 0, 0, 32).messages()] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("knows_codes", [True, False])
def test_no_request_changes_the_log_of_a_slave(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, *, knows_codes: bool
) -> None:
    if not knows_codes:  # the list of codes is for the answers: the log itself refuses
        monkeypatch.setattr("reput.broker.services.slave_refusal", lambda *_: None)
    with both(pair) as (master, slave):
        send_count(master, 1)
        half = call(master.address, send_command("orders", properties={"TRAN_MSG": "true", "PGROUP": "pg"}, sysFlag=4))
        commit(master, 0)
        until_copied(master, slave)
        _, at = decode_message_id(str((half.ext_fields or {})["msgId"]))
        fields = every_field(
            topic="orders", originTopic="orders", consumerGroup="g", group="g", producerGroup="pg", properties="",
            msgId=str((half.ext_fields or {})["msgId"]), offset=str(at), commitLogOffset=str(at), commitOrRollback="8",
            delayLevel="1", maxMsgNums="1", invisibleTime="1000", bornTime=str(int(time.time() * 1000)),
        )  # fmt: skip
        end = slave.in_loop(lambda state: state.store.max_commit_log_offset)
        connection = BlockingConnection(slave.address)
        for code in RequestCode:
            for body in (b"", b"x", b"{}"):
                connection.send(RemotingCommand(code, ext_fields=dict(fields), body=body))
        [last] = connection.send(request(RequestCode.GET_BROKER_RUNTIME_INFO))  # not all others are answered
        assert connection.answer(last, 30).code == 0
        send_count(master, 1)
        until(lambda: slave.in_loop(lambda state: state.store.max_commit_log_offset) > end)
        until(lambda: max_offset(slave) == max_offset(master) > 0)
        connection.close()
        end = master.in_loop(lambda state: state.store.max_commit_log_offset)
        until(lambda: slave.in_loop(lambda state: state.store.max_commit_log_offset) == end)
    assert log_of(pair.path("slave"), end) == log_of(pair.path("master"), end)


def test_a_slave_tells_prometheus_whether_it_has_a_master_and_what_it_lacks(pair: Pair) -> None:
    def told(broker: Broker) -> dict[str, float]:
        metrics = broker.in_loop(
            lambda state: list(replication_metrics(MetricFamilies({}), state.view, state.store, state.slave, state.ha))
        )
        return {one.name: one.value for metric in metrics for one in metric.samples if one.labels}

    with pair.slave() as slave:
        assert told(slave) == {"reput_follow_connected": 0}
        with pair.start("master") as master:
            send_count(master, 3)
            until(lambda: max_offset(slave) == 3)
            until(lambda: set(told(master).values()) == {0})  # one slave, which lacks nothing
            until(lambda: told(slave) == {"reput_follow_connected": 1, "reput_follow_lag_bytes": 0,
                                          "reput_follow_lag_seconds": 0})  # fmt: skip
        until(lambda: told(slave)["reput_follow_connected"] == 0)


def test_a_message_wakes_a_pull_that_a_slave_holds(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    with both(pair) as (master, slave):
        send_count(master, 1)
        until(lambda: max_offset(slave) == 1)
        connection = BlockingConnection(slave.address)
        monkeypatch.setattr(Slave, "has_master", False)  # the master seems to be away
        [opaque] = connection.send(pull_command("orders", 1, hold_ms=60_000))
        send_count(master, 1)
        assert connection.answer(opaque, 30).code == 0
        connection.close()


def test_a_slave_without_a_message_sends_the_consumer_to_its_master(pair: Pair) -> None:
    with both(pair) as (master, slave):
        send_count(master, 3)
        until(lambda: max_offset(slave) == 3 and has_master(slave))
        code, header = pull(slave, 0)
        assert (code, header.suggest_which_broker_id, header.next_begin_offset) == (ResponseCode.SUCCESS, 0, 3)
        for offset in (3, 100):  # the end; and what a master that is ahead of its slave may have
            code, header = pull(slave, offset, hold_ms=60_000)
            assert (code, header.suggest_which_broker_id) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 0)
            assert header.next_begin_offset == offset


def test_without_a_master_a_consumer_keeps_its_offset_and_its_progress(pair: Pair) -> None:
    with ExitStack() as stack:
        slave = stack.enter_context(pair.slave())
        with pair.start("master") as master:
            send_count(master, 5)
            commit(master, 2)
            until(lambda: max_offset(slave) == 5 and committed(slave) == 2)
        until(lambda: not has_master(slave))
        code, header = pull(slave, 100)
        assert (code, header.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 100)
        commit(slave, 5)
        with pair.start("master") as master:
            until(lambda: has_master(slave))
            commit(master, 3)  # of a consumer that has not heard of it
            commit(master, 1, group="other")
            until(lambda: committed(slave, "other") == 1)
            assert committed(slave) == 5
            commit(master, 5)
            commit(master, 2, group="other")
            until(lambda: committed(slave, "other") == 2)  # and the 5, which was before it
            commit(master, 4)  # a reset
            until(lambda: committed(slave) == 4)


def test_what_a_slave_refuses(pair: Pair) -> None:
    with both(pair) as (master, slave):
        send_count(master, 1)
        until(lambda: max_offset(slave) == 1)
        end = slave.in_loop(lambda state: state.store.max_commit_log_offset)
        busy, away, error = ResponseCode.SYSTEM_BUSY, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR
        assert call(slave.address, send_command("orders")).code == busy
        assert call(slave.address, send_command("orders", code=RequestCode.SEND_MESSAGE)).code == busy
        assert call(slave.address, batch_command("orders", [b"a", b"b"])).code == busy
        for code, expected in (
            (RequestCode.CONSUMER_SEND_MSG_BACK, busy),
            (RequestCode.POP_MESSAGE, busy),
            (RequestCode.ACK_MESSAGE, busy),
            (RequestCode.END_TRANSACTION, away),
            (RequestCode.RECALL_MESSAGE, away),
            (RequestCode.UPDATE_AND_CREATE_TOPIC, error),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, error),
        ):
            assert call(slave.address, request(code)).code == expected
        assert slave.in_loop(lambda state: state.store.max_commit_log_offset) == end


def test_a_slave_that_is_not_to_be_read_refuses_pulls(pair: Pair) -> None:
    with both(pair, slave_read_enable=False) as (master, slave):
        send_count(master, 1)
        until(lambda: max_offset(slave) == 1)
        assert call(slave.address, pull_command("orders")).code == ResponseCode.SYSTEM_BUSY


@pytest.mark.parametrize(
    ("slave_read_enable", "has_slave", "suggested"), [(True, True, 1), (False, True, 0), (True, False, 0)]
)
def test_a_master_sends_readers_of_old_messages_to_its_slave(
    pair: Pair, slave_read_enable: bool, has_slave: bool, suggested: int
) -> None:
    keys = {"slave_read_enable": slave_read_enable, "access_message_in_memory_max_ratio": 0}
    with pair.start("master", **keys) as master, ExitStack() as stack:
        send_count(master, 3)
        if has_slave:
            slave = stack.enter_context(pair.slave(**keys))
            until(lambda: max_offset(slave) == 3)
            until(lambda: master.in_loop(lambda state: state.ha is not None and state.ha.slaves))
        code, header = pull(master, 0, maxMsgNums=1)
        assert (code, header.suggest_which_broker_id) == (0, suggested)


def test_a_slave_tells_how_it_follows(pair: Pair) -> None:
    with both(pair) as (master, slave):
        send_count(master, 1)
        end = master.in_loop(lambda state: state.store.max_commit_log_offset)

        def status() -> dict[str, Any]:
            return json.loads(ask(slave.address, RequestCode.GET_BROKER_HA_STATUS).body)  # type: ignore[no-any-return]

        until(lambda: status()["haClientRuntimeInfo"]["maxOffset"] == end)  # told after the bytes are in the log
        client = status()["haClientRuntimeInfo"]
        assert status()["master"] is False
        assert client["masterAddr"] == slave.in_loop(lambda state: state.slave and state.slave.master_address)
        assert client["lastReadTimestamp"] > 0
        [known] = json.loads(ask(master.address, RequestCode.GET_BROKER_HA_STATUS).body)["haConnectionInfo"]
        assert known["inSync"]


@pytest.mark.parametrize("has_file", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_first_message_of_all_waits_for_its_slave(pair: Pair, is_first: bool, has_file: bool) -> None:
    """An empty master that takes nothing without replicas in sync, and an empty slave: one of them has to begin.

    A power cut before the first sync leaves a slave with a file, and no byte in it.
    """
    if has_file:
        (file := pair.path("slave") / "commitlog" / f"{0:020}").parent.mkdir(parents=True)
        file.write_bytes(bytes(1 << 20))
    keys = {"min_in_sync_replicas": 2, "in_sync_replicas": 2}
    with ExitStack() as stack:
        slave = stack.enter_context(pair.slave()) if is_first else None
        master = stack.enter_context(pair.start("master", "SYNC_MASTER", **keys))
        slave = slave or stack.enter_context(pair.slave())

        def is_in_sync() -> bool:
            status = json.loads(ask(master.address, RequestCode.GET_BROKER_HA_STATUS).body)
            return any(one["inSync"] for one in status["haConnectionInfo"])

        until(is_in_sync)
        send_count(master, 3)
        until(lambda: max_offset(slave) == 3)
        assert slave.in_loop(lambda state: state.slave and state.slave.copies_nothing) is None
        end = master.in_loop(lambda state: state.store.max_commit_log_offset)
    assert log_of(pair.path("slave"), end) == log_of(pair.path("master"), end)


def test_a_slave_of_another_log_stops_with_an_error_and_appends_nothing(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    with MessageStore.open(pair.path("slave"), **SMALL) as store:
        for number in range(50):
            store.put_message(Message("others", b"%d" % number))
        end = store.max_commit_log_offset
    with caplog.at_level(logging.ERROR, "reput.broker"), both(pair) as (master, slave):
        send_count(master, 1)
        until(lambda: "the slave copies nothing" in caplog.text)
        assert "the master has lost its last records, or is another one" in caplog.text
        assert slave.in_loop(lambda state: state.store.max_commit_log_offset) == end


@pytest.mark.parametrize("address", ["nobody", "http://127.0.0.1:10912", "127.0.0.1:0"])
def test_an_address_that_is_none_from_a_name_server_ends_no_slave(
    pair: Pair, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "reput.broker"), both(pair) as (master, slave):

        def is_refused() -> bool:
            slave.in_loop(lambda state: state.slave is not None and state.slave.master_is(master.address, address))
            return "expected HOST:PORT" in caplog.text

        until(is_refused)  # the next registration has the right address, maybe before the wrong one is tried
        send_count(master, 3)
        until(lambda: max_offset(slave) == 3)


def config(broker: Broker) -> dict[str, str]:
    return parse_properties(ask(broker.address, RequestCode.GET_BROKER_CONFIG).body.decode(), "26")


def copies_nothing(broker: Broker) -> tuple[tuple[int, str], float, str]:
    """What `/ready`, the metric and the runtime info say of it."""
    address = broker._controller.metrics
    [value] = [
        sample.value
        for family in text_string_to_metric_families(run(page(address, "/metrics"))[1])
        for sample in family.samples
        if sample.name == "reput_slave_copies_nothing"
    ]
    table = json.loads(ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    return run(page(address, "/ready")), value, table["slaveCopiesNothing"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_slave_without_a_log_gets_files_of_its_masters_size_whoever_starts_first(pair: Pair, is_first: bool) -> None:
    with ExitStack() as stack:
        slave = stack.enter_context(pair.slave(mapped_file_size_commit_log=None)) if is_first else None
        master = stack.enter_context(pair.start("master"))
        send_count(master, 3)
        slave = slave or stack.enter_context(pair.slave(mapped_file_size_commit_log=None))
        until(lambda: max_offset(slave) == 3)
        assert pull(slave, 0)[0] == 0
        assert config(slave)["mappedFileSizeCommitLog"] == config(master)["mappedFileSizeCommitLog"]
        change = b"mappedFileSizeCommitLog=1073741824"  # the default
        refused = call(slave.address, request(RequestCode.UPDATE_BROKER_CONFIG, change))
        assert "the store's files are of mappedFileSizeCommitLog=1048576" in str(refused.remark)
        end = master.in_loop(lambda state: state.store.max_commit_log_offset)
    assert log_of(pair.path("slave"), end) == log_of(pair.path("master"), end)
    assert {file.stat().st_size for file in (pair.path("slave") / "commitlog").iterdir()} == {1 << 20}
    with pair.start("slave", mapped_file_size_commit_log=None) as promoted:
        send_count(promoted, 1)
        assert pull(promoted, 3)[0] == 0


def test_a_slave_with_files_of_another_size_copies_nothing_and_says_so_everywhere(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    with pair.start("master") as master, pair.slave(mapped_file_size_commit_log=1 << 21, **MEASURED) as slave:
        send_count(master, 1)
        until(lambda: copies_nothing(slave)[1] == 1)
        (status, text), _, told = copies_nothing(slave)
        assert (status, text) == (503, f"{told}\n")
        assert told.startswith(
            f"copies nothing from {master.address}: {pair.path('slave')}: log files of 2097152 bytes"
        )
        assert "has log files of 1048576" in told
        assert "the slave copies nothing" in caplog.text
        assert not [*(pair.path("slave") / "commitlog").iterdir()]


def test_a_slave_whose_master_is_away_for_a_while_copies_nothing_until_it_is_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.broker.slave.copying._AWAY_S", 0.0)
    copies = ((200, "the broker copies and gives messages, ASYNC_FLUSH\n"), 0, "")
    with pair.slave(**MEASURED) as slave:
        until(lambda: "no name server knows a master of broker-a" in copies_nothing(slave)[2])
        with pair.start("master") as master:
            until(lambda: copies_nothing(slave) == copies)
            send_count(master, 1)
            until(lambda: max_offset(slave) == 1)
            assert copies_nothing(slave) == copies
        until(lambda: copies_nothing(slave)[0][0] == 503)
        assert copies_nothing(slave)[2].startswith(f"copies nothing from {master.address}: 127.0.0.1:")
        with pair.start("master"):
            until(lambda: copies_nothing(slave) == copies)


def test_a_bug_does_not_end_a_slave_that_follows(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    follow = Follower.run

    def broken_once(follower: Follower, stop: threading.Event) -> None:
        monkeypatch.setattr(Follower, "run", follow)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Follower, "run", broken_once)
    with both(pair) as (master, slave):
        send_count(master, 3)
        until(lambda: max_offset(slave) == 3)
    [told] = [one for one in caplog.records if "the slave's copying failed" in one.getMessage()]
    assert told.exc_info is not None
    assert told.exc_info[0] is ZeroDivisionError


def test_a_slave_becomes_the_master_and_the_other_follows(pair: Pair) -> None:
    with both(pair) as (master, slave):
        send_count(master, 20)
        commit(master, 12)
        until(lambda: max_offset(slave) == 20 and committed(slave) == 12)
    with pair.start("slave") as promoted:
        assert (max_offset(promoted), committed(promoted)) == (20, 12)
        send_count(promoted, 5)
        assert max_offset(promoted) == 25
        with pair.slave("master") as old:
            until(lambda: max_offset(old) == 25)
            end = promoted.in_loop(lambda state: state.store.max_commit_log_offset)
    assert log_of(pair.path("slave"), end) == log_of(pair.path("master"), end)


def test_a_message_that_a_slave_has_acknowledged_can_be_read_after_a_fail_over(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reput.replication.follower._TOPICS_S", 3600.0)
    with pair.start("master", "SYNC_MASTER") as master, pair.slave() as slave:
        call(master.address, send_command("orders"))  # nobody asks for an empty log, so no slave is there yet
        until(lambda: max_offset(slave) == 1)
        send_count(master, 1, "refunds")
        assert topics(slave) >= {"orders", "refunds"}
    with pair.start("slave") as promoted:
        assert [pull(promoted, 0, topic)[0] for topic in ("orders", "refunds")] == [0, 0]
    assert NOT_THERE not in caplog.text


def test_a_promoted_slave_names_the_topics_that_were_lost_with_the_master(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    path, keys = pair.path("slave"), {"mapped_file_size_commit_log": 1 << 16, "enable_lmq": True}
    with MessageStore.open(path, **SMALL | keys, enable_multi_dispatch=True) as store:
        store.put_message(Message("expired", bytes(40_000)))
        store.put_message(Message("refunds", bytes(40_000), properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
        store.wait_dispatched()
        assert {queue.topic for queue in store.queues()} == {"expired", "refunds", "%LMQ%a"}
    (path / "commitlog" / f"{0:020d}").unlink()
    with pair.slave(**keys):
        assert NOT_THERE not in caplog.text
    with pair.start("slave", **keys) as promoted:
        assert f"{NOT_THERE}; `reput admin create-topic` makes a topic again count=1 topics=refunds" in caplog.text
        assert call(promoted.address, pull_command("refunds")).code == ResponseCode.TOPIC_NOT_EXIST
        make_topic(promoted.address, "refunds", 1)
        assert call(promoted.address, pull_command("refunds")).code == ResponseCode.SUCCESS


def test_an_offset_is_copied_up_to_the_end_of_the_queue(pair: Pair) -> None:
    with both(pair) as (master, slave):
        send_count(master, 4)
        commit(master, 1000)  # of messages that the slave does not have
        until(lambda: committed(slave) == 4)
        send_count(master, 1)
        until(lambda: committed(slave) == 5)


def test_slaves_follow_slaves(pair: Pair) -> None:
    with both(pair) as (master, slave):
        ha = slave.in_loop(lambda state: f"127.0.0.1:{state.view.config.ha_listen_port}")
        with pair.slave("chained", 2, ha_master_address=ha) as chained:
            send_count(master, 3)
            until(lambda: max_offset(chained) == 3)
            assert len(slave.in_loop(lambda state: state.ha.slaves if state.ha else [])) == 1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"broker_id": 0, "namesrv_addr": "127.0.0.1:1"}, "brokerRole=SLAVE needs a brokerId of 1 or more"),
        ({"broker_id": 1}, "brokerRole=SLAVE needs namesrvAddr"),
    ],
)
def test_a_slave_that_cannot_be_one_does_not_start(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Broker.start(tmp_path / "slave", **KEYS, broker_role="SLAVE", **keys)
    assert not (tmp_path / "slave").exists()


class Guarded:
    """A pair whose brokers speak nothing but TLS and check requests, and a super user of both."""

    def __init__(self, folder: Path, namesrv: str, files: Files, access: dict[str, Any], user: tuple[str, str]) -> None:
        self.pair = Pair(folder, namesrv, **of_tls(files), tls_server_mode="enforcing", **access)
        self._tls, self.user = ClientTls(trust_cert_path=files.trust), user

    def slave(self, password: str) -> Broker:
        return self.pair.slave(inner_client_authentication_credentials=_credentials(self.user[0], password))

    def call(self, broker: Broker, command: RemotingCommand) -> RemotingCommand:
        answer = call(broker.address, signed(command, *self.user), self._tls)
        assert answer.code == 0, answer
        return answer


def of_tls(files: Files) -> dict[str, Any]:
    return {
        "tls_server_cert_path": files.cert, "tls_server_key_path": files.key,
        "tls_enable": True, "tls_client_trust_cert_path": files.trust,
    }  # fmt: skip


def _credentials(name: str, password: str) -> str:
    return json.dumps({"accessKey": name, "secretKey": password})


@pytest.fixture(params=["users", "plain_acl.yml"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path, without_pauses: None) -> Iterator[Guarded]:
    files = write_certificate(tmp_path / "files")
    access, user = dict(AUTHORIZATION), "root"
    if request.param == "plain_acl.yml":
        user = "replicas"
        account = {"accessKey": user, "secretKey": ROOT_PASSWORD, "admin": True}
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf/plain_acl.yml").write_text(json.dumps({"accounts": [account]}))
        access = {"acl_enable": True, "rocketmq_home": str(tmp_path)}
    with Broker.start(tmp_path / "names", **KEYS, broker_name="names", **of_tls(files)) as names:
        yield Guarded(tmp_path, names.namesrv, files, access, (user, ROOT_PASSWORD))


def test_a_slave_signs_what_it_asks_over_tls(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with guarded.pair.start("master") as master, guarded.slave(ROOT_PASSWORD) as slave:
        for _ in range(3):
            guarded.call(master, send_command("orders"))
        guarded.call(master, request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"billing"}'))
        fields = {"consumerGroup": "billing", "topic": "orders", "queueId": 0, "commitOffset": 2}
        guarded.call(master, request(RequestCode.UPDATE_CONSUMER_OFFSET, **fields))
        until(lambda: copied(slave) == (True, True, 2))
        assert guarded.call(slave, request(RequestCode.GET_MAX_OFFSET, topic="orders", queueId=0)).ext_fields == {
            "offset": "3"
        }
    assert "cannot be copied" not in caplog.text
    assert "not copied" not in caplog.text


def copied(slave: Broker) -> tuple[bool, bool, int]:
    """Whether a slave has the topic orders and the group billing, and the group's offset."""
    return slave.in_loop(
        lambda state: (
            "orders" in state.topics.topic_config_table,
            "billing" in state.groups.subscription_group_table,
            state.offsets.query_offset("billing", "orders", 0),
        )
    )


def test_a_slave_with_a_wrong_secret_says_so_and_follows_the_log(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    def end_of(broker: Broker) -> int:
        return broker.in_loop(lambda state: state.store.max_commit_log_offset)

    with guarded.pair.start("master") as master:
        guarded.call(master, send_command("orders", b"before"))
        with guarded.slave("wrong-secret-of-tests") as slave:
            until(lambda: end_of(slave) == end_of(master))
            guarded.call(master, send_command("orders", b"after"))
            until(lambda: end_of(slave) == end_of(master))
            until(lambda: "groups and offsets of the master cannot be copied" in caplog.text)
            assert not copied(slave)[0]
            end = end_of(master)
    assert log_of(guarded.pair.path("slave"), end) == log_of(guarded.pair.path("master"), end)
    [told] = [one for one in caplog.messages if "cannot be copied" in one]
    assert "heck signature failed" in told
    assert told.endswith("key=innerClientAuthenticationCredentials")
    assert "its log is followed, but its topics are not copied" in caplog.text
    assert "secret-of-tests" not in caplog.text


def test_messages_with_a_time_are_delivered_once_over_a_fail_over(pair: Pair) -> None:
    def send_later(broker: Broker, body: bytes, due_ms: int) -> None:
        command = send_command("orders", body, properties={"TIMER_DELIVER_MS": str(due_ms)})
        assert call(broker.address, command).code == 0

    with both(pair) as (master, slave):
        now_ms = int(time.time() * 1000)
        send_later(master, b"soon", now_ms + 1500)
        send_later(master, b"later", now_ms + 3_600_000)
        until(lambda: max_offset(slave) == 1)
        until(lambda: timer_check(pair).master_timer_queue_offset == 2)
        until(lambda: timer_check(pair).last_read_time_ms > now_ms + 1500)
    with pair.start("slave") as promoted:
        until(lambda: promoted.in_loop(lambda state: state.timers is not None and state.timers.queue_offset == 2))
        assert max_offset(promoted) == 1
        promoted.in_loop(lambda state: state.clock.put_forward(3_600_000))
        until(lambda: max_offset(promoted) == 2)


@pytest.mark.parametrize("kind", ["level", "timer", "pop", "group"])
def test_what_a_master_has_done_counts_at_a_slave_that_has_its_log_up_to_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    is_held, append = threading.Event(), ReplicaWriter.append
    monkeypatch.setattr(ReplicaWriter, "append", lambda self, data: 0 if is_held.is_set() else append(self, data))
    waits = {"level": {"DELAY": "3"}, "timer": {"TIMER_DELAY_SEC": "60"}}.get(kind)
    with both(pair) as (master, slave):
        send_count(master, 1)
        if waits is not None:
            assert call(master.address, send_command("orders", properties=waits)).code == 0
        until(lambda: log_end(slave) == log_end(master) and max_offset(slave) == 1)
        is_held.set()  # from now on the slave's log stands still
        if waits is not None:
            master.in_loop(lambda state: state.clock.put_forward(HOUR_MS))
            until(lambda: max_offset(master) == 2)
            until(lambda: kind == "level" or master.in_loop(last_read_ms) > time.time() * 1000 + HOUR_MS - 60_000)
        elif kind == "pop":
            assert call(master.address, pop_command("orders")).code == 0  # and nobody acknowledges
            until(lambda: committed(master) == 1)
        else:
            send_count(master, 1)
            commit(master, 1)
        for name in ("first", "second"):  # between the two is a whole copy
            ask(master.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"%s"}' % name.encode())
            until(lambda name=name: name in slave.in_loop(lambda state: state.groups.subscription_group_table))  # type: ignore[misc]
        if kind == "group":
            assert committed(slave) is None
            is_held.clear()
            until(lambda: committed(slave) == 1 and max_offset(slave) == 2)
            return
    with pair.start("slave") as promoted:
        if kind == "pop":
            assert call(promoted.address, pop_command("orders")).code == 0
        else:
            promoted.in_loop(lambda state: state.clock.put_forward(HOUR_MS))
            until(lambda: max_offset(promoted) == 2)


def last_read_ms(state: BrokerState) -> int:
    assert state.timers is not None
    return state.timers.checkpoint.last_read_time_ms


def log_end(broker: Broker) -> int:
    return broker.in_loop(lambda state: state.store.max_commit_log_offset)


def timer_check(pair: Pair) -> TimerCheckpoint:
    path = pair.path("slave") / "config/timercheck"
    return decode_timer_checkpoint(path.read_bytes()) if path.exists() else TimerCheckpoint()
