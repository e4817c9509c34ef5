"""Schemas of topics whose JSON bodies become columns: given and checked, or inferred once and kept.

The schema of a topic is inferred when the topic first appears, from its first bodies. It is kept in `_reput/schemas`,
so that it is the same in every task and in every later run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import ConfigError
from reput.files import FileLayer
from reput.jobs.body_schema import body_schema_text, parse_body_schema
from reput.jobs.decoding import JsonDecoder
from reput.jobs.lake.body_decoders import BodyDecoders
from reput.jobs.sampled_fields import SampledFields

_SCHEMAS = "schemas"
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
    """The decoders, and those of the sampled topics."""
    return _with_schemas(decoders, {topic: fields.schema() for topic, fields in samples.by_topic.items()})


def with_kept(decoders: BodyDecoders, folder: str, files: FileLayer) -> BodyDecoders:
    """The decoders, and those of topics whose schemas earlier runs have inferred and kept in a folder."""
    path = os.path.join(folder, _SCHEMAS)
    if not files.exists(path):
        return decoders
    texts: Mapping[str, str] = json.loads(files.read_bytes(path))
    return _with_schemas(
        decoders, {topic: parse_body_schema(text) if text else pa.schema([]) for topic, text in texts.items()}
    )


def _with_schemas(decoders: BodyDecoders, schemas: Mapping[str, pa.Schema]) -> BodyDecoders:
    """The decoders, and those of further topics by their inferred schemas.

    They refuse a body with a value in a field that the schema lacks, as nobody has chosen the fields.
    """
    inferred = {topic: JsonDecoder(schema, refuses_others=True) for topic, schema in schemas.items()}
    return replace(decoders, by_topic={**decoders.by_topic, **inferred})


def keep_schemas(decoders: BodyDecoders, folder: str, files: FileLayer) -> None:
    """Keep the inferred schemas in a folder, durably."""
    inferred = {
        topic: body_schema_text(decoder.schema)
        for topic, decoder in decoders.by_topic.items()
        if isinstance(decoder, JsonDecoder) and decoder.refuses_others
    }
    files.write_atomically(os.path.join(folder, _SCHEMAS), json.dumps(inferred, ensure_ascii=False, indent=1).encode())


def check_fit(decoders: BodyDecoders, sample: Iterable[pa.RecordBatch]) -> None:
    """Raise ConfigError where no body of a sample, with columns `topic` and `body`, fits a given schema."""
    reasons: list[str | None] = []
    for batch in sample:
        for topic in batch["topic"].unique().to_pylist():
            decoder = decoders.of(topic)
            if decoder is not None:
                bodies = batch["body"].filter(pc.equal(batch["topic"], topic))
                reasons += decoder.decode(bodies).reasons.to_pylist()
    if reasons and None not in reasons:
        raise ConfigError(
            f"schema: it fits none of the first {len(reasons)} bodies; the reason for the first: {reasons[0]}. "
            "Give another schema, or, for JSON, none to have one inferred"
        )
