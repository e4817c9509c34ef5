import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import ConfigError
from reput.jobs import decoding
from reput.jobs.body_schema import body_schema_text, parse_body_schema
from reput.jobs.decoding import JsonDecoder, RawDecoder, Utf8Decoder, make_decoder
from reput.jobs.json_bodies import read_json_bodies
from tests.support.body_array import body_array

SCHEMA = parse_body_schema("a bigint, b string, c double")


def decode(decoder, *texts):
    values, reasons = decoder.decode(body_array(*texts))
    return values.to_pylist(), reasons.to_pylist()


def row(a=None, b=None, c=None):
    return {"a": a, "b": b, "c": c}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": 1, "b": "x", "c": 1.5}', row(1, "x", 1.5)),
        (b"{}", row()),
        (b' \t\r\n{"a":1}\n', row(1)),
        (b'{"a":\n1,\n"b":"}{"}', row(1, "}{")),
        (b'{"b":"\\"}{\\\\"}', row(b='"}{\\')),
        (b'{"b":"\\n\\u8ba2"}', row(b="\n\u8ba2")),
        ('{"b":"\u8ba2\u5355"}'.encode(), row(b="\u8ba2\u5355")),
        (b'{"a":null,"z":[{"y":"]"}]}', row()),
        (b'{"c":2}', row(c=2.0)),
        (b'{"a":9007199254740993,"c":9007199254740992,"z":9007199254740993}', row(2**53 + 1, c=2.0**53)),
        (b'{"c":%d}' % 2**200, row(c=2.0**200)),
        (b'{"c":1.00000000000000000000009007199254740993e300}', row(c=1e300)),
        (b'{"b":"NaN \\" Infinity","Name":true,"c":1E2}', row(b='NaN " Infinity', c=100.0)),
    ],
)
def test_an_object_becomes_a_row(body, value):
    assert decode(JsonDecoder(SCHEMA), body) == ([value], [None])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b" ", "empty"),
        (b"x", "no JSON object"),
        (b"[1]", "no JSON object"),
        (b"null", "no JSON object"),
        (b'\xef\xbb\xbf{"a":1}', "no JSON object"),
        (b'{"a":1', "not closed"),
        (b'{"b":"', "not closed"),
        (b'{"b":"\\', "not closed"),
        (b'{"a":1}{"a":2}', "after the end"),
        (b'{"a":1}\n{"a":2}', "after the end"),
        (b'{"a":1}\0', "control byte"),
        (b'{"b":"x\ny"}', "control byte"),
        (b'{"a":1]', "Missing a comma"),
        (b'{"a":1,}', "Missing a name"),
        (b'{"a":1.5}', "convert JSON to int64"),
        (b'{"a":"1"}', "from number to string"),
        (b'{"a":1,"a":2}', "twice"),
        (
            b'{"a":99999999999999999999}',
            "convert JSON to int64, couldn't parse:99999999999999999999; decimal(20,0) holds",
        ),
        (b'{"a":-%d}' % 10**30, "--schema 'TOPIC=FIELD decimal(31,0)'"),
        (b'{"c":9007199254740993}', "the field c that its type does not hold; decimal(38,18) does: --schema"),
        (b'{"c":18446744073709551615}', "the field c that its type does not hold"),
        *[(b'{"c":%s}' % text, "NaN or Infinity") for text in (b"NaN", b"-NaN", b"Infinity", b"-Infinity", b"Inf")],
        (b'{"z":{"y":[1,NaN]}}', "NaN or Infinity"),
        (b'{"b":"\xff"}', "UTF8"),
        (b'{"z":"\xff"}', "UTF8"),
        (b'{"b":"\\ud800"}', "surrogate"),
    ],
)
def test_what_is_no_such_object_is_null_and_says_why(body, reason):
    values, reasons = decode(JsonDecoder(SCHEMA), b'{"a":1}', body, b'{"a":2}')
    assert values == [row(1), None, row(2)]
    assert reasons[0] is reasons[2] is None
    assert reason in reasons[1]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"id":1}', None),
        (b'{"id":1,"x":null,"y":[],"z":{"w":[null]},"s":{"t":null},"l":[{"v":{}}]}', None),
        (b'{"id":1,"x":0}', "x"),
        (b'{"id":1,"x":""}', "x"),
        (b'{"id":1,"s":{"u":"a","t":true}}', "s.t"),
        (b'{"id":1,"l":[{"k":1},{"v":2}]}', "l.v"),
        (b'{"id":1,"y":[[],["2026-01-01"]]}', "y"),
    ],
)
def test_a_value_in_a_field_that_an_inferred_schema_lacks_is_not_lost(body, path):
    decoder = JsonDecoder(parse_body_schema("id bigint, s struct<u: string>, l array<struct<k: int>>"), True)
    values, reasons = decode(decoder, b'{"id":7,"s":{"u":"b"}}', body, b'{"l":[{"k":9}],"x":null}')
    assert [value is None for value in values] == [False, path is not None, False]
    assert (values[0]["id"], values[2]["l"]) == (7, [{"k": 9}])
    assert reasons[1] == (path and f"a value in the field {path}, which the schema lacks")


