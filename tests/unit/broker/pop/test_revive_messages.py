"""Rows of check points and acks are those of messages with these properties behind the hooks of puts."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.broker.appends.inner_message import MessageExtBrokerInner
from reput.broker.clock import BrokerClock
from reput.broker.pop.revive_messages import ReviveMessages
from reput.broker.state import BrokerState
from reput.errors import RemotingCommandError
from reput.formats.pop_messages import (
    Ack,
    CheckPoint,
    CheckPointKey,
    ack_unique_key,
    check_point_unique_key,
    encode_acks,
    encode_batch_ack,
    encode_check_point,
)
from reput.log.store_host import encode_store_host
from reput.store.puts.put_rows import PutRow
from tests.support.broker import serving_broker

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
NOW_MS = 1_795_386_593_472
#: How long after now; what is not later does not wait.
LATER = [1, 1000, 60_000, 0, -5]


def of_message(state: BrokerState, body: bytes, properties: dict[str, str]) -> PutRow:
    host = encode_store_host(state.store.config)
    message = MessageExtBrokerInner(REVIVE, 3, body, properties, 0, 0, NOW_MS, host)
    state.send_path.hooks.handle_schedule_message(message, NOW_MS)
    return message.row()


def revive_messages(state: BrokerState) -> ReviveMessages:
    return ReviveMessages(state.view, state.clock, state.store, state.send_path.hooks, state.appends)


async def test_rows_are_those_of_messages_with_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = CheckPointKey("örders", "g", 0, 17, NOW_MS, "broker-a")
    one, several = Ack(key, (18,)), Ack(key, (17, 19))

    async with serving_broker(tmp_path / "store") as served:
        state = served.controller._state
        revive = revive_messages(state)
        monkeypatch.setattr(BrokerClock, "now_ms", staticmethod(lambda: NOW_MS))
        for later in LATER:
            at = str(NOW_MS + later)
            properties = {"TIMER_DELIVER_MS": at, "UNIQ_KEY": ack_unique_key(key, 18), "TAGS": "ack"}
            assert revive.acks(one, 3, int(at))[0].row == of_message(state, encode_acks(key, [18])[0], properties)
            properties = {"TIMER_DELIVER_MS": at, "UNIQ_KEY": ack_unique_key(key, -1), "TAGS": "bAck"}
            assert revive.batch_ack(several, 3, int(at)).row == of_message(state, encode_batch_ack(several), properties)
            point = CheckPoint(key, later + 1000, (17, 18))
            properties = {"TIMER_DELIVER_MS": at, "UNIQ_KEY": check_point_unique_key(key), "TAGS": "ck"}
            assert revive.check_point(point, 3).row == of_message(state, encode_check_point(point), properties)


@pytest.mark.parametrize(("keys", "later_ms", "remark"), [
    ({}, 4 * 86_400_000, "timer message illegal"),
    ({"timer_wheel_enable": False}, 1000, "timerWheelEnable is false"),
])  # fmt: skip
async def test_what_cannot_wait_for_its_time_is_refused(
    tmp_path: Path, keys: dict[str, object], later_ms: int, remark: str
) -> None:
    async with serving_broker(tmp_path / "store", **keys) as served:
        state = served.controller._state
        key = CheckPointKey("orders", "g", 0, 17, 1, "broker-a")
        revive = revive_messages(state)
        with pytest.raises(RemotingCommandError, match=remark):
            revive.acks(Ack(key, (17,)), 0, state.clock.now_ms() + later_ms)
        assert revive.stats.put == {("g", "orders", "ACK", "UNKNOWN_ERROR"): 1}


@pytest.mark.parametrize("name", ["g\x02TIMER_DEL_UNIQKEY\x01secret+7F0000010A2C4E0E2F2A7C77229B0000", "g\x01"])
async def test_names_of_clients_that_would_add_properties_are_refused(tmp_path: Path, name: str) -> None:
    async with serving_broker(tmp_path / "store") as served:
        revive = revive_messages(served.controller._state)
        for group, broker in ((name, "broker-a"), ("g", name)):
            key = CheckPointKey("orders", group, 0, 17, 1, broker)
            with pytest.raises(RemotingCommandError, match="would add properties"):
                revive.acks(Ack(key, (17,)), 0, 1)
            with pytest.raises(RemotingCommandError, match="would add properties"):
                revive.batch_ack(Ack(key, (17, 18)), 0, 1)
            with pytest.raises(RemotingCommandError, match="would add properties"):
                revive.check_point(CheckPoint(key, 1, (17,)), 0)
