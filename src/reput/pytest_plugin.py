"""pytest plugin: the fixture `reput_broker`, a broker for a test, which needs no Java and no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reput.extras import require_store

if TYPE_CHECKING:
    from reput.testing import LocalBroker


@pytest.fixture
def reput_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker on free ports of this machine, with a store that goes with the test: `reput_broker.namesrv`.

    Clients of every language may use it. Topics are made by the first message. What else it can: `reput.testing`.
    """
    require_store("the fixture reput_broker")
    from reput.testing import broker  # here: pytest loads plugins at each start, and this takes a second

    with broker(str(tmp_path_factory.mktemp("reput-broker"))) as one:
        yield one
