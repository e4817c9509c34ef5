"""Which loop a server runs in."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop

from reput.transport.loop import run


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_uvloop_is_used_where_it_is_installed() -> None:
    assert isinstance(run(running_loop()), uvloop.Loop)


def test_without_uvloop_it_is_asyncios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert not isinstance(run(running_loop()), uvloop.Loop)
