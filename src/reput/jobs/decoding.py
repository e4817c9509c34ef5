"""Decoders of message bodies: raw, UTF-8, or JSON with a schema. A row that cannot be decoded has a reason.

The result for a row depends on its body alone: not on other rows of the batch, nor on how a log is cut into batches.
Bodies are expected as `read_log` gives them, decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from reput.errors import ConfigError
from reput.jobs.body_schema import body_schema_text, parse_body_schema
from reput.kernels.json_objects import CONTROL_BYTE, EMPTY, MORE_AFTER, NO_OBJECT, UNFINISHED, find_json_faults

T = TypeVar("T")
DecodeName = Literal["raw", "utf8", "json"]

_FAULTS = {
    EMPTY: "an empty body",
    NO_OBJECT: "no JSON object: it begins otherwise than with {",
    UNFINISHED: "a JSON object that is not closed",
    MORE_AFTER: "something after the end of the JSON object",
    CONTROL_BYTE: "no JSON: a control byte outside of an escape",
}
_UNDECOMPRESSED = "a compressed body that cannot be decompressed"
#: Characters of a reason; an error may quote a value of any length.
_MOST_REASON = 200


class Decoded(NamedTuple):
    """Values of decoded bodies, and the reasons of bodies that could not be decoded.

    Attributes:
        values: array of the decoder's type, null where a body could not be decoded.
        reasons: string array, why a body could not be decoded; null where the body was decoded.
    """

    values: pa.Array
    reasons: pa.Array


class BodyDecoder(Protocol):
    """Decodes bodies batch by batch. Picklable and stateless."""

    @property
    def type(self) -> pa.DataType:
        """Type of the values: binary, string, or a struct with the fields of the schema."""
        ...

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """Decode a binary array.

        Args:
            bodies: binary array.
            status: column `status` of `read_log` for the same rows: it says which bodies are still compressed.
        """
        ...


@dataclass(frozen=True, slots=True)
class RawDecoder:
    """Decoder that leaves all bodies as they are, also bodies that could not be decompressed."""

    @property
    def type(self) -> pa.DataType:
        """Binary."""
        return pa.binary()

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """As `BodyDecoder.decode`."""
        return Decoded(bodies, pa.nulls(len(bodies), pa.string()))


@dataclass(frozen=True, slots=True)
class Utf8Decoder:
    """Decoder of UTF-8 text."""

    @property
    def type(self) -> pa.DataType:
        """String."""
        return pa.string()

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """As `BodyDecoder.decode`."""
        return _decode(bodies, status, self.type, _parse_text)


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decoder of JSON objects with the fields of a schema.

    A field that a body lacks is null; a field that the schema lacks is left out. A value of another type than the
    schema's (`1.5` or `"1"` for a bigint) makes the whole body undecodable, and so does a field name given twice.

    Attributes:
        schema: of types that `parse_body_schema` knows.
    """

    schema: pa.Schema

    @property
    def type(self) -> pa.DataType:
        """A struct."""
        return pa.struct(list(self.schema))

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """As `BodyDecoder.decode`."""
        return _decode(bodies, status, self.type, self._parse, check=_json_faults)

    def _parse(self, bodies: pa.Array) -> pa.Array:
        return _read_json(bodies, self.schema)


def make_decoder(
    name: str, schema: pa.Schema | str | None = None, sample: Callable[[], Iterable[pa.Array]] | None = None
) -> BodyDecoder:
    """Make a decoder by its name.

    Args:
        name: raw, utf8 or json.
        schema: for json only: an Arrow schema, or a text for `parse_body_schema`; None: inferred from the sample.
        sample: returns bodies (binary arrays) to infer a schema from.

    Raises ConfigError for another name, a schema with raw or utf8, and a schema that cannot be used or inferred.
    """
    if name not in ("raw", "utf8", "json"):
        raise ConfigError(f"decode: {name!r} is none of raw, utf8 and json")
    if name != "json":
        if schema is not None:
            raise ConfigError(f"schema: bodies decoded as {name} have none; decode them as json")
        return RawDecoder() if name == "raw" else Utf8Decoder()
    if isinstance(schema, str):
        schema = parse_body_schema(schema)
    if schema is None:
        if sample is None:
            raise ConfigError("schema: JSON needs one here: id bigint, price double, name string")
        schema = infer_schema(sample())
    return JsonDecoder(parse_body_schema(body_schema_text(schema)))  # names and types that can be kept as text


def infer_schema(bodies: Iterable[pa.Array]) -> pa.Schema:
    """Infer the schema that all decodable JSON bodies of a sample fit. Fields are in the order of their first body.

    Times stay strings. A field that is null or empty in every body is left out: its type is unknown.

    Raises ConfigError where no body is a JSON object, or two bodies have a field with types that do not agree.
    """
    schemas: list[pa.Schema] = []
    reason = "the sample is empty"
    for batch in bodies:
        faults = _json_faults(batch)
        if faults and len(faults) == len(batch):
            reason = f"no body of the sample is JSON: {next(iter(faults.values()))}"
        rows = np.delete(np.arange(len(batch)), list(faults))
        for schema in _parsed(batch.take(pa.array(rows)), _infer_one, {}):
            if schema not in schemas:
                schemas.append(schema)
    if not schemas:
        raise ConfigError(f"schema: {reason}; give a schema, or decode raw or utf8")
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise ConfigError(
            f"schema: the bodies of the sample do not agree: {_first_line(error)}; give a schema with the fields that "
            "all of them have"
        ) from None
    fields = [pa.field(field.name, kind) for field in schema if (kind := _known(field.type)) is not None]
    if not fields:
        raise ConfigError("schema: the bodies of the sample have no field of a known type; give a schema")
    return pa.schema(fields)


