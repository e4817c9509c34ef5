"""Decoders of an export's bodies: one for all topics, or a decoder with a schema for each topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import pyarrow as pa

from reput.jobs.body_schema import body_schema_text, parse_body_schema
from reput.jobs.decoding import TYPED, BodyDecoder, BodySchema, JsonDecoder, RefusingDecoder, make_decoder


class TopicDecoders(Mapping[str, BodyDecoder]):
    """Decoders of single topics; picklable. That of a kept schema is made for its first body: there may be very many.

    Args:
        made: decoders by topic.
        texts: schemas by topic that were inferred and kept.
    """

    def __init__(self, made: Mapping[str, BodyDecoder], texts: Mapping[str, str]) -> None:
        self._made, self._texts = dict(made), texts
        self._without_fields = {
            topic for topic, one in self._made.items() if is_inferred(one) and not one.type.num_fields
        }

    def __getitem__(self, topic: str) -> BodyDecoder:
        found = self._made.get(topic)
        if found is None:
            found = self._made[topic] = inferred_decoder(parse_body_schema(self._texts[topic]))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._made.keys() | self._texts.keys())

    def __len__(self) -> int:
        return len(self._made.keys() | self._texts.keys())

    def __bool__(self) -> bool:
        return bool(self._made) or bool(self._texts)

    def with_others(self, decoders: Mapping[str, BodyDecoder]) -> TopicDecoders:
        """These, and the decoders of some topics in the place of those that they had."""
        return TopicDecoders(self._made | dict(decoders), self._texts)

    def with_fields(self) -> TopicDecoders:
        """These without inferred schemas that have no fields."""
        if not self._without_fields:
            return self
        kept = {topic: one for topic, one in self._made.items() if topic not in self._without_fields}
        return TopicDecoders(kept, self._texts)


def inferred_decoder(schema: pa.Schema) -> JsonDecoder:
    """Decoder of an inferred schema: it refuses a body with a value in another field, as nobody has chosen them."""
    return JsonDecoder(schema, refuses_others=True)


@dataclass(frozen=True, slots=True)
class BodyDecoders:
    """Decoders by topic; picklable.

    Attributes:
        decode: raw, utf8, json, avro or protobuf.
        common: decoder of the topics that have none of their own; None: their schema is to be inferred.
        by_topic: decoders of single topics; with a schema. An inferred schema without fields is that of a topic of
            whose bodies none has a field, in one commit: they are rejected, and later ones are looked at again.
    """

    decode: str
    common: BodyDecoder | None
    by_topic: TopicDecoders = field(default_factory=lambda: TopicDecoders({}, {}))

    @property
    def has_tables(self) -> bool:
        """Whether each topic has fields of its own, and so a table of its own."""
        return self.decode in TYPED

    @property
    def is_same_for_all(self) -> bool:
        """Whether all topics have one decoder."""
        return self.common is not None and not self.by_topic

    def of(self, topic: str) -> BodyDecoder | None:
        """Decoder of a topic; None: its schema is to be inferred."""
        return self.by_topic.get(topic, self.common)

    def with_fields(self) -> BodyDecoders:
        """The decoders without inferred schemas that have no fields."""
        return replace(self, by_topic=self.by_topic.with_fields())

    def schema_text(self, topic: str) -> str | None:
        """Schema of a topic's bodies; None for bodies without fields, and if none could be inferred."""
        decoder = self.of(topic)
        if isinstance(decoder, JsonDecoder):
            return body_schema_text(decoder.schema) or None
        if decoder is None or not pa.types.is_struct(decoder.type):
            return None
        return ", ".join(f"{one.name} {one.type}" for one in decoder.type) or None


def is_inferred(decoder: BodyDecoder) -> TypeGuard[JsonDecoder]:
    """Whether a decoder's schema was inferred."""
    return isinstance(decoder, JsonDecoder) and decoder.refuses_others


def make_decoders(decode: str, schema: BodySchema | Mapping[str, BodySchema] | None) -> BodyDecoders:
    """Make the decoders that are known without a look at bodies.

    Args:
        schema: of all topics' bodies, or by topic; None: inferred, of JSON.

    Raises ConfigError as `make_decoder`; of a topic's schema, too.
    """
    if decode in TYPED and isinstance(schema, Mapping):
        common = None if decode == "json" else RefusingDecoder("no schema file for this topic")
        made = {topic: make_decoder(decode, one) for topic, one in schema.items()}
        return BodyDecoders(decode, common, TopicDecoders(made, {}))
    if decode == "json" and schema is None:
        return BodyDecoders(decode, None)
    if isinstance(schema, Mapping):
        schema = next(iter(schema.values()), None)
    return BodyDecoders(decode, make_decoder(decode, schema))
