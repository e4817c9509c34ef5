"""Schemas of topics whose JSON bodies become columns: given and checked, or inferred once and kept.

The schema of a topic is inferred when the topic first appears, from its first bodies. It is kept
(`reput.jobs.lake.inferred_schemas`), so that it is the same in every task and in every later run. It may grow: new
fields come after those that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import ConfigError
from reput.jobs.body_schema import body_schema_text
from reput.jobs.decoding import LACKS, JsonDecoder
from reput.jobs.lake.body_decoders import BodyDecoders, TopicDecoders, inferred_decoder, is_inferred
from reput.jobs.lake.files import LakeFile
from reput.jobs.lake.staging import Staging
from reput.jobs.sampled_fields import SampledFields, grown_fields

#: Bodies of a topic whose fields a task looks at.
_SAMPLE_BODIES = 4000


class TopicSamples:
    """Fields of the first bodies of topics whose schemas are to be inferred. Picklable, and small.

    Attributes:
        by_topic: the fields of each topic.
        full: topics of which no further body is looked at.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, SampledFields] = {}
        self.full = set[str]()

    def add(self, topic: str, bodies: pa.Array) -> None:
        """Look at bodies of a topic, a binary array, as far as the sample is not full."""
        fields = self.by_topic.setdefault(topic, SampledFields())
        fields.add(bodies.slice(0, _SAMPLE_BODIES - fields.bodies))
        if fields.bodies == _SAMPLE_BODIES:
            self.full.add(topic)

    def merge(self, later: TopicSamples) -> None:
        """Add what a later split of the log has."""
        for topic, fields in later.by_topic.items():
            self.by_topic.setdefault(topic, SampledFields()).merge(fields)


def with_inferred(decoders: BodyDecoders, samples: TopicSamples) -> BodyDecoders:
    """The decoders, with decoders of the sampled topics."""
    schemas = {topic: pa.schema(grown_fields((), fields.schema())) for topic, fields in samples.by_topic.items()}
    return _with_schemas(decoders, schemas)


def new_fields(staged: Sequence[LakeFile], staging: Staging) -> TopicSamples:
    """Fields of all staged rejects whose bodies have a value in a field that the inferred schema of the topic lacks."""
    samples = TopicSamples()
    for one in sorted(staged, key=lambda one: one.first_offset):
        if one.kind == "rejects":
            rows = staging.open(one.name).read(["reason", "body"])
            for bodies in rows["body"].filter(pc.ends_with(rows["reason"], LACKS)).chunks:
                if len(bodies):
                    samples.by_topic.setdefault(one.topic, SampledFields()).add(bodies)
    return samples


def with_new_fields(decoders: BodyDecoders, samples: TopicSamples) -> BodyDecoders:
    """The decoders, with decoders of topics whose inferred schemas get the new sampled fields.

    A field keeps its type.
    """
    grown = {}
    for topic, fields in samples.by_topic.items():
        decoder = decoders.by_topic[topic]
        assert isinstance(decoder, JsonDecoder), "bodies with new fields are JSON"
        grown[topic] = pa.schema(grown_fields(decoder.schema, fields.schema()))
    return _with_schemas(decoders, grown)


def with_kept(decoders: BodyDecoders, texts: Mapping[str, str]) -> BodyDecoders:
    """The decoders, with decoders of topics whose schemas earlier runs have inferred and kept."""
    return replace(decoders, by_topic=TopicDecoders(decoders.by_topic, texts)) if texts else decoders


def _with_schemas(decoders: BodyDecoders, schemas: Mapping[str, pa.Schema]) -> BodyDecoders:
    """The decoders, with decoders of further topics by their inferred schemas."""
    inferred = {topic: inferred_decoder(schema) for topic, schema in schemas.items()}
    return replace(decoders, by_topic=decoders.by_topic.with_others(inferred))


def inferred_texts(decoders: BodyDecoders, topics: Iterable[str]) -> dict[str, str]:
    """Inferred schemas of topics, as text; of those that have fields."""
    found = {topic: decoders.by_topic[topic] for topic in topics}
    return {
        topic: body_schema_text(decoder.schema)
        for topic, decoder in found.items()
        if is_inferred(decoder) and decoder.schema.names
    }


def check_fit(decoders: BodyDecoders, sample: Iterable[pa.RecordBatch]) -> None:
    """Raise ConfigError if no body of a sample, with columns `topic` and `body`, fits a given schema."""
    reasons: list[str | None] = []
    for batch in sample:
        for topic in batch["topic"].unique().to_pylist():
            decoder = decoders.of(topic)
            if decoder is not None:
                bodies = batch["body"].filter(pc.equal(batch["topic"], topic))
                reasons += decoder.decode(bodies).reasons.to_pylist()
    if reasons and None not in reasons:
        raise ConfigError(
            f"schema: it fits none of the bodies that were tried, {len(reasons)}; the reason for the first: "
            f"{reasons[0]}. Give another schema, or, for JSON, none to have one inferred"
        )
