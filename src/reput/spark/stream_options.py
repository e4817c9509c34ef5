"""Options of the format `reput` as a stream source, with the names of Spark's own sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reput.errors import ConfigError
from reput.spark.options import (
    READ_OPTIONS,
    OptionTable,
    boolean_of_text,
    count_of_text,
    mode_of_text,
    parse_options,
    path_of_text,
    paths_of_text,
    size_of_text,
    time_of_text,
)

EARLIEST, LATEST = "earliest", "latest"

#: Start of a store's stream: a word, or a commit log offset.
StartingOffset = str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of `spark.readStream.format("reput")`; the first eight are as in `ReadOptions`.

    Attributes:
        path: `path`, a store directory, or a pattern of several; or `paths`, a JSON list of both.
        starting_offsets: `startingOffsets`, start of a store that is not in the checkpoint: earliest (the default),
            latest, a commit log offset at which a record starts, or a JSON object with one of these for each store's
            path.
        starting_timestamp: `startingTimestamp`, ms since 1970 or an ISO 8601 time with its zone: begin at the first
            record that was stored then or later.
        max_bytes_per_trigger: `maxBytesPerTrigger`, limit of a batch in log bytes; a batch has at least one record.
        max_rows_per_trigger: `maxRowsPerTrigger`, limit of a batch in records, before topics and keys are applied.
        fail_on_data_loss: `failOnDataLoss`, false: continue, with a warning, if unread records are lost, or if
            the log is another one than the log that was read.
        mode: `mode`, as in `ReadOptions`; the default is FAILFAST, as a stream never reads what it has passed over.
    """

    path: str | tuple[str, ...]
    commit_log_path: str | None = None
    topics: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    raw_body: bool = False
    split_bytes: int | None = None
    store: str | None = None
    until: str = "proven"
    starting_offsets: StartingOffset | Mapping[str, StartingOffset] = EARLIEST
    starting_timestamp: datetime | int | None = None
    max_bytes_per_trigger: int | None = None
    max_rows_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    mode: str = "FAILFAST"

    def starting_offset(self, path: str) -> StartingOffset:
        """Start of the store at a path. Raises ConfigError if `startingOffsets` names only other stores."""
        if not isinstance(self.starting_offsets, Mapping):
            return self.starting_offsets
        if path not in self.starting_offsets:
            named = ", ".join(self.starting_offsets)
            raise ConfigError(f"option startingOffsets: nothing about the store {path}; it names {named}")
        return self.starting_offsets[path]


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream. Raises ConfigError as `parse_options`, and for options that exclude each other."""
    parsed = parse_options(options, STREAM_OPTIONS, StreamOptions)
    given = {name.lower() for name in options}
    for one, other in (("startingOffsets", "startingTimestamp"), ("maxBytesPerTrigger", "maxRowsPerTrigger")):
        if {one.lower(), other.lower()} <= given:
            raise ConfigError(f"options {one} and {other}: give one of the two")
    return parsed


def _starting_offsets_of_text(text: str) -> StartingOffset | Mapping[str, StartingOffset]:
    if not text.startswith("{"):
        return _starting_offset(text)
    try:
        return {path_of_text(path): _starting_offset(str(value)) for path, value in json.loads(text).items()}
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON object: {error}") from None


def _starting_offset(text: str) -> StartingOffset:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.isascii() and text.isdigit():
        return int(text)
    raise ValueError("neither earliest, latest, a commit log offset, nor a JSON object of these by store")


_AS_A_READER = ("path", "commitLogPath", "topics", "keys", "rawBody", "splitBytes", "store", "until")

STREAM_OPTIONS: OptionTable = {name: READ_OPTIONS[name] for name in _AS_A_READER} | {
    "paths": ("path", paths_of_text),
    "startingOffsets": ("starting_offsets", _starting_offsets_of_text),
    "startingTimestamp": ("starting_timestamp", time_of_text),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", size_of_text),
    "maxRowsPerTrigger": ("max_rows_per_trigger", count_of_text),
    "failOnDataLoss": ("fail_on_data_loss", boolean_of_text),
    "mode": ("mode", mode_of_text),
}
