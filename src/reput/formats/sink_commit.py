"""What a store remembers of the batches that Spark's sink put into it: docs/formats/sink-commit.md.

`config/reputSinks.json` has the last committed batch of each sink, and while a batch is being appended its intent.
RocketMQ does not know the file and leaves it alone. What it does write whenever it opens a store is the text of the
file `lock`: so another text there, put there before the intent, says that nobody else has opened the store since.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from reput.errors import CorruptMetadataError
from reput.formats.own_json import decode_json

#: In the folder `config`.
SINKS_FILE = "reputSinks.json"
#: The folder of staged records, in the store directory.
STAGING = "reputStaging"
#: The text of the file `lock` from the first batch on, until RocketMQ opens the store; it has the size of RocketMQ's.
SINK_LOCK = b"sink"

T = TypeVar("T")

#: By the annotations of the classes below.
_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "bool": bool, "str | None": (str, type(None))}
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One file of staged records (`reput.formats.staged_records`): what one task wrote.

    Attributes:
        path: Where it is.
        rows: Its records; never 0.
        size: Bytes of the records.
        crc: CRC-32 of the records, with the fields that the append fills left zero.
    """

    path: str
    rows: int
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Which batch of which sink it is.

    Attributes:
        sink_id: The sink's name, chosen by the user.
        batch_id: Spark's, or the user's: batches of a sink are counted upwards.
        query_id: The stream's, which lives in its checkpoint; None for a batch write.
    """

    sink_id: str
    batch_id: int
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class SinkIntent:
    """A batch that is being appended, or was when its writer was killed.

    Attributes:
        batch: None for a write without a sink id.
        begin_offset: Commit log offset where its first record goes.
        store_timestamp: Store time (ms) of each of its records; later than of every record before.
        last_store_timestamp: That of the record before; 0 where there was none.
        property_crc: Whether each record ends with a CRC of its own.
        parts: What is appended, in order.
    """

    batch: SinkBatch | None
    begin_offset: int
    store_timestamp: int
    last_store_timestamp: int
    property_crc: bool
    parts: tuple[StagedPart, ...]

    @property
    def rows(self) -> int:
        """Records of all parts."""
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class SinkCommit:
    """A batch that is in the log, whole.

    Attributes:
        batch: See `SinkBatch`; None for a write without a sink id, which leaves no trace.
        begin_offset, end_offset: Commit log offsets of its first record and behind its last; equal where it has none.
        rows: Its records.
        store_timestamp: Their store time (ms); 0 where it has none.
    """

    batch: SinkBatch | None
    begin_offset: int
    end_offset: int
    rows: int
    store_timestamp: int


@dataclass(frozen=True, slots=True)
class BrokenBatch:
    """A batch that a kill cut short and that cannot be taken back, for somebody else has opened the store since.

    Attributes:
        intent: What was to be appended.
        rows: How many of its records are in the log, at its begin_offset.
    """

    intent: SinkIntent
    rows: int


@dataclass(frozen=True, slots=True)
class Sinks:
    """All that the file says.

    Attributes:
        commits: The last committed batch by sink id.
        intent: The batch that is being appended.
        broken: Broken batches by sink id, until they are written again.
        begun: How many intents there have ever been: it tells a reader that one came and went while he looked.
    """

    commits: Mapping[str, SinkCommit] = field(default_factory=dict)
    intent: SinkIntent | None = None
    broken: Mapping[str, BrokenBatch] = field(default_factory=dict)
    begun: int = 0


def encode_sinks(sinks: Sinks) -> bytes:
    """The file's bytes."""
    return json.dumps(_to_json(sinks), ensure_ascii=False, indent="\t").encode()


def decode_sinks(data: bytes, path: str) -> Sinks:
    """What the file says.

    Raises:
        CorruptMetadataError: It is no such file, or damaged: nothing says then whether a batch is whole.
    """
    try:
        content = decode_json(data)
        return Sinks(
            {sink_id: _commit(one) for sink_id, one in content["commits"].items()},
            None if content["intent"] is None else _intent(content["intent"]),
            {
                sink_id: BrokenBatch(_intent(one["intent"]), int(one["rows"]))
                for sink_id, one in content["broken"].items()
            },
            int(content["begun"]),
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
    """A dataclass from its JSON, but for the values that are made already."""
    plain = [one for one in fields(kind) if one.name not in made]  # type: ignore[arg-type]
    return kind(**{one.name: _checked(content[_camel_case(one.name)], str(one.type)) for one in plain}, **made)


def _checked(value: object, kind: str) -> object:
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, int) and not 0 <= value <= _MOST):
        raise TypeError(f"expected {kind}, found {value!r}")
    return value


def _batch(content: dict[str, Any] | None) -> SinkBatch | None:
    return None if content is None else _made(SinkBatch, content)


def _commit(content: dict[str, Any]) -> SinkCommit:
    return _made(SinkCommit, content, batch=_batch(content["batch"]))


def _intent(content: dict[str, Any]) -> SinkIntent:
    parts = tuple(_made(StagedPart, part) for part in content["parts"])
    return _made(SinkIntent, content, batch=_batch(content["batch"]), parts=parts)


def _camel_case(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
