"""Keys of the configuration: what was recorded of RocketMQ's versions is what their classes have."""

from __future__ import annotations

import pytest

from tests.support.rocketmq.config_keys import VERSIONS, keys_of_jars, recorded_keys

pytestmark = pytest.mark.java


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_are_the_keys_types_and_defaults_of_the_classes(version: str) -> None:
    assert keys_of_jars(version) == recorded_keys()[version]
