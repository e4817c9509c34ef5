from __future__ import annotations

from collections.abc import Iterator

import pytest

from reput import Broker
from tests.support.wire import orders_broker


@pytest.fixture(scope="package")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """See `orders_broker`; no test changes it."""
    with orders_broker(tmp_path_factory.mktemp("wire")) as broker:
        yield broker
