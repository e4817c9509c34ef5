import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import CorruptMetadataError
from reput.formats import fastjson
from reput.formats.fastjson import decode_fastjson, encode_fastjson
from reput.formats.metadata import TopicConfig, Topics, encode_metadata

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "config").glob("*/*.json"))
TEXT = st.text(max_size=12) | st.sampled_from(["{1:2}", '"', "\\", ",3:", "a\nb", "\u0085\u2028", "%RETRY%g", "$ref"])
NUMBERS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
        | st.just([])
        | st.dictionaries(TEXT.filter(lambda key: key != "$ref") | NUMBERS, inner, max_size=3)
    ),
    max_leaves=12,
)


#: Each array names the one before twenty times.
LAUGHS = (
    b'{"a0":[1]'
    + b"".join(b',"a%d":[%s]' % (level, b",".join([b'{"$ref":"$.a%d"}' % (level - 1)] * 20)) for level in range(1, 40))
    + b"}"
)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_rocketmq_wrote_is_written_back_byte_for_byte(path):
    data = path.read_bytes()
    if b"$ref" in data:  # written out instead
        data = encode_fastjson(decode_fastjson(data))
    assert encode_fastjson(decode_fastjson(data)) == data


@given(VALUES)
def test_any_value_comes_back(value):
    assert decode_fastjson(encode_fastjson(value)) == value


@given(VALUES)
def test_what_python_writes_is_read_too(value):
    text = json.dumps(value)
    assert decode_fastjson(text.encode()) == _as_json_has_it(json.loads(text))


def _as_json_has_it(value):
    """Lists on one line are tuples here."""
    if isinstance(value, list):
        return tuple(map(_as_json_has_it, value)) if value else []
    return {key: _as_json_has_it(one) for key, one in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{0:12,1:7\n\t}}', {"a": {0: 12, 1: 7}}),
        ('{ -5 : "{1:2}" , "7":",3:" }', {-5: "{1:2}", "7": ",3:"}),
        ('{"say \\"{0:1}\\"":1}', {'say "{0:1}"': 1}),
        ('{"\\\\":{1:"\\\\"}}', {"\\": {1: "\\"}}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('"\\u00fc\\ud83d\\ude00"', "ü😀"),
        ("[\n1,2]", [1, 2]),
        ("[1, 2]", (1, 2)),
        ("[1.5,1e3,-0,true,false,null]", (1.5, 1000.0, 0, True, False, None)),
        ('{"a":{"k":1},"b":{"$ref":"$.a"}}', {"a": {"k": 1}, "b": {"k": 1}}),
        (r'{"a.b-c":[0,{"k":1}],"z":{"$ref":"$.a\\.b\\-c[1]"}}', {"a.b-c": (0, {"k": 1}), "z": {"k": 1}}),
        ('{"q":{7:{"k":1}},"z":{"$ref":"$.q[7]"}}', {"q": {7: {"k": 1}}, "z": {"k": 1}}),
        ('{"":{"k":{"l":1}},"z":{"$ref":"$..k"}}', {"": {"k": {"l": 1}}, "z": {"l": 1}}),
    ],
)
def test_fastjsons_liberties_are_read(text, value):
    assert decode_fastjson(text.encode()) == value


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        (b"", 0, "found the end of the file"),
        (b'{"a":1', 6, "expected ',' or '}', found the end of the file"),
        (b'{"a":"x', 5, "expected a value"),
        (b'{"a" 1}', 5, "expected ':', found '1'"),
        (b'{"a":1} x', 8, "expected a value, found 'x'"),
        (b'{"a":1}{}', 7, "expected the end of the file, found '{'"),
        (b'{"\xff":1}', 2, "expected UTF-8, found byte 0xff"),
        ('{"ü":tru}'.encode(), 6, "expected a value, found 'tru}'"),
        (b"[1,,2]", 3, "expected a value, found ','"),
        (b"{1.5:2}", 1, "expected a key, found '1.5'"),
        (b"{a:2}", 1, "expected a value, found 'a:2}'"),
        (b'"\\q"', 0, "expected a string"),
        (b"[" * 5000, 101, "at most 100 levels"),
        (b"1" * 5000, 40, "expected the end of the file"),
        (b'{"a":{"$ref":"$.a"}}', 0, "leads to itself"),
        (b'{"a":{"$ref":"$.b"}}', 0, "the reference '$.b' names nothing"),
        (LAUGHS, 0, "its references make more than"),
        (b'{"a":{"$ref":"$.a[x]"}}', 0, "names nothing"),
        (b'{"a":{"$ref":".."}}', 0, "names nothing"),
    ],
)
def test_damage_is_told_with_its_place(data, position, reason):
    with pytest.raises(CorruptMetadataError) as caught:
        decode_fastjson(data)
    assert caught.value.offset == position
    assert reason in caught.value.reason


@given(st.binary(max_size=40) | TEXT.map(str.encode))
def test_no_bytes_raise_anything_else(data):
    with suppress(CorruptMetadataError):
        decode_fastjson(data)


def test_what_is_no_number_is_written_as_null_and_other_things_are_refused():
    assert encode_fastjson([float("nan"), float("inf")]) == b"[\n\tnull,\n\tnull\n]"
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        encode_fastjson(b"x")


def test_half_a_surrogate_pair_is_escaped():
    assert encode_fastjson("\ud800") == b'"\\uD800"'
    assert decode_fastjson(b'"\\uD800"') == "\ud800"


def test_a_text_without_its_end_is_refused_in_one_pass() -> None:
    with pytest.raises(CorruptMetadataError):  # one more letter took twice the time: with forty the test never ends
        decode_fastjson(b'{"' + b"a" * 100_000)


PIECES = (
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"a"',
        '"b":',
        '"$ref":',
        '"x\ny"',
        '"\x00"',
        '"\\u0041"',
        '{"a":1}',
        '{"a":{},"a":3}',
    ),
    *(
        "1",
        "-0",
        "1.5",
        "1e5",
        "1E400",
        "007",
        "-",
        "1.",
        "1e-0000000001",
        "1" * 40,
        "1" * 41,
        "0." + "1" * 401,
        "\uff11",
    ),
    *("NaN", "-Infinity", "true", "null", "truex", " ", "\n", "\r", "\ufeff", "\u00a0", "\x0c"),
)
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


def _refuse_all(_: str) -> None:
    raise ValueError


@given(
    TEXTS
    | TEXTS.map(lambda text: '{"k":' + text + "}")
    | st.integers(95, 105).map(lambda levels: '{"a":' * levels + "{}" + "}" * levels)
)
def test_the_decoder_of_json_and_the_reader_say_the_same(text):
    def outcome() -> str:
        try:
            return repr(decode_fastjson(text.encode()))
        except CorruptMetadataError as error:
            return str(error)

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastjson, "_loads", _refuse_all)
        assert outcome() == found


def test_a_file_of_topics_is_read_by_compiled_code(monkeypatch):
    """With 30,000 topics the reader took over a second for each new topic, and the first send of it failed."""
    data = encode_metadata(Topics({name: TopicConfig(name) for name in ("orders", "%RETRY%billing", "küche")}))
    read = decode_fastjson(data)
    monkeypatch.setattr(fastjson, "_Reader", lambda _: pytest.fail("read by Python's loop"))
    assert decode_fastjson(data) == read
