"""Fields of JSON bodies of a sample, and the schema that is inferred from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.errors import ConfigError
from reput.jobs.json_bodies import json_faults, parse_in_ranges, read_json_bodies, with_small_integers

#: A body without this many digits in a row has no integer beyond 64 bits.
_MAY_BE_LARGE = "[0-9]{19}"


#: Fields of a schema that is inferred, and of each object in it. Names of more are taken for data, as ids in a map.
MOST_FIELDS = 2000

#: Cells of all columns that are parsed at once. The more, the longer take bodies with fields of their own.
_MOST_CELLS = 512 << 10

#: What Iceberg's paths have for the items of a list.
_ELEMENT = ".element"


def is_name(name: str) -> bool:
    """Whether all engines and tables take a field's name: one ends before a zero byte for them, and is not empty."""
    return bool(name) and "\0" not in name


class SampledFields:
    """Types of the fields of bodies, with the count of values of each type. Picklable, and small.

    Attributes:
        bodies: count of bodies that were looked at.
        fault: why a body is no JSON object; None if all are.
    """

    def __init__(self) -> None:
        self.bodies = 0
        self.fault: str | None = None
        self._types: dict[str, Counter[pa.DataType]] = {}

    def add(self, bodies: pa.Array) -> None:
        """Look at a binary array of bodies."""
        self.bodies += len(bodies)
        faults = json_faults(bodies)
        rows = np.delete(np.arange(len(bodies)), list(faults))
        objects = _with_small_integers(bodies.take(pa.array(rows)))
        refused: dict[int, str] = {}
        for _, values in parse_in_ranges(objects, _read, refused, most_cells=_MOST_CELLS):
            self._count(values)
        self._count_by_fields(objects.take(pa.array(list(refused), pa.int64())).to_pylist())
        if self.fault is None:
            self.fault = next(iter([*faults.values(), *refused.values()]), None)

    def _count(self, values: pa.StructArray) -> None:
        for field, column in zip(values.type, values.flatten(), strict=True):
            if not is_name(field.name):
                continue
            counts = self._types.setdefault(field.name, Counter())
            if (kind := _known(field.type)) is not None:
                counts[kind] += len(column) - column.null_count

    def _count_by_fields(self, bodies: Iterable[bytes]) -> None:
        """Look at each field alone: Arrow refuses a whole body for one field, as a list of several types."""
        texts: dict[str, list[bytes]] = {}
        for body in bodies:
            try:
                fields = json.loads(body)
            except (ValueError, RecursionError):
                continue
            for name, value in fields.items():
                texts.setdefault(name, []).append(json.dumps({name: value}).encode())
        for of_one_field in texts.values():
            some = pa.array(of_one_field, pa.binary())
            for _, values in parse_in_ranges(some, _read, {}, most_cells=_MOST_CELLS):
                self._count(values)

    def merge(self, later: SampledFields) -> None:
        """Add the counts of bodies that come after these in the log."""
        self.bodies += later.bodies
        self.fault = self.fault or later.fault
        for name, counts in later._types.items():
            self._types.setdefault(name, Counter()).update(counts)

    def schema(self) -> pa.Schema:
        """Schema of the fields, in the order of their first bodies; without fields if no body has a value.

        Numbers of which one has a fraction are doubles; integers are of 64 bits, and larger ones do not fit. If
        types do not agree otherwise, the type of the most values counts: bodies with another type do not fit the
        schema. Names are as in the bodies: not every table takes all of them (`grown_fields`). Of more than
        `MOST_FIELDS` those with the most values are there; an object with so many is left out.
        """
        values = {name: counts.total() for name, counts in self._types.items() if counts}
        most = set(sorted(values, key=lambda name: -values[name])[:MOST_FIELDS])
        kinds = {name: _known(_common_type(counts)) for name, counts in self._types.items() if name in most}
        return pa.schema([pa.field(name, kind) for name, kind in kinds.items() if kind is not None])


def infer_schema(bodies: Iterable[pa.Array]) -> pa.Schema:
    """Infer the schema that most JSON bodies of a sample fit, as `SampledFields.schema`.

    Times stay strings. A field that is null or empty in every body is left out: its type is unknown.

    Raises ConfigError if no body is a JSON object with a value.
    """
    fields = SampledFields()
    for batch in bodies:
        fields.add(batch)
    schema = fields.schema()
    if not len(schema):
        raise no_schema(fields)
    return schema


