"""Schema files of Avro and Protobuf, as `--schema-file` names them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reput.errors import ConfigError

if TYPE_CHECKING:
    from reput.jobs.decoding import BodySchema


def read_schema_files(decode: str, texts: Sequence[str]) -> dict[str, BodySchema] | BodySchema:
    """Schemas by topic, or the one schema of all topics.

    Args:
        decode: avro or protobuf.
        texts: `FILE`, or `TOPIC=FILE` each; a file of Protobuf is followed by `:MESSAGE`.

    Raises ConfigError for other texts, StoreError for a file that cannot be read.
    """
    by_topic: dict[str, BodySchema] = {}
    for text in texts:
        topic, has_topic, name = text.partition("=")
        if not has_topic or "/" in topic:
            if len(texts) > 1:
                raise ConfigError(f"--schema-file: {text} is for all topics; with another one write TOPIC={text}")
            return _read(decode, text)
        if topic in by_topic:
            raise ConfigError(f"--schema-file: {topic} is given twice")
        by_topic[topic] = _read(decode, name)
    return by_topic


def _read(decode: str, name: str) -> BodySchema:
    from reput.files import DISK
    from reput.jobs.decoding import SCHEMA_FILES
    from reput.jobs.protobuf_bodies import ProtobufSchema

    if decode == "avro":
        try:
            return DISK.read_bytes(os.path.expanduser(name)).decode()
        except UnicodeDecodeError:
            raise ConfigError(f"--schema-file: {name} is no text; expected {SCHEMA_FILES[decode]}") from None
    path, _, message = name.rpartition(":")
    if not path or "/" in message:
        raise ConfigError(f"--schema-file: {name} names no message; expected {SCHEMA_FILES[decode]}")
    return ProtobufSchema(DISK.read_bytes(os.path.expanduser(path)), message)
