"""Commits and intents of sinks' batches in a store, `config/reputSinks.json` (docs/formats/sink-commit.md).

The file has the last committed batch of each sink, and the intent of a batch while it is being appended. RocketMQ does
not know the file and leaves it alone. But RocketMQ writes the text of the file `lock` whenever it opens a store. So a
sink writes another text there before the intent: as long as that text is there, no other program has opened the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from reput.errors import CorruptMetadataError
from reput.formats.own_json import decode_with_crc, encode_with_crc, number

#: Name of the file in the folder `config`.
SINKS_FILE = "reputSinks.json"
#: Folder of staged records, in the store directory.
STAGING = "reputStaging"
#: Text of the file `lock` from the first batch on, until RocketMQ opens the store; as long as RocketMQ's text.
SINK_LOCK = b"sink"

T = TypeVar("T")

#: Types by the annotations of the classes below.
_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "bool": bool, "str | None": (str, type(None))}


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One file of staged records (`reput.formats.staged_records`), written by one task.

    Attributes:
        path: Path of the file.
        rows: Number of its records; never 0.
        size: Bytes of the records.
        crc: CRC-32 of the records, with zeros in the fields that the append fills.
    """

    path: str
    rows: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Identity of a batch.

    Attributes:
        sink_id: The sink's name, chosen by the user.
        batch_id: Number of the batch, given by Spark or the user; it increases within a sink.
        query_id: Id of the stream, stored in its checkpoint; None for a batch write.
    """

    sink_id: str
    batch_id: int
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class SinkIntent:
    """Intent to append a batch: the batch is being appended, or its writer was killed during the append.

    Attributes:
        batch: None for a write without a sink id.
        begin_offset: Commit log offset of the first record.
        store_timestamp: Store timestamp (ms) of all its records; later than any earlier record's.
        last_store_timestamp: Store timestamp of the record before the batch; 0 without one.
        property_crc: Whether each record ends with a CRC of its own.
        parts: The staged files to append, in order.
    """

    batch: SinkBatch | None
    begin_offset: int
    store_timestamp: int
    last_store_timestamp: int
    property_crc: bool
    parts: tuple[StagedPart, ...]

    @property
    def rows(self) -> int:
        """Number of records of all parts."""
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class SinkCommit:
    """Commit of a batch: the log has all of it.

    Attributes:
        batch: See `SinkBatch`; None for a write without a sink id, which is not recorded.
        begin_offset, end_offset: Commit log offsets of its first record and after its last; equal without a record.
        rows: Number of its records.
        store_timestamp: Their store timestamp (ms); 0 without a record.
    """

    batch: SinkBatch | None
    begin_offset: int
    end_offset: int
    rows: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class BrokenBatch:
    """A batch cut short by a kill that cannot be cut off, because another program has opened the store since.

    Attributes:
        intent: The batch's intent.
        rows: Number of its records in the log, from its begin_offset on.
    """

    intent: SinkIntent
    rows: int


@dataclass(frozen=True, slots=True)
class Sinks:
    """Content of the file.

    Attributes:
        commits: The last committed batch by sink id.
        intent: The batch that is being appended.
        broken: Broken batches by sink id, until they are written again.
        begun: Number of all intents so far: shows a reader that a batch was begun and ended while it read.
    """

    commits: Mapping[str, SinkCommit] = field(default_factory=dict)
    intent: SinkIntent | None = None
    broken: Mapping[str, BrokenBatch] = field(default_factory=dict)
    begun: int = 0


def encode_sinks(sinks: Sinks) -> bytes:
    """Bytes of the file."""
    return encode_with_crc(
        {_camel_case(one.name): _to_json(getattr(sinks, one.name)) for one in fields(sinks)}, indent="\t"
    )


def decode_sinks(data: bytes, path: str) -> Sinks:
    """Content of the file.

    Raises:
        CorruptMetadataError: The bytes are no such file, or a damaged one: whether a batch is whole is unknown then.
    """
    try:
        content = decode_with_crc(data)
        return Sinks(
            {sink_id: _commit(one) for sink_id, one in content["commits"].items()},
            None if content["intent"] is None else _intent(content["intent"]),
            {
                sink_id: BrokenBatch(_intent(one["intent"]), number(one["rows"]))
                for sink_id, one in content["broken"].items()
            },
            number(content["begun"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptMetadataError(
            path,
            getattr(error, "pos", 0),
            "expected what a sink writes, found something else. It says which batches of sinks are in "
            "the log: restore it from a copy; or remove it, and the log stays as it is, and all sinks begin anew",
        ) from error


def _to_json(value: object) -> object:
    if is_dataclass(value):
        return {_camel_case(one.name): _to_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: _to_json(one) for key, one in sorted(value.items())}
    return [_to_json(one) for one in value] if isinstance(value, tuple) else value


def _made(kind: type[T], content: dict[str, Any], **made: object) -> T:
    """A dataclass from its JSON members, except for the values in `made`."""
    plain = [one for one in fields(kind) if one.name not in made]  # type: ignore[arg-type]
    return kind(**{one.name: _checked(content[_camel_case(one.name)], str(one.type)) for one in plain}, **made)


def _checked(value: object, kind: str) -> object:
    if kind == "int":
        return number(value)
    if not isinstance(value, _KINDS[kind]):
        raise TypeError(f"expected {kind}, found {value!r}")
    return value


def _batch(content: dict[str, Any] | None) -> SinkBatch | None:
    return None if content is None else _made(SinkBatch, content)


def _commit(content: dict[str, Any]) -> SinkCommit:
    return _made(SinkCommit, content, batch=_batch(content["batch"]))


def _intent(content: dict[str, Any]) -> SinkIntent:
    parts = tuple(_made(StagedPart, part) for part in content["parts"])
    if not parts or any(not part.rows for part in parts):
        raise ValueError("an intent without a record")
    return _made(SinkIntent, content, batch=_batch(content["batch"]), parts=parts)


def _camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
