"""How far slaves are, as a master and a slave tell it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.broker import serving_broker, with_topic
from tests.support.fake_slave import FakeSlave
from tests.support.metrics import MEASURED, families, labelled
from tests.support.sockets import free_ports


async def test_a_master_tells_what_each_slave_lacks_and_how_many_are_in_sync(tmp_path: Path) -> None:
    (port,) = free_ports(1)

    async with serving_broker(tmp_path / "store", ha_listen_port=port, **MEASURED) as served:
        client, state = await served.client(), served.controller._state
        await with_topic(client, "orders")
        assert (await client.send_message("orders", b"a")).code == 0
        assert await labelled(served, "reput_ha_slaves_in_sync") == {(): 0}
        slave = await FakeSlave.connect(state)
        slave.report(0)
        end = await slave.receive()
        lags = await labelled(served, "reput_ha_slave_lag_bytes", "slave")
        assert list(lags.values()) == [end]
        slave.report(end)
        await slave.is_heard(end)
        assert await labelled(served, "reput_ha_slave_lag_bytes", "slave") == dict.fromkeys(lags, 0)
        assert await labelled(served, "reput_ha_slaves_in_sync") == {(): 1}
        await slave.gone()
        assert await labelled(served, "reput_ha_slave_lag_bytes", "slave") == {}


async def test_a_broker_without_slaves_tells_nothing_of_them(tmp_path: Path) -> None:
    async with serving_broker(tmp_path / "store", **MEASURED) as served:
        assert [one.name for one in await families(served) if re.match("reput_(ha|follow)_", one.name)] == []
