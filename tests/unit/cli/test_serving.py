"""What commands that serve share."""

from __future__ import annotations

import gc
import os
import signal

import pytest

from reput.cli.serving import Serving, serve


def test_what_a_server_has_made_until_it_is_ready_is_no_work_for_the_garbage_collector(
    capsys: pytest.CaptureFixture[str],
) -> None:
    frozen = []

    async def start() -> Serving:
        gc.unfreeze()
        os.kill(os.getpid(), signal.SIGTERM)
        return Serving({"broker": "127.0.0.1:1"}, stop)

    async def stop() -> None:
        frozen.append(gc.get_freeze_count())

    assert serve(start, log_level="error", as_json=False) == 0
    assert frozen[0] > 10_000
    assert capsys.readouterr().out == "ready broker=127.0.0.1:1\n"
