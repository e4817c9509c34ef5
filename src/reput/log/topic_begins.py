"""Begins of deleted topics, as a store directory says: where the messages of a topic of the same name begin."""

from __future__ import annotations

from collections.abc import Mapping

from reput.errors import CorruptMetadataError
from reput.files import FileLayer
from reput.formats.metadata import BEGIN_OFFSET_TABLE, Topics, decode_metadata
from reput.log.metadata import metadata_path, read_or_backup


def read_topic_begins(root: str, files: FileLayer) -> Mapping[str, int]:
    """Commit log offsets by topic (`Topics.begin_offset_table`); none if the file and its backup are damaged.

    A reader looks often, and 30,000 topics take a second: of a file without the member no topic is decoded.
    """
    name = BEGIN_OFFSET_TABLE.encode()

    def decode(data: bytes) -> Mapping[str, int]:
        return decode_metadata(Topics, data).begin_offset_table or {} if name in data else {}

    try:
        return read_or_backup(metadata_path(root, Topics), decode, files) or {}
    except CorruptMetadataError:
        return {}
