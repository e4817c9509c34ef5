"""The SQL92 filter of a request for messages, or why there is none (`PullMessageProcessor`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reput.broker.clock import BrokerClock
from reput.broker.disk_work import DiskPools
from reput.broker.view import BrokerView
from reput.config.broker import BrokerConfig
from reput.extras import require
from reput.files import FileLayer
from reput.filter.bloom_filter import BloomFilter
from reput.filter.compiled_expressions import compile_all, take_short
from reput.filter.expression_error import ExpressionError
from reput.filter.expression_filter import ExpressionFilter
from reput.remoting.codes import ResponseCode
from reput.remoting.subscription_data import SQL92, SubscriptionData
from reput.service.consumer_filter_manager import ConsumerFilterManager
from reput.transport.channel import Channel


class Refusal(NamedTuple):
    """The code and the remark of an answer that refuses a request."""

    code: int
    remark: str


def require_parser() -> None:
    """Make the parser of expressions, which takes 0.1 s; raises ConfigError if lark or Arrow is not installed."""
    require("lark", "enablePropertyFilter=true")
    require("pyarrow", "enablePropertyFilter=true")
    compile_all(["TRUE"])


def consumer_filters(root: str, config: BrokerConfig, files: FileLayer) -> ConsumerFilterManager:
    """The filters of groups, from their file; a recovery of the store may need them."""
    return ConsumerFilterManager(
        root,
        files,
        bloom_filter=BloomFilter(config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter),
        is_enabled=config.enable_property_filter,
        now_ms=BrokerClock.machine_ms(),
        filter_data_clean_time_span=config.filter_data_clean_time_span,
    )


def unsupported(expression_type: str) -> str:
    """RocketMQ's remark if `enablePropertyFilter` is off."""
    return f"The broker does not support consumer to filter message by {expression_type}"


async def compile_beside(view: BrokerView, pools: DiskPools, connection: Channel, texts: Sequence[str]) -> None:
    """Compile what may take long beside the loop; `filter_of` and the like then find it."""
    if view.config.enable_property_filter and not take_short(texts):
        await pools.reads.run_for(connection, compile_all, texts)


def filter_of(view: BrokerView, subscription: SubscriptionData) -> ExpressionFilter | Refusal:
    """The filter of a request that brings its expression, of another type than TAG."""
    if not view.config.enable_property_filter:
        return Refusal(ResponseCode.SYSTEM_ERROR, unsupported(subscription.expression_type))
    try:
        if subscription.expression_type == SQL92:
            return ExpressionFilter(subscription.sub_string)
    except ExpressionError:
        pass
    return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")


def registered_filter(
    view: BrokerView, filters: ConsumerFilterManager, group: str, subscription: SubscriptionData, sub_version: int
) -> ExpressionFilter | Refusal:
    """The filter that a group's heartbeats have registered, of another type than TAG.

    sub_version: of the request; an older filter does not do.
    """
    if not view.config.enable_property_filter:
        return Refusal(ResponseCode.SYSTEM_ERROR, unsupported(subscription.expression_type))
    data = filters.filter_data(subscription.topic, group)
    found = None if data is None else filters.message_filter(data)
    if data is None or found is None:
        remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
        return Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
    if data.client_version < sub_version:
        return Refusal(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
    return found
