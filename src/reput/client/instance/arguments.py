"""Arguments of clients: each is checked when it is given, by RocketMQ's rules."""

from __future__ import annotations

import logging
from collections.abc import Collection
from importlib import import_module
from typing import Any

from reput.client.instance.name_servers import name_server_addresses
from reput.client.instance.namespaces import Namespace
from reput.client.instance.subscriptions import build_subscriptions, consume_from_where
from reput.config.arguments import (
    MOST_INT,
    MOST_LONG,
    Check,
    check_flag,
    check_function,
    check_path,
    check_seconds,
    check_text,
    check_whole,
    is_whole,
    meant_as_several,
    optional,
    refusal,
    whole,
)
from reput.errors import ConfigError
from reput.events import Event
from reput.formats.message import MAX_TOPIC_SIZE
from reput.formats.properties import check_text_of_property
from reput.remoting.queue_tables import QueueKey
from reput.remoting.topic_validator import check_group, validate_topic

logger = logging.getLogger("reput.client")


def check_arguments(**given: object) -> None:
    """Raises ConfigError for an argument that is none, with its name, what was given and what is allowed.

    Of `topics` MessageIllegalError and SubscriptionError, too, as `build_subscriptions`.
    """
    for name, value in given.items():
        _CHECKS[name](name, value)


def check_sharding_key(value: str) -> None:
    """Raises ConfigError for what is no text, and MessageIllegalError for one that no message can keep."""
    check_text("sharding_key", value)
    check_text_of_property("sharding_key", value)


def check_topic_name(value: object) -> None:
    """Raises ConfigError for what is no name of a topic."""
    if not isinstance(value, str) or validate_topic(value) is not None:
        raise refusal("topic", value, f"a text of 1 to {MAX_TOPIC_SIZE} letters a-z A-Z, digits, %, |, _ and -")


def check_queue(value: Any) -> None:
    """Raises ConfigError for what is no queue, and for one whose parts are none."""
    if not isinstance(value, QueueKey):
        raise refusal("queue", value, "a reput.client.MessageQueue, as of `queues(topic)`")
    names: tuple[Any, ...] = value[:2]
    are_texts = all(isinstance(name, str) and name for name in names)
    if not are_texts or not is_whole(value.queue_id, 0, MOST_INT):
        raise refusal("queue", value, "a topic, a broker's name and the number of a queue, as of `queues(topic)`")


def check_queue_of(value: object, topic: str, namespace: Namespace) -> None:
    """Raises ConfigError for what is no queue, and for a queue of another topic than this one of the brokers."""
    check_queue(value)
    assert isinstance(value, QueueKey)
    if namespace.wrap(value.topic) != topic:
        raise refusal("queue", value, f"a queue of the message's topic {namespace.bare(topic)}")


def check_offset(value: object) -> None:
    """Raises ConfigError for what is no offset."""
    check_whole("offset", value, 0, MOST_LONG)


def _instance(module: str, kind: str) -> Check:
    """A check for None or an object of a class, imported if one is given: an import of the client is quick."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, getattr(import_module(module), kind)):
            raise refusal(name, value, f"None or an object of reput.client.{kind}")

    return optional(check)


def _namesrv(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise refusal(name, value, 'a text "HOST:PORT", or several separated by `;`')
    try:
        name_server_addresses(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _group(_: str, value: Any) -> None:
    check_group(value)


def _namespace(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise refusal(name, value, "a text")
    Namespace(value)


def _topics(_: str, value: Any) -> None:
    for topic, subscription in build_subscriptions(value, 0).items():
        if tag := meant_as_several(subscription.tags):
            what = "a subscription asks for one tag of this name: || alone separates tags"
            logger.warning(Event(what, topic=topic, tag=tag))


def _topic_names(_: str, value: Any) -> None:
    if isinstance(value, str | bytes) or not isinstance(value, Collection):
        raise refusal("topics", value, 'names of topics, as ["orders"]')
    for one in value:
        if not isinstance(one, str) or validate_topic(one) is not None:
            raise refusal("topics", value, f"names of topics, and {one!r} is none")


def _consume_from(_: str, value: Any) -> None:
    consume_from_where(value)


def _trace(name: str, value: Any) -> None:
    if not isinstance(value, bool) and (not isinstance(value, str) or validate_topic(value) is not None):
        raise refusal(name, value, "True, False or the name of a topic")


def _path(name: str, value: Any) -> None:
    check_path(name, value, "the path of a file")


def _seconds(*, may_be_zero: bool = False) -> Check:
    return lambda name, value: check_seconds(name, value, may_be_zero=may_be_zero)


#: Checks by the name of an argument, which means the same in all clients.
_CHECKS: dict[str, Check] = {
    "namesrv": _namesrv,
    "group": _group,
    "topics": _topics,
    "topic_names": _topic_names,
    "on_message": check_function,
    "check_transaction": optional(check_function),
    "consume_from": _consume_from,
    "timeout": _seconds(),
    "consume_timeout": _seconds(),
    "close_timeout": _seconds(may_be_zero=True),
    "retries": whole(0),
    "concurrency": whole(1),
    "max_reconsume_times": optional(whole(-1, MOST_INT)),
    "auto_batch": check_flag,
    "orderly": check_flag,
    "broadcasting": check_flag,
    "trace": _trace,
    "namespace": optional(_namespace),
    "offsets_path": optional(_path),
    "tls": _instance("reput.transport.tls", "ClientTls"),
    "credentials": _instance("reput.client.instance.session_credentials", "SessionCredentials"),
    "limits": _instance("reput.client.consuming.consumed_queue", "PullLimits"),
}
