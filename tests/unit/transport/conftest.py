"""Every test of this folder runs in asyncio's loop and in uvloop's."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.support import async_tests


@pytest.fixture(autouse=True, params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_of_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_tests, "new_event_loop", request.param)
