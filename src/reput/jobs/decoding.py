"""Decoders of message bodies: raw, UTF-8; JSON, Avro or Protobuf by a schema. A row not decoded has a reason.

The result for a row depends on its body alone: not on other rows of the batch, nor on how a log is cut into batches.
Bodies are expected as `read_log` gives them, decompressed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from reput.errors import ConfigError
from reput.extras import saying_the_extra

with saying_the_extra(__name__):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

from reput.jobs.avro_bodies import avro_reader, avro_type
from reput.jobs.body_schema import body_schema_text, parse_body_schema
from reput.jobs.json_bodies import (
    MOST_REASON,
    OtherFields,
    changed_numbers,
    json_faults,
    other_values,
    parse_in_ranges,
    read_json_bodies,
)
from reput.jobs.protobuf_bodies import ProtobufSchema, protobuf_reader, protobuf_type
from reput.jobs.sampled_fields import infer_schema

BodySchema: TypeAlias = pa.Schema | str | ProtobufSchema
#: Cells of all columns that are parsed at once, if bodies may have fields of their own: 256 MiB.
_MOST_CELLS = 32 << 20
#: Decoders to structs, by a schema.
TYPED = ("json", "avro", "protobuf")
#: Schema files as a user gives them.
SCHEMA_FILES = {"avro": "[TOPIC=]FILE.avsc", "protobuf": "[TOPIC=]FILE.desc:MESSAGE"}
_UNDECOMPRESSED = "a compressed body that cannot be decompressed"
_NO_VALUES = "an object without values"
#: End of the reason why a body with a number that a double or a float does not hold is rejected.
DECIMALS = "; decimal(38,18) does: --schema 'TOPIC=FIELD decimal(38,18)'"
#: End of the reason why a body with a value in a new field is rejected.
LACKS = ", which the schema lacks"


class Decoded(NamedTuple):
    """Values of decoded bodies, and the reasons of bodies that could not be decoded.

    Attributes:
        values: array of the decoder's type, null if a body could not be decoded.
        reasons: string array, why a body could not be decoded; null if the body was decoded.
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
        return _all(bodies)


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

    A field that a body lacks is null. A value of another type than the schema's (`1.5` or `"1"` for a bigint, for a
    double an integer that it does not hold) makes the whole body undecodable, and so does a field name given twice.

    Attributes:
        schema: of types that `parse_body_schema` knows. Without fields no body can be decoded.
        refuses_others: whether a value in a field that the schema lacks makes the body undecodable, too, so that no
            value is lost; False: the field is left out.
    """

    schema: pa.Schema
    refuses_others: bool = False

    @property
    def type(self) -> pa.DataType:
        """A struct."""
        return pa.struct(list(self.schema))

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """As `BodyDecoder.decode`."""
        if len(self.schema) and not self.refuses_others:
            return _decode(bodies, status, self.type, partial(self._parse, "ignore"), check=json_faults)
        return _decode(
            bodies, status, self.type, partial(self._parse, "infer"), check=json_faults,
            usual=partial(self._parse, "error"), most_cells=_MOST_CELLS,
        )  # fmt: skip

    def _parse(self, other_fields: OtherFields, bodies: pa.Array) -> Decoded:
        values = read_json_bodies(bodies, self.schema, other_fields)
        reasons = np.full(len(bodies), None if len(self.schema) else _NO_VALUES, object)
        for path, rows in other_values(values, self.type):
            reasons[rows] = f"a value in the field {path if path.isprintable() and path else repr(path)}{LACKS}"
        values = values.cast(self.type)
        for path, rows in changed_numbers(bodies, values):
            reasons[rows] = f"a number in the field {path} that its type does not hold{DECIMALS}"
        return Decoded(values, pa.array(reasons, pa.string()))


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """Decoder of Avro; `reput.jobs.avro_bodies` says of what, and by which types.

    Attributes:
        schema: text of an .avsc file.
    """

    schema: str

    @property
    def type(self) -> pa.DataType:
        """A struct."""
        return avro_type(self.schema)

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """As `BodyDecoder.decode`."""
        return _decode(bodies, status, self.type, partial(_read_each, avro_reader(self.schema), self.type, "Avro"))


@dataclass(frozen=True, slots=True)
class ProtobufDecoder:
    """Decoder of Protobuf; `reput.jobs.protobuf_bodies` says of what, and by which types."""

    schema: ProtobufSchema

    @property
    def type(self) -> pa.DataType:
        """A struct."""
        return protobuf_type(self.schema)

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """As `BodyDecoder.decode`."""
        read = partial(_read_each, protobuf_reader(self.schema), self.type, "Protobuf")
        return _decode(bodies, status, self.type, read)


@dataclass(frozen=True, slots=True)
class RefusingDecoder:
    """Decoder that decodes no body, for a reason."""

    reason: str

    @property
    def type(self) -> pa.DataType:
        """A struct without fields."""
        return pa.struct([])

    def decode(self, bodies: pa.Array, status: pa.Array | None = None) -> Decoded:
        """As `BodyDecoder.decode`."""
        return Decoded(pa.nulls(len(bodies), self.type), pa.repeat(pa.scalar(self.reason), len(bodies)))


def make_decoder(
    name: str, schema: BodySchema | None = None, sample: Callable[[], Iterable[pa.Array]] | None = None
) -> BodyDecoder:
    """Make a decoder by its name.

    Args:
        name: raw, utf8, json, avro or protobuf.
        schema: for json: an Arrow schema, or a text for `parse_body_schema`; None: inferred from the sample. For avro:
            the text of an .avsc file. For protobuf: a `ProtobufSchema`.
        sample: returns bodies (binary arrays) to infer a schema from.

    Raises ConfigError for another name, a schema with raw or utf8, and a schema that cannot be used or inferred.
    """
    if name not in ("raw", "utf8", *TYPED):
        raise ConfigError(f"decode: {name!r} is none of raw, utf8, {', '.join(TYPED)}")
    if name in ("raw", "utf8"):
        if schema is not None:
            raise ConfigError(f"schema: bodies decoded as {name} have none; decode them as json")
        return RawDecoder() if name == "raw" else Utf8Decoder()
    if name in ("avro", "protobuf"):
        return _of_schema_file(name, schema)
    if isinstance(schema, ProtobufSchema):
        raise ConfigError("schema: of a Protobuf message; decode bodies as protobuf")
    if isinstance(schema, str):
        schema = parse_body_schema(schema)
    if schema is None:
        if sample is None:
            raise ConfigError("schema: JSON needs one here: id bigint, price double, name string")
        schema = infer_schema(sample())
    return JsonDecoder(parse_body_schema(body_schema_text(schema)))  # names and types that can be kept as text


def _of_schema_file(name: str, schema: BodySchema | None) -> BodyDecoder:
    """Decoder of Avro or Protobuf; raises ConfigError if its schema cannot be used."""
    made: BodyDecoder
    if name == "avro" and isinstance(schema, str):
        made = AvroDecoder(schema)
    elif name == "protobuf" and isinstance(schema, ProtobufSchema):
        made = ProtobufDecoder(schema)
    else:
        raise ConfigError(f"schema: {name} needs a schema file: --schema-file {SCHEMA_FILES[name]}")
    assert made.type is not None  # checks the schema
    return made


def _read_each(read: Callable[[bytes], object], kind: pa.DataType, what: str, bodies: pa.Array) -> Decoded:
    """Values of bodies that are read one by one."""
    values: list[object] = []
    reasons: list[str | None] = []
    for body in bodies.to_pylist():
        try:
            values.append(read(body))
            reasons.append(None)
        except Exception as error:  # a body may be any bytes, and a reader raises what it meets
            values.append(None)
            reasons.append(f"no {what} of the schema: {str(error) or type(error).__name__}"[:MOST_REASON])
    try:
        return Decoded(pa.array(values, kind), pa.array(reasons, pa.string()))
    except OverflowError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _decode(
    bodies: pa.Array,
    status: pa.Array | None,
    kind: pa.DataType,
    parse: Callable[[pa.Array], Decoded],
    check: Callable[[pa.Array], dict[int, str]] | None = None,
    usual: Callable[[pa.Array], Decoded] | None = None,
    most_cells: int | None = None,
) -> Decoded:
    """Decode all bodies by calls of `parse`, which raises for a batch with any bad body, or gives the reasons.

    Args:
        check: returns the rows of bodies that `parse` must not see, with the reason of each.
        usual: as `parse`, but raises for what is not as in most batches; it is tried once, for all bodies.
        most_cells: as of `parse_in_ranges`.
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
    arrays = []
    for begin, decoded in _parsed(given, parse, refused, usual, most_cells):
        good = decoded.reasons.is_null()
        arrays.append(decoded.values if decoded.reasons.null_count == len(good) else decoded.values.filter(good))
        for row in np.flatnonzero(np.asarray(decoded.reasons.is_valid())).tolist():
            refused[begin + row] = decoded.reasons[row].as_py()
    reasons |= {int(rows[row]): reason for row, reason in refused.items()}
    values = arrays[0] if len(arrays) == 1 else pa.concat_arrays([*arrays, pa.nulls(0, kind)])
    if not reasons:
        return _all(values)
    bad = np.zeros(len(bodies), np.bool_)
    bad[list(reasons)] = True
    indices = pa.array(np.cumsum(~bad) - 1, mask=bad)
    texts = pa.array([reasons[row] for row in sorted(reasons)], pa.string())
    return Decoded(values.take(indices), texts.take(pa.array(np.cumsum(bad) - 1, mask=~bad)))


def _parsed(
    given: pa.Array,
    parse: Callable[[pa.Array], Decoded],
    refused: dict[int, str],
    usual: Callable[[pa.Array], Decoded] | None,
    most_cells: int | None,
) -> Iterable[tuple[int, Decoded]]:
    """Ranges of bodies as `parse_in_ranges` parses them, or all at once."""
    if usual is not None and len(given):
        with suppress(pa.ArrowException):
            return [(0, usual(given))]
    return parse_in_ranges(given, parse, refused, most_cells=most_cells)


def _all(values: pa.Array) -> Decoded:
    """Values of bodies that could all be decoded."""
    return Decoded(values, pa.nulls(len(values), pa.string()))


def _parse_text(bodies: pa.Array) -> Decoded:
    return _all(bodies.cast(pa.string()))
