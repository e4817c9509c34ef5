"""RocketMQ's Java client on two brokers, of which one dies and comes back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import make_topic
from tests.support.rocketmq.apache import Apache
from tests.support.several_brokers import SeveralBrokers

pytestmark = [pytest.mark.java, pytest.mark.slow]

#: Each takes 50 ms.
_LOOKS = 2400


def until(apache: Apache, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the clients have seen, once something holds."""
    for _ in range(_LOOKS):
        seen: dict[str, Any] = apache.run("failover-look")
        if holds(seen):
            return seen
    raise AssertionError(seen)


def more(apache: Apache, broker: str, count: int = 100) -> dict[str, Any]:
    """What the clients have seen, once a broker has acknowledged so many messages more."""
    before = apache.run("failover-look")["brokers"].get(broker, 0)
    return until(apache, lambda seen: seen["brokers"].get(broker, 0) >= before + count)


# A client learns of both ends by a connection that is closed: one version sees both of them.
@pytest.mark.parametrize(
    ("apache", "end"),
    [("4.9.7", signal.SIGKILL), ("5.3.3", signal.SIGKILL), ("5.3.3", signal.SIGTERM), ("5.5.0", signal.SIGKILL)],
    indirect=["apache"],
    ids=["4.9.7-killed", "5.3.3-killed", "5.3.3-stopped", "5.5.0-killed"],
)
def test_nothing_acknowledged_is_lost_while_one_of_two_brokers_is_away(
    apache: Apache, tmp_path: Path, end: signal.Signals
) -> None:
    brokers = SeveralBrokers(tmp_path / "stores")
    with brokers.started("namesrv"), brokers.started("broker-a"):
        with brokers.started("broker-b") as leaving:
            for name in ("broker-a", "broker-b"):
                make_topic(brokers.address(name), "orders", 4)
            apache.run("failover-start", namesrv=brokers.address("namesrv"), topic="orders")
            more(apache, "broker-a")
            more(apache, "broker-b")
            until(apache, lambda seen: seen["consumed"] > 0)
            leaving.send_signal(end)
            leaving.wait(60)
        away = more(apache, "broker-a", 300)  # the clients go on with the other broker
        with brokers.started("broker-b"):
            more(apache, "broker-b")  # and come back
            assert apache.run("failover-look")["brokers"]["broker-b"] > away["brokers"]["broker-b"]
            assert apache.run("failover-stop") == []
