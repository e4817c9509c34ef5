"""Namespaces: names of topics and groups as brokers know them, and as a program does (`NamespaceUtil`); pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reput.config.arguments import refusal
from reput.errors import ConfigError
from reput.formats.message import MAX_TOPIC_SIZE, RETRY_TOPIC_PREFIX, TOPIC_CHARACTERS, Message
from reput.formats.properties import INSTANCE_ID
from reput.remoting.queue_tables import QueueKey
from reput.remoting.topic_validator import DLQ_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

_SEPARATOR = "%"
_ALLOWED = TOPIC_CHARACTERS - {_SEPARATOR}
#: Behind it come the separator and a topic's own name.
_MOST_CHARACTERS = MAX_TOPIC_SIZE - 2


@dataclass(frozen=True, slots=True)
class Namespace:
    """The namespace of a client; names stay as they are if its own name is empty.

    Raises ConfigError if the name has characters that no topic may have, or a `%`, or leaves no room for a topic's.
    """

    name: str = ""

    def __post_init__(self) -> None:
        if not set(self.name) <= _ALLOWED:
            raise ConfigError(f"namespace {self.name!r}: expected letters, digits, '_', '-' and '|' only")
        if len(self.name) > _MOST_CHARACTERS:
            raise refusal("namespace", self.name, f"{_MOST_CHARACTERS} characters at most: it is a part of each topic")

    def wrap(self, resource: str) -> str:
        """The broker's name of a topic or group: `ns%orders`, `%RETRY%ns%group`; names of RocketMQ's own stay."""
        if not self.name or _is_system(resource):
            return resource
        kind, rest = _parts(resource)
        return resource if rest.startswith(self._prefix) else f"{kind}{self._prefix}{rest}"

    def bare(self, resource: str) -> str:
        """The program's name of a topic or group of this namespace; others stay."""
        if not self.name:
            return resource
        kind, rest = _parts(resource)
        return kind + rest.removeprefix(self._prefix)

    def wrap_queue(self, queue: QueueKey) -> QueueKey:
        """A queue whose topic has the broker's name."""
        return queue._replace(topic=self.wrap(queue.topic)) if self.name else queue

    def bare_queue(self, queue: QueueKey) -> QueueKey:
        """A queue whose topic has the program's name."""
        return queue._replace(topic=self.bare(queue.topic)) if self.name else queue

    def wrap_message(self, message: Message) -> Message:
        """A message with the broker's name of its topic, and the namespace as a property, as of Java's producers."""
        if not self.name:
            return message
        properties = {**(message.properties or {}), INSTANCE_ID: self.name}
        return replace(message, topic=self.wrap(message.topic), properties=properties)

    @property
    def _prefix(self) -> str:
        return self.name + _SEPARATOR


NO_NAMESPACE = Namespace()


def _is_system(resource: str) -> bool:
    return resource in SYSTEM_TOPICS or resource.startswith((SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX))


def _parts(resource: str) -> tuple[str, str]:
    """Prefix of a topic's kind in a name, `%RETRY%` or `%DLQ%`, and the rest of the name."""
    for kind in (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX):
        if resource.startswith(kind):
            return kind, resource[len(kind) :]
    return "", resource
