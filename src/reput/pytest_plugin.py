"""pytest plugin: the fixture `reput_broker`, a broker for a test, which needs no Java and no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from reput.broker.embedded import Broker


@pytest.fixture
def reput_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker on free ports of this machine, with a store that goes with the test: `reput_broker.namesrv`.

    Clients of every language may use it. Topics are made by the first message.
    """
    from reput.broker.embedded import Broker  # here: pytest loads plugins at each start, and this takes a second

    keys: dict[str, Any] = {
        "bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "flush_disk_type": "ASYNC_FLUSH",
        "mapped_file_size_commit_log": 64 << 20, "max_hash_slot_num": 10_000, "max_index_num": 40_000,
    }  # fmt: skip
    with Broker.start(tmp_path_factory.mktemp("reput-broker"), **keys) as broker:
        yield broker
