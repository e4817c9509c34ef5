"""Back-off of groups, as clients are told it."""

from __future__ import annotations

from typing import Any

import pytest

from reput.formats.metadata import SubscriptionGroupConfig
from reput.formats.properties import DELAY_LEVELS_MS
from reput.remoting.grpc.grpc_codes import ClientType
from reput.remoting.grpc.grpc_parts import GrpcResource, Settings, Subscription, to_ms
from reput.service.grpc.client_settings import merged_settings, next_delay_ms

SETTINGS = Settings(ClientType.PUSH_CONSUMER, subscription=Subscription(GrpcResource(name="g")))


def group(**policy: Any) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig("g", group_retry_policy=policy)


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (None, list(DELAY_LEVELS_MS)),
        (group(type="CUSTOMIZED"), list(DELAY_LEVELS_MS)),
        (group(type="CUSTOMIZED", customizedRetryPolicy={"next": [1, 2]}), [1, 2]),
        (group(type="CUSTOMIZED", customizedRetryPolicy={"next": ["x"]}), list(DELAY_LEVELS_MS)),
        (group(type=7, customizedRetryPolicy=[]), list(DELAY_LEVELS_MS)),
    ],
)
def test_steps_of_a_group(config: SubscriptionGroupConfig | None, steps: list[int]) -> None:
    backoff = merged_settings(SETTINGS, config).backoff_policy
    assert backoff is not None
    assert backoff.customized_backoff is not None
    assert backoff.exponential_backoff is None
    assert [to_ms(one) for one in backoff.customized_backoff.next] == steps
    assert next_delay_ms(config, 0) == steps[min(2, len(steps) - 1)]
    assert next_delay_ms(config, 1000) == steps[-1]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, (5000, 7_200_000, 2)),
        ({"exponentialRetryPolicy": {"initial": 10, "max": 50, "multiplier": 3}}, (10, 50, 3)),
        ({"exponentialRetryPolicy": {"initial": "x"}}, (5000, 7_200_000, 2)),
    ],
)
def test_waits_that_grow(policy: dict[str, Any], expected: tuple[int, int, float]) -> None:
    config = group(type="EXPONENTIAL", **policy)
    backoff = merged_settings(SETTINGS, config).backoff_policy
    assert backoff is not None
    assert backoff.exponential_backoff is not None
    assert backoff.customized_backoff is None
    told = backoff.exponential_backoff
    assert (to_ms(told.initial), to_ms(told.max), told.multiplier) == expected
    initial, most, multiplier = expected
    assert [next_delay_ms(config, times) for times in (-1, 0, 1, 10_000)] == [
        initial, initial, min(most, int(initial * multiplier)), most,
    ]  # fmt: skip
