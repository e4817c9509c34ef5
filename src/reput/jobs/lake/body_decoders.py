"""Decoders of an export's bodies: one for all topics, or a decoder with a schema for each topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import pyarrow as pa

from reput.jobs.body_schema import body_schema_text
from reput.jobs.decoding import TYPED, BodyDecoder, BodySchema, JsonDecoder, RefusingDecoder, make_decoder


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
    by_topic: Mapping[str, BodyDecoder] = field(default_factory=dict)

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
        """The decoders without those of inferred schemas that have no fields."""
        kept = {topic: one for topic, one in self.by_topic.items() if not is_inferred(one) or one.type.num_fields}
        return replace(self, by_topic=kept)

    def schema_text(self, topic: str) -> str | None:
        """Schema of a topic's bodies; None for bodies without fields, and where none could be inferred."""
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
        return BodyDecoders(decode, common, {topic: make_decoder(decode, one) for topic, one in schema.items()})
    if decode == "json" and schema is None:
        return BodyDecoders(decode, None)
    if isinstance(schema, Mapping):
        schema = next(iter(schema.values()), None)
    return BodyDecoders(decode, make_decoder(decode, schema))
