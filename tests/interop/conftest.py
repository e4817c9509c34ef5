"""One Java process a RocketMQ version for the whole run: a start costs a second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rocketmq.apache import VERSIONS, Apache


@pytest.fixture(scope="session", params=VERSIONS)
def apache(request: pytest.FixtureRequest) -> Iterator[Apache]:
    with Apache(request.param) as started:
        yield started