def _decode(
    bodies: pa.Array,
    status: pa.Array | None,
    kind: pa.DataType,
    parse: Callable[[pa.Array], pa.Array],
    check: Callable[[pa.Array], dict[int, str]] | None = None,
) -> Decoded:
    """Decode all bodies by calls of `parse`, which raises for a batch with any bad body.

    Args:
        check: returns the rows of bodies that `parse` must not see, with the reason of each.
    """
    reasons: dict[int, str] = {}
    if status is not None:
        undecoded = np.asarray(pc.match_substring(status, "BODY_UNDECODED").fill_null(False))
        reasons = dict.fromkeys(np.flatnonzero(undecoded).tolist(), _UNDECOMPRESSED)
    if check is not None:
        reasons = check(bodies) | reasons
    rows = np.delete(np.arange(len(bodies)), list(reasons))
    given = bodies if rows.size == len(bodies) else bodies.take(pa.array(rows))
    refused: dict[int, str] = {}
    arrays = list(_parsed(given, parse, refused))
    reasons |= {int(rows[row]): reason for row, reason in refused.items()}
    values = arrays[0] if len(arrays) == 1 else pa.concat_arrays([*arrays, pa.nulls(0, kind)])
    if not reasons:
        return Decoded(values, pa.nulls(len(bodies), pa.string()))
    bad = np.zeros(len(bodies), np.bool_)
    bad[list(reasons)] = True
    indices = pa.array(np.cumsum(~bad) - 1, mask=bad)
    texts = pa.array([reasons[row] for row in sorted(reasons)], pa.string())
    return Decoded(values.take(indices), texts.take(pa.array(np.cumsum(bad) - 1, mask=~bad)))


def _parsed(bodies: pa.Array, parse: Callable[[pa.Array], T], refused: dict[int, str]) -> Iterator[T]:
    """Parse ranges of the bodies, in order. A single body that `parse` refuses goes to `refused`, by its row.

    A range that `parse` refuses is halved until single bodies are left: a bad body costs two calls a halving.
    """
    stack = [(0, len(bodies))] if len(bodies) else []
    while stack:
        begin, end = stack.pop()
        try:
            yield parse(bodies.slice(begin, end - begin))
        except pa.ArrowException as error:
            if end - begin == 1:
                refused[begin] = _first_line(error)[:_MOST_REASON]
            else:
                middle = (begin + end) // 2
                stack += [(middle, end), (begin, middle)]


def _parse_text(bodies: pa.Array) -> pa.Array:
    return bodies.cast(pa.string())


def _read_json(bodies: pa.Array, schema: pa.Schema | None) -> pa.Array:
    """Parse bodies of one JSON object each to a struct array; raises ArrowException if any body does not fit."""
    bodies.cast(pa.string())  # the parser takes any bytes between quotes
    offsets = _offsets(bodies)
    text = bodies.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    # One block for all: Arrow ends blocks at newlines, and bodies may hold newlines.
    read_options = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
    unexpected = "infer" if schema is None else "ignore"
    parse_options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    table = pj.read_json(pa.BufferReader(text), read_options=read_options, parse_options=parse_options)
    if table.num_rows != len(bodies):
        raise pa.ArrowInvalid(f"{table.num_rows} JSON objects in {len(bodies)} bodies")
    return table.to_struct_array().combine_chunks() if table.num_columns else _empty_structs(len(bodies))


def _empty_structs(rows: int) -> pa.Array:
    return pa.StructArray.from_buffers(pa.struct([]), rows, [None])


def _infer_one(bodies: pa.Array) -> pa.Schema:
    """Infer the schema of some bodies. Times are strings: Arrow may take a text for a time."""
    return pa.schema([pa.field(field.name, _without_times(field.type)) for field in _read_json(bodies, None).type])


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_times(field.type)) for field in kind])
    return kind


def _known(kind: pa.DataType) -> pa.DataType | None:
    """A type without fields that are null or empty in every body; None where no field is left."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        item = _known(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(kind):
        fields = [pa.field(field.name, known) for field in kind if (known := _known(field.type)) is not None]
        return pa.struct(fields) if fields else None
    return kind


def _json_faults(bodies: pa.Array) -> dict[int, str]:
    """Reasons why bodies are not one JSON object each, by row, as far as brackets and strings tell."""
    if not len(bodies):
        return {}
    faults = np.empty(len(bodies), np.uint8)
    offsets, data = _offsets(bodies), bodies.buffers()[2]
    address = data.address if data is not None else 0
    if not find_json_faults(address, offsets.ctypes.data, faults):
        return {}
    return {row: _FAULTS[int(faults[row])] for row in np.flatnonzero(faults).tolist()}


def _offsets(bodies: pa.Array) -> npt.NDArray[np.int32]:
    """int32[rows + 1], position of each body in the array's data, and the end of the last body."""
    offsets = np.frombuffer(bodies.buffers()[1], np.int32)
    return offsets[bodies.offset : bodies.offset + len(bodies) + 1]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].removesuffix(" in row 0")