def test_a_list_of_an_unknown_type_that_begins_with_null_is_not_lost():
    values, reasons = decode(JsonDecoder(SCHEMA, True), b'{"a":1}', b'{"y":[null,2]}', b'{"a":2,"y":[]}')
    assert values == [row(1), None, row(2)]
    assert reasons[1] == "a list that begins with null, in a field that the schema lacks"


def test_a_schema_without_fields_decodes_no_body():
    values, reasons = decode(JsonDecoder(pa.schema([]), True), b"{}", b"x", b'{"a":1}', b'{"a":null}')
    assert values == [None] * 4
    assert reasons[0] == reasons[3] == "an object without values"
    assert "no JSON object" in reasons[1]
    assert "the field a" in reasons[2]


FRAGMENTS = [
    b'{"a":1}',
    b'{"z":1}',
    b'{"z":"2026-01-01"}',
    b'{"a":',
    b"1}",
    b'"',
    b"\\",
    b"}",
    b"{",
    b"[",
    b"]",
    b",",
    b'"b"',
    b":",
    b"\n",
    b"\xff",
    b" ",
]


@pytest.mark.parametrize("refuses_others", [False, True])
@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=5).map(b"".join), max_size=12))
def test_a_body_decodes_alike_alone_and_beside_any_others(refuses_others, texts):
    decoder = JsonDecoder(SCHEMA, refuses_others)
    together = decode(decoder, *texts)
    alone = [decode(decoder, text) for text in texts]
    assert together == ([values[0] for values, _ in alone], [reasons[0] for _, reasons in alone])


@given(st.lists(st.fixed_dictionaries({}, optional={"a": st.integers(-(2**63), 2**63 - 1), "b": st.text()})))
def test_what_python_writes_is_read(objects):
    texts = [json.dumps(one, indent=1, ensure_ascii=i % 2 == 0).encode() for i, one in enumerate(objects)]
    assert decode(JsonDecoder(SCHEMA), *texts) == ([row() | one for one in objects], [None] * len(objects))


def test_a_number_beyond_the_range_of_a_float_is_told():
    values, reasons = decode(JsonDecoder(parse_body_schema("c float")), b'{"c":1e38}', b'{"c":-1e39}', b'{"c":0.1}')
    assert [value is None for value in values] == [False, True, False]
    assert "a number in the field c that its type does not hold" in reasons[1]


LARGE = st.integers(-(2**70), 2**70) | st.builds(
    lambda near, far: near + far, st.sampled_from([2**24, -(2**53), 2**63, 10**39]), st.integers(-3, 3)
)
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.mark.parametrize("refuses_others", [False, True])
@pytest.mark.parametrize(("kind", "made"), [("double", np.float64), ("float", np.float32)])
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "l": st.lists(LARGE | st.just(0.5), min_size=1),
                "s": st.fixed_dictionaries({"x": LARGE | FRACTIONS, "y": st.text()}),
            },
        )
    )
)
def test_an_integer_is_the_same_number_or_its_body_is_told(refuses_others, kind, made, objects):
    decoder = JsonDecoder(parse_body_schema(f"l array<{kind}>, s struct<x: {kind}, y: string>"), refuses_others)
    values, reasons = decode(decoder, *[json.dumps(one).encode() for one in objects])
    for one, value, reason in zip(objects, values, reasons, strict=True):
        numbers = {"l": one.get("l", []), "s.x": [one["s"]["x"]] if "s" in one else []}
        with np.errstate(over="ignore"):
            changed = [path for path, some in numbers.items() if any(float(made(number)) != number for number in some)]
        assert (value is None) == (reason is not None) == bool(changed)
        if value is not None:
            assert value == {"l": None, "s": None} | one
        else:
            assert f"field {changed[-1]} " in reason


def test_a_part_of_an_array_is_decoded_as_the_array_is():
    array = body_array(b"x", b'{"a":1}', b"y", b'{"a":2}', b"z").slice(1, 3)
    values, reasons = JsonDecoder(SCHEMA).decode(array)
    assert values.to_pylist() == [row(1), None, row(2)]
    assert [reason is None for reason in reasons.to_pylist()] == [True, False, True]


