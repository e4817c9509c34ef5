"""Files of the broker's, written beside the loop."""

from __future__ import annotations

from pathlib import Path

from tests.support.broker import serving_broker
from tests.support.sockets import run


def test_no_change_is_left_out_however_many_come(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving_broker(tmp_path / "store") as served:
            state = served.controller._state
            for number in range(20):
                state.groups.find_subscription_group_config(f"g{number}", state.now_ms())
                state.config_files.persist_soon(state.groups)
                for _ in range(number):  # the write under way comes to its end, or not
                    await (await served.client()).round_trip()
            while state.config_files._soon:
                await next(iter(state.config_files._soon.values()))
            assert state.groups.snapshot() is None

    run(scenario())
