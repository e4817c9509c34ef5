import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import MessageIllegalError
from reput.formats.properties import decode_properties, encode_properties, split_keys

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("data", "properties"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"a\x011\x02a\x012\x02", {"a": "2"}),
        (b"a\x011\x02a\x01\x02", {"a": "1"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"\x01b\x02a\x01\x02ab\x02\x02\x02c\x01d\x02", {"c": "d"}),
        (b"abc\x02d\x01e\x02", {"d": "e"}),
        (b"\x01\x01b\x02", {}),
        (b"a\xff\x01\xe4\xbd\x02b\x01c\x02", {"a\ufffd": "\ufffd", "b": "c"}),
    ],
)
def test_properties_are_read_as_rocketmq_reads_them(data, properties):
    assert decode_properties(data) == properties


def test_pairs_are_written_in_one_order_each_with_its_end():
    pairs = [("WAIT", "false"), ("b", "1"), ("KEYS", "k"), ("a", "2"), ("TAGS", "t"), ("UNIQ_KEY", "u")]
    text = b"UNIQ_KEY\x01u\x02TAGS\x01t\x02KEYS\x01k\x02b\x011\x02a\x012\x02WAIT\x01false\x02"
    assert encode_properties(pairs) == text


@given(st.dictionaries(TEXTS, TEXTS))
def test_pairs_come_back(properties):
    encoded = encode_properties(properties.items())
    assert decode_properties(encoded) == properties
    assert decode_properties(encoded[:-1]) == properties


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(data):
    assert all(name and value for name, value in decode_properties(data).items())


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("a\x01", "b", "name holds a separator"),
        ("a\x02", "b", "name holds a separator"),
        ("a", "\x01", "value holds a separator"),
        ("a", "\x02", "value holds a separator"),
        ("", "b", "name is empty"),
        ("a", "", "value is empty"),
        ("a", "\ud83d", "value holds a lone surrogate"),
        (1, "b", "name must be text, not int"),
        ("a", None, "value must be text, not NoneType"),
    ],
)
def test_a_pair_that_would_not_come_back_is_refused(name, value, reason):
    with pytest.raises(MessageIllegalError, match=reason):
        encode_properties([(name, value)])


@pytest.mark.parametrize(
    ("text", "keys"),
    [("", ()), ("k1", ("k1",)), ("k1  k2 订单", ("k1", "k2", "订单")), (" a ", ("a",)), ("a\tb", ("a\tb",))],
)
def test_keys_are_cut_at_single_blanks(text, keys):
    assert split_keys(text) == keys