def test_bytes_that_are_no_utf8_are_told():
    values, reasons = decode(Utf8Decoder(), b"x", b"\xff", b"", "\u8ba2".encode())
    assert values == ["x", None, "", "\u8ba2"]
    assert [reason is None for reason in reasons] == [True, False, True, True]


def test_raw_bodies_stay_as_they_are():
    assert decode(RawDecoder(), b"x", b"\xff") == ([b"x", b"\xff"], [None, None])


@pytest.mark.parametrize(("decoder", "decoded"), [(RawDecoder(), True), (Utf8Decoder(), False)])
def test_a_body_that_is_still_compressed_is_not_decoded(decoder, decoded):
    values, reasons = decoder.decode(body_array(b"x", b"y"), pa.array(["BAD_PROPERTY_CRC,BODY_UNDECODED", "OK"]))
    assert values.is_valid().to_pylist() == [decoded, True]
    assert reasons.is_null().to_pylist() == [decoded, True]


@pytest.mark.parametrize("decoder", [RawDecoder(), Utf8Decoder(), JsonDecoder(SCHEMA)])
def test_nothing_decodes_to_nothing_of_the_same_type(decoder):
    values, reasons = pickle.loads(pickle.dumps(decoder)).decode(body_array())
    assert values.type == decoder.type
    assert len(values) == len(reasons) == 0


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("id LONG, price double", "id bigint, price double"),
        ("`a b``c` string", "`a b``c` string"),
        (
            "d decimal(10, 2),l array< struct<x: int, y boolean> >",
            "d decimal(10,2), l array<struct<x: int, y: boolean>>",
        ),
        ("at timestamp,s tinyint,t smallint,f float", "at timestamp, s tinyint, t smallint, f float"),
        ("\u4ef7\u683c double", "\u4ef7\u683c double"),
    ],
)
def test_a_schema_is_a_text_and_back(text, again):
    assert body_schema_text(parse_body_schema(text)) == again
    assert parse_body_schema(again) == parse_body_schema(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected the name of a field, found the end"),
        ("id", "expected a type, found the end"),
        ("id bigint,", "expected the name of a field"),
        ("id number", "found 'number'"),
        ("id bigint price double", "a comma or the end, found 'price double'"),
        ("l array<int", "expected >"),
        ("s struct<>", "expected the name"),
        ("d decimal(50,2)", "at most 38"),
        ("id int, id int", "id is named twice"),
        ("m map<string,string>", "known are"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(text, reason):
    with pytest.raises(ConfigError, match=reason):
        parse_body_schema(text)


@pytest.mark.parametrize(
    ("name", "schema", "reason"),
    [
        ("xml", None, "none of raw, utf8, json, avro, protobuf"),
        ("utf8", "a int", "have none"),
        ("json", None, "needs one"),
        ("json", pa.schema([("a", pa.map_(pa.string(), pa.string()))]), "not decoded to map"),
    ],
)
def test_a_decoder_that_cannot_be_is_refused(name, schema, reason):
    with pytest.raises(ConfigError, match=reason):
        make_decoder(name, schema)


def test_a_decoder_infers_its_schema_where_none_is_given():
    assert make_decoder("json", None, lambda: [body_array(b'{"a":1}')]) == JsonDecoder(parse_body_schema("a bigint"))


def test_bodies_that_fit_the_schema_are_parsed_at_once_though_others_are_refused(monkeypatch):
    asked = []

    def read(bodies, *more):
        asked.append(len(bodies))
        return read_json_bodies(bodies, *more)

    monkeypatch.setattr(decoding, "read_json_bodies", read)
    monkeypatch.setattr(decoding, "_MOST_CELLS", 1)
    decoder = JsonDecoder(pa.schema([("a", pa.int64())]), refuses_others=True)
    fitting = [b'{"a":%d}' % number for number in range(100)]
    assert decoder.decode(pa.array(fitting, pa.binary())).values.to_pylist() == [{"a": number} for number in range(100)]
    assert asked == [100]
    mixed = [*fitting, b'{"a":1,"b":null}', b'{"a":1,"b":2}']
    found = decoder.decode(pa.array(mixed, pa.binary()))
    assert found.reasons.to_pylist() == [None] * 101 + ["a value in the field b, which the schema lacks"]
    assert found.values.to_pylist() == [*({"a": number} for number in range(100)), {"a": 1}, None]
