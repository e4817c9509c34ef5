"""Fail-over at any moment, under load of all kinds: what was answered SEND_OK comes at the new master."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fail_overs import SHORT, check_all_come, fail_over
from tests.support.master_and_slave import Pair, hurry, name_server
from tests.support.shares import sampled


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    hurry(monkeypatch)
    with name_server(tmp_path) as namesrv:
        yield Pair(tmp_path, namesrv, **SHORT)


@sampled(2)
@sampled(4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_nothing_that_the_slave_has_is_lost_at_any_moment(pair: Pair, role: str, seed: int) -> None:
    """A SYNC_MASTER's slave has all that was answered SEND_OK; an ASYNC_MASTER's lacks its lag alone."""
    load = fail_over(pair, seed, role)
    assert all(load.sent.values()), {kind: len(sent) for kind, sent in load.sent.items()}
    assert load.acked
    check_all_come(pair, load)
