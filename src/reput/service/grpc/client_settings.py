"""Settings of gRPC clients, and the server's in them (`GrpcClientSettingsManager`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reput.formats.metadata import SubscriptionGroupConfig
from reput.formats.properties import DELAY_LEVELS_MS
from reput.remoting.grpc.grpc_codes import ClientType, Code
from reput.remoting.grpc.grpc_parts import (
    CustomizedBackoff,
    ExponentialBackoff,
    Metric,
    RetryPolicy,
    Settings,
    duration,
)
from reput.service.grpc.message_checks import MAX_MESSAGE_SIZE
from reput.service.grpc.statuses import RefusedCallError

#: Keys of Apache's proxy, by their defaults: grpcClientProducerMaxAttempts, grpcClientProducerBackoffInitialMillis,
#: ...MaxMillis, ...Multiplier; grpcClientConsumerLongPollingBatchSize, ...MaxLongPollingTimeoutMillis.
_PRODUCER_MAX_ATTEMPTS, _PRODUCER_BACKOFF = 3, (10, 1000, 2.0)
LONG_POLLING_BATCH_SIZE, MAX_LONG_POLLING_MS = 32, 20_000
_RETRY_MAX_TIMES = 16
#: Of a group with the type EXPONENTIAL (`ExponentialRetryPolicy`).
_EXPONENTIAL_MS, _EXPONENTIAL_MULTIPLIER = (5000, 7_200_000), 2
#: CUSTOMIZED begins with the third step (`CustomizedRetryPolicy.nextDelayDuration`).
_FIRST_STEP = 2
_MOST_DOUBLINGS = 32
_CONSUMERS = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)


def check_settings(settings: Settings) -> None:
    """Raise RefusedCallError for settings of neither a producer nor a consumer that there is."""
    if settings.subscription is None:
        if settings.publishing is None:
            text = "there is no publishing or subscription data in settings"
            raise RefusedCallError(Code.BAD_REQUEST, text)
    elif settings.client_type not in _CONSUMERS:
        kind = settings.client_type or 0
        name = ClientType(kind).name if kind in list(ClientType) else str(kind)
        raise RefusedCallError(Code.BAD_REQUEST, f"Client type is not consumer, type: {name}")


def max_attempts(config: SubscriptionGroupConfig | None) -> int:
    """Number of times a message is handed out to a group before it is a dead letter; None: the group is not there."""
    return (_RETRY_MAX_TIMES if config is None else config.retry_max_times) + 1


def is_in_order(config: SubscriptionGroupConfig | None) -> bool:
    """Whether a group gets messages in order."""
    return config is not None and config.consume_message_orderly


def merged_settings(settings: Settings, config: SubscriptionGroupConfig | None) -> Settings:
    """Settings of a client with the server's in them; config: of its group, None if that is not there."""
    if settings.publishing is not None:
        initial, most, multiplier = _PRODUCER_BACKOFF
        backoff = ExponentialBackoff(duration(int(initial)), duration(int(most)), multiplier)
        return replace(
            settings,
            metric=Metric(),
            backoff_policy=RetryPolicy(_PRODUCER_MAX_ATTEMPTS, exponential_backoff=backoff),
            publishing=replace(settings.publishing, validate_message_type=True, max_body_size=MAX_MESSAGE_SIZE),
        )
    assert settings.subscription is not None
    subscription = replace(
        settings.subscription,
        fifo=is_in_order(config),
        receive_batch_size=LONG_POLLING_BATCH_SIZE,
        long_polling_timeout=duration(MAX_LONG_POLLING_MS),
    )
    return replace(settings, metric=Metric(), backoff_policy=_backoff_policy(config), subscription=subscription)


def _backoff_policy(config: SubscriptionGroupConfig | None) -> RetryPolicy:
    attempts, exponential = max_attempts(config), _exponential(config)
    if exponential is None:
        steps = [duration(ms) for ms in _steps_ms(config)]
        return RetryPolicy(attempts, customized_backoff=CustomizedBackoff(steps))
    initial, most, multiplier = exponential
    backoff = ExponentialBackoff(duration(initial), duration(most), multiplier)
    return RetryPolicy(attempts, exponential_backoff=backoff)


def next_delay_ms(config: SubscriptionGroupConfig | None, reconsume_times: int) -> int:
    """Milliseconds until a group gets a message again that was handed out so often before."""
    exponential, times = _exponential(config), max(reconsume_times, 0)
    if exponential is None:
        steps = _steps_ms(config)
        return steps[min(times + _FIRST_STEP, len(steps) - 1)]
    initial, most, multiplier = exponential
    return int(min(most, initial * multiplier ** min(times, _MOST_DOUBLINGS)))


def _exponential(config: SubscriptionGroupConfig | None) -> tuple[int, int, float] | None:
    policy = {} if config is None else config.group_retry_policy
    if policy.get("type") != "EXPONENTIAL":
        return None
    given = policy.get("exponentialRetryPolicy") or {}
    initial, most = _EXPONENTIAL_MS
    return (
        int(_number(given, "initial", initial)), int(_number(given, "max", most)),
        _number(given, "multiplier", _EXPONENTIAL_MULTIPLIER),
    )  # fmt: skip


def _number(given: Any, name: str, default: float) -> float:
    value = given.get(name, default) if isinstance(given, dict) else default
    return value if isinstance(value, int | float) else default


def _steps_ms(config: SubscriptionGroupConfig | None) -> list[int]:
    policy = {} if config is None else config.group_retry_policy
    given = policy.get("customizedRetryPolicy")
    steps = given.get("next") if isinstance(given, dict) else None
    found = [step for step in steps if isinstance(step, int)] if isinstance(steps, list) else []
    return found or list(DELAY_LEVELS_MS)
