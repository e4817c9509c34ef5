"""Decoders of an export's bodies: one for all topics, or for JSON a decoder with a schema for each topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from reput.jobs.body_schema import body_schema_text
from reput.jobs.decoding import BodyDecoder, JsonDecoder, make_decoder

BodySchema: TypeAlias = pa.Schema | str


@dataclass(frozen=True, slots=True)
class BodyDecoders:
    """Decoders by topic; picklable.

    Attributes:
        decode: raw, utf8 or json.
        common: decoder of the topics that have none of their own; None: their schema is to be inferred.
        by_topic: decoders of single topics; of JSON only. A schema without fields is that of a topic of whose bodies
            none can be inferred: all its bodies are rejected.
    """

    decode: str
    common: BodyDecoder | None
    by_topic: Mapping[str, JsonDecoder] = field(default_factory=dict)

    @property
    def is_same_for_all(self) -> bool:
        """Whether all topics have one decoder."""
        return self.common is not None and not self.by_topic

    def of(self, topic: str) -> BodyDecoder | None:
        """Decoder of a topic; None: its schema is to be inferred."""
        return self.by_topic.get(topic, self.common)

    def schema_text(self, topic: str) -> str | None:
        """Schema of a topic's JSON bodies; None for other bodies, and where none could be inferred."""
        decoder = self.of(topic)
        return (body_schema_text(decoder.schema) or None) if isinstance(decoder, JsonDecoder) else None


def make_decoders(decode: str, schema: BodySchema | Mapping[str, BodySchema] | None) -> BodyDecoders:
    """Make the decoders that are known without a look at bodies.

    Args:
        schema: of all topics' JSON bodies, or by topic; None: inferred.

    Raises ConfigError as `make_decoder`; of a topic's schema, too.
    """
    if decode == "json" and (schema is None or isinstance(schema, Mapping)):
        return BodyDecoders(decode, None, {topic: _json_decoder(one) for topic, one in (schema or {}).items()})
    if isinstance(schema, Mapping):
        schema = next(iter(schema.values()), None)
    return BodyDecoders(decode, make_decoder(decode, schema))


def _json_decoder(schema: BodySchema) -> JsonDecoder:
    decoder = make_decoder("json", schema)
    assert isinstance(decoder, JsonDecoder), "asked for by its name"
    return decoder