def grown_fields(known: Iterable[pa.Field], found: Iterable[pa.Field]) -> list[pa.Field]:
    """Fields that are known, each with its type, and the found fields that are new and that every table takes.

    Left out are what is no name (`is_name`), and one that differs from another only in upper and lower case, or that is
    the path of another with points: `a.b` beside the field `b` of `a`. Engines, Delta and Iceberg take those for one.
    """
    fields = list(known)
    return _grown(fields, found, "", {path.casefold() for path in _paths(fields, "")})


def _paths(fields: Iterable[pa.Field], prefix: str) -> Iterator[str]:
    for field in fields:
        path, kind = f"{prefix}{field.name}", field.type
        yield path
        while pa.types.is_list(kind):
            path, kind = path + _ELEMENT, kind.value_type
            yield path
        if pa.types.is_struct(kind):
            yield from _paths(kind, f"{path}.")


def _grown(known: Iterable[pa.Field], found: Iterable[pa.Field], prefix: str, taken: set[str]) -> list[pa.Field]:
    fields = {field.name: field for field in known}
    for field in found:
        path = f"{prefix}{field.name}"
        mine = fields.get(field.name)
        if mine is not None:
            fields[field.name] = mine.with_type(_grown_type(mine.type, field.type, path, taken))
        elif is_name(field.name) and len(fields) < MOST_FIELDS and path.casefold() not in taken:
            taken.add(path.casefold())
            if (kind := _grown_type(None, field.type, path, taken)) is not None:
                fields[field.name] = field.with_type(kind)
    return list(fields.values())


def _grown_type(known: pa.DataType | None, found: pa.DataType, path: str, taken: set[str]) -> pa.DataType | None:
    """A field's type with the new fields in it; `known` is None for a new field. None for one without any field."""
    if pa.types.is_struct(found) and (known is None or pa.types.is_struct(known)):
        fields = _grown(() if known is None else known, found, f"{path}.", taken)
        return pa.struct(fields) if fields else None
    if pa.types.is_list(found) and (known is None or pa.types.is_list(known)):
        taken.add((path + _ELEMENT).casefold())
        item = _grown_type(None if known is None else known.value_type, found.value_type, path + _ELEMENT, taken)
        return None if item is None else pa.list_(item)
    return found if known is None else known


def no_schema(fields: SampledFields) -> ConfigError:
    """Error that says why a sample gives no schema."""
    if not fields.bodies:
        reason = "the sample is empty"
    elif fields.fault is not None:
        reason = f"no body of the sample is JSON: {fields.fault}"
    else:
        reason = "the bodies of the sample have no field of a known type"
    return ConfigError(f"schema: {reason}; give a schema, or decode raw or utf8")


def _common_type(counts: Counter[pa.DataType]) -> pa.DataType:
    """Type that the most values have, made wider for values of other types if that is possible."""
    common = pa.schema([pa.field("", pa.null())])
    for kind, _ in counts.most_common():
        try:
            common = pa.unify_schemas([common, pa.schema([pa.field("", kind)])], promote_options="permissive")
        except pa.ArrowException:  # values of this type do not fit
            continue
    return common.field(0).type


def _with_small_integers(bodies: pa.Array) -> pa.Array:
    """Bodies with other integers in place of those beyond 64 bits, which Arrow takes for doubles."""
    if not pc.any(pc.match_substring_regex(bodies, _MAY_BE_LARGE)).as_py():
        return bodies
    return pa.array([with_small_integers(body, _is_of_64_bits) for body in bodies.to_pylist()], pa.binary())


def _is_of_64_bits(number: int) -> bool:
    return -(1 << 63) <= number < 1 << 63


def _read(bodies: pa.Array) -> pa.StructArray:
    return read_json_bodies(bodies, None)


def _known(kind: pa.DataType) -> pa.DataType | None:
    """A type without fields that are null or empty in every body; None if no field is left, or there are too many.

    Times are strings: Arrow may take a text for a time.
    """
    if pa.types.is_null(kind):
        return None
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        item = _known(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(kind):
        if kind.num_fields > MOST_FIELDS:
            return None
        fields = [
            pa.field(field.name, known)
            for field in kind
            if is_name(field.name) and (known := _known(field.type)) is not None
        ]
        return pa.struct(fields) if fields else None
    return kind
