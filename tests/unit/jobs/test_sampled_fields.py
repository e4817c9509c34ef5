import pickle
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import ConfigError
from reput.jobs import sampled_fields
from reput.jobs.body_schema import body_schema_text, parse_body_schema
from reput.jobs.json_bodies import read_json_bodies
from reput.jobs.sampled_fields import MOST_FIELDS, SampledFields, grown_fields, infer_schema
from tests.support.body_array import body_array


@pytest.mark.parametrize(
    ("texts", "schema"),
    [
        ([b'{"id":1,"n":1}', b'{"n":1.5,"at":"2026-11-21T07:13:00Z"}'], "id bigint, n double, at string"),
        ([b'{"at":"2026-11-21"}', b'{"at":"yesterday"}'], "at string"),
        ([b"x", b'{"ok":true,"no":null,"l":[],"m":[1],"s":{"x":"y","t":{}}}'],
         "ok boolean, m array<bigint>, s struct<x: string>"),
        ([b'{"a":1}', b'{"a":"x"}'], "a bigint"),
        ([b'{"a":1}', b'{"a":"x","b":true}', b'{"a":"y"}'], "a string, b boolean"),
        ([b'{"a":"x"}', b'{"a":1}', b'{"a":1.5}', b'{"a":2}'], "a double"),
        ([b'{"a":1,"b":[1]}', b'{"a":18446744073709551615,"b":[-9223372036854775809,1]}'], "a bigint, b array<bigint>"),
        ([b'{"a":"\\"18446744073709551615","s":{"b":%d}}' % 10**400], "a string, s struct<b: bigint>"),
        ([b'{"a":1}', b'{"a":18446744073709551615}', b'{"a":1.5}', b'{"b":1e20}', b'{"b":1}'], "a double, b double"),
    ],
)  # fmt: skip
def test_a_schema_is_inferred_that_most_values_of_a_sample_fit(texts, schema):
    assert body_schema_text(infer_schema([body_array(*texts)])) == schema
    assert infer_schema([body_array(text) for text in texts]) == parse_body_schema(schema)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([], "empty"),
        ([b"x", b"[1]"], "no body of the sample is JSON"),
        ([b"{}"], "no field"),
    ],
)
def test_a_sample_that_gives_no_schema_is_refused(texts, reason):
    with pytest.raises(ConfigError, match=reason):
        infer_schema([body_array(*texts)])


@given(
    st.lists(st.sampled_from([b'{"a":1}', b'{"a":0.5}', b'{"a":"x"}', b'{"b":[1]}', b'{"b":{}}', b"x"]), max_size=9),
    st.integers(0, 9),
)
def test_fields_of_two_samples_are_those_of_both_together(texts, border):
    whole, first, second = SampledFields(), SampledFields(), SampledFields()
    for fields, some in ((whole, texts), (first, texts[:border]), (second, texts[border:])):
        for text in some:
            fields.add(body_array(text))
    first.merge(pickle.loads(pickle.dumps(second)))
    assert (first.schema(), first.bodies, first.fault) == (whole.schema(), whole.bodies, whole.fault)


@pytest.mark.parametrize(
    "odd", [b'{"id": 1, "args": [1, "x"], "total": 2}', b'{"id": 1, "total": 2, "args": [{"a": 1}, {"a": "t"}]}']
)
@pytest.mark.parametrize("others", [[], [b'{"id": 2}', b"no", b'{"id": 3}']])
def test_a_field_without_a_type_takes_none_from_the_other_fields_of_its_body(odd: bytes, others: list[bytes]) -> None:
    assert body_schema_text(infer_schema([body_array(*others, odd)])) == "id bigint, total bigint"


def test_the_other_fields_of_bodies_with_such_a_field_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(
        sampled_fields, "read_json_bodies", lambda bodies, schema: reads.append(1) or read_json_bodies(bodies, schema)
    )
    bodies = [b'{"odd": [1, "x"], "a": %d, "b": "x", "c": {"d": 1.5}, "e": true, "f": [1]}' % row for row in range(200)]
    schema = infer_schema([body_array(*bodies)])
    assert body_schema_text(schema) == "a bigint, b string, c struct<d: double>, e boolean, f array<bigint>"
    assert len(reads) < 3 * len(bodies)  # each body and each odd field alone, and the others at once


def test_names_of_fields_that_are_data_make_no_schema_of_any_size() -> None:
    """As ids: each body has one of its own, and Arrow would make a column of each."""
    rows = range(MOST_FIELDS + 500)
    schema = infer_schema([body_array(*(b'{"a%d": 1, "id": %d}' % (row, row) for row in rows))])
    assert len(schema) == MOST_FIELDS
    assert schema.names[:3] == ["a0", "id", "a1"]
    bodies = [b'{"late": 1, "id": %d, "counts": {"a%d": 1}, "l": [{"b%d": 1}]}' % (row, row, row) for row in rows]
    assert body_schema_text(infer_schema([body_array(*bodies)])) == "late bigint, id bigint"


def test_the_fields_with_the_most_values_are_kept() -> None:
    rows = range(MOST_FIELDS + 500)
    schema = infer_schema([body_array(*(b'{"a%d": 1}' % row for row in rows), b'{"z": 1}', b'{"z": 2}')])
    assert "z" in schema.names


def test_a_schema_that_grows_ends_at_as_many_fields() -> None:
    known = [pa.field(f"a{number}", pa.int64()) for number in range(MOST_FIELDS - 1)]
    found = [pa.field(f"b{number}", pa.int64()) for number in range(3)]
    assert [field.name for field in grown_fields(known, found)[-2:]] == [f"a{MOST_FIELDS - 2}", "b0"]
    assert (
        len(grown_fields([pa.field("s", pa.struct(known))], [pa.field("s", pa.struct(found))])[0].type) == MOST_FIELDS
    )


def test_a_schema_of_many_fields_is_read_in_seconds() -> None:
    text = ", ".join(f"a{number} bigint" for number in range(20_000))
    begin = time.process_time()
    assert len(parse_body_schema(text)) == 20_000
    assert time.process_time() - begin < 5
