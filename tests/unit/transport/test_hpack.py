"""Header blocks: the examples of RFC 7541, an encoder as the oracle, and bytes that are no block."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.formats.hpack import END_SYMBOL, HUFFMAN_CODES, STATIC_FIELDS, TABLE_SIZE
from reput.formats.http2 import ErrorCode
from reput.transport.hpack import MOST_HEADERS, HeaderDecoder, HeaderEncoder, decode_huffman, encode_message
from reput.transport.http2_frames import Http2Error
from tests.oracles.hpack_encoder import PeerEncoder, encode_huffman

Fields = list[tuple[str, str]]

#: RFC 7541, appendix C: blocks of one connection in hexadecimal digits, the fields of each, and the size of the table.
_WWW = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")]
_THIRD = [
    (":method", "GET"), (":scheme", "https"), (":path", "/index.html"), (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
]  # fmt: skip
_ANSWER = [
    (":status", "302"), ("cache-control", "private"), ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
    ("location", "https://www.example.com"),
]  # fmt: skip
_ANSWERS = [
    _ANSWER,
    [(":status", "307"), *_ANSWER[1:]],
    [
        (":status", "200"), ("cache-control", "private"), ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"), ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
]  # fmt: skip
EXAMPLES: dict[str, list[tuple[str, Fields, int]]] = {
    "C.2.1": [("400a637573746f6d2d6b65790d637573746f6d2d686561646572", [("custom-key", "custom-header")], 55)],
    "C.2.2": [("040c2f73616d706c652f70617468", [(":path", "/sample/path")], 0)],
    "C.2.3": [("100870617373776f726406736563726574", [("password", "secret")], 0)],
    "C.2.4": [("82", [(":method", "GET")], 0)],
    "C.3": [
        ("828684410f7777772e6578616d706c652e636f6d", _WWW, 57),
        ("828684be58086e6f2d6361636865", [*_WWW, ("cache-control", "no-cache")], 110),
        ("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565", _THIRD, 164),
    ],
    "C.4": [
        ("828684418cf1e3c2e5f23a6ba0ab90f4ff", _WWW, 57),
        ("828684be5886a8eb10649cbf", [*_WWW, ("cache-control", "no-cache")], 110),
        ("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf", _THIRD, 164),
    ],
    "C.5": [
        (
            "3fe101" "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e17"
            "68747470733a2f2f7777772e6578616d706c652e636f6d",
            _ANSWERS[0], 222,
        ),
        ("4803333037c1c0bf", _ANSWERS[1], 222),
        (
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48"
            "514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
            _ANSWERS[2], 215,
        ),
    ],
    "C.6": [
        (
            "3fe101" "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8"
            "e9ae82ae43d3",
            _ANSWERS[0], 222,
        ),
        ("4883640effc1c0bf", _ANSWERS[1], 222),
        (
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27"
            "087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            _ANSWERS[2], 215,
        ),
    ],
}  # fmt: skip


def decoded(decoder: HeaderDecoder, block: bytes) -> Fields:
    return [(name, value) for name, value, _ in decoder.decode(block)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_rfc(name: str) -> None:
    """Those of C.5 and C.6 have a table of 256 bytes, which the first block says here."""
    decoder = HeaderDecoder()
    for digits, fields, size in EXAMPLES[name]:
        assert decoded(decoder, bytes.fromhex(digits)) == fields
        assert decoder._size == size


def test_the_tables_are_those_of_the_rfc() -> None:
    assert len(STATIC_FIELDS) == 61
    assert STATIC_FIELDS[0] == (":authority", "")
    assert STATIC_FIELDS[60] == ("www-authenticate", "")
    codes = {symbol: (code, bits) for symbol, code, bits in HUFFMAN_CODES}
    assert len(codes) == 257
    assert codes[ord("0")] == (0x0, 5)
    assert codes[ord("z")] == (0x7B, 7)
    assert codes[0] == (0x1FF8, 13)
    assert codes[255] == (0x3FFFFEE, 26)
    assert codes[22] == (0x3FFFFFFE, 30)
    assert codes[END_SYMBOL] == (0x3FFFFFFF, 30)


@given(st.binary(max_size=300))
def test_each_text_comes_back_from_its_huffman_code(data: bytes) -> None:
    assert decode_huffman(encode_huffman(data)) == data.decode("latin-1")


NAMES = st.sampled_from(["x-mq-client-id", "grpc-timeout", "user-agent", ":path", "te", "a", "x-" + "n" * 200])
VALUES = st.text(st.characters(codec="latin-1", exclude_characters="\0\r\n"), max_size=200)


@given(st.lists(st.lists(st.tuples(NAMES, VALUES), max_size=20), max_size=8), st.integers())
def test_blocks_of_any_peer_are_decoded(blocks: Sequence[Sequence[tuple[str, str]]], seed: int) -> None:
    """The oracle chooses among all representations, and changes the size of its table."""
    encoder, decoder = PeerEncoder(random.Random(seed)), HeaderDecoder()
    for fields in blocks:
        assert decoded(decoder, encoder.encode(fields)) == list(fields)
        assert decoder._size == encoder.size <= TABLE_SIZE


def outcome(decoder: HeaderDecoder, block: bytes) -> Fields | ErrorCode:
    try:
        return decoded(decoder, block)
    except Http2Error as error:
        return error.code


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_are_fields_or_an_error_of_http2(before: bytes, data: bytes) -> None:
    decoder = HeaderDecoder()
    for block in (before, data):
        fields = outcome(decoder, block)
        if isinstance(fields, list):
            assert sum(len(name) + len(value) for name, value in fields) <= MOST_HEADERS
        else:
            assert fields in (ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM)
        assert 0 <= decoder._size <= TABLE_SIZE
        assert decoder._size == sum(size for _, _, size in decoder._table)


def test_a_block_that_is_cut_is_an_error_or_fewer_fields() -> None:
    fields = [("x-mq-client-id", "me"), ("grpc-timeout", "10S"), ("te", "trailers")]
    block = PeerEncoder(random.Random(1)).encode(fields)
    for end in range(len(block)):
        assert outcome(HeaderDecoder(), block[:end]) in (ErrorCode.COMPRESSION_ERROR, fields[:1], fields[:2], [])


@pytest.mark.parametrize(
    "field", [("X-Upper", "1"), ("x blank", "1"), ("x", "a\nb"), ("x", "a\rb"), ("x", "a\0b"), ("", "1"), (":", "1")]
)
def test_a_field_that_is_malformed_has_no_name_and_leaves_the_table_right(field: tuple[str, str]) -> None:
    encoder, decoder = PeerEncoder(random.Random(0), always_adds=True), HeaderDecoder()
    decoder.decode(encoder.encode([field, ("x-next", "1")]))
    assert decoder._size == encoder.size
    assert [name for name, _, _ in decoder.decode(encoder.encode([field, ("x-next", "1")]))] == ["", "x-next"]


# -- answers


def test_answers_of_a_connection_are_a_few_bytes_after_the_first_one() -> None:
    encoder, decoder = HeaderEncoder(), HeaderDecoder()
    for _ in range(3):
        begin, end = encoder.begin(), encoder.end(0, "")
        assert decoded(decoder, begin) == [(":status", "200"), ("content-type", "application/grpc")]
        assert decoded(decoder, end) == [("grpc-status", "0")]
    assert (len(begin), len(end)) == (2, 1)
    assert decoded(decoder, encoder.end(13, "no é%")) == [("grpc-status", "13"), ("grpc-message", "no %C3%A9%25")]
    assert decoded(decoder, encoder.http_status(415)) == [(":status", "415")]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_peer_with_a_small_table_gets_no_index(is_late: bool) -> None:
    encoder, decoder = HeaderEncoder(), HeaderDecoder()
    if is_late:
        decoder.decode(encoder.begin())
    encoder.set_table_size(100)
    for _ in range(2):
        assert decoded(decoder, encoder.end(0, "")) == [("grpc-status", "0")]
        assert decoded(decoder, encoder.begin())[-1] == ("content-type", "application/grpc")
        assert decoder._size == 0


def test_a_text_for_people_is_cut() -> None:
    assert len(encode_message("x" * 5000)) == 1000
    assert encode_message("\ud800") == "?"
