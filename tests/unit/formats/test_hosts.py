import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.errors import MessageIllegalError
from reput.formats.hosts import decode_host, encode_host


@pytest.mark.parametrize(
    ("text", "hex_bytes"),
    [
        ("192.168.1.10:54321", "c0a8010a0000d431"),
        ("0.0.0.0:0", "0000000000000000"),
        ("[2001:db8::1]:1234", "20010db8000000000000000000000001000004d2"),
        ("[::]:65535", "000000000000000000000000000000000000ffff"),
    ],
)
def test_hosts_are_address_and_four_byte_port(text, hex_bytes):
    assert encode_host(text).hex() == hex_bytes
    assert decode_host(bytes.fromhex(hex_bytes)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", "10.0.0.1:65536", "10.0.0.1:1x", "10.0.0.1:٣", "localhost:1"),
        *("10.0.0:1", "[10.0.0.1]:1", "2001:db8::1:1", "[2001:db8::1]", "[fe80::1%eth0]:1", "[2001:db8::1:1"),
    ],
)
def test_a_text_that_is_no_host_is_refused(text):
    with pytest.raises(MessageIllegalError, match=r"write 10\.0\.0\.1:10911"):
        encode_host(text)


@given(st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), st.integers(0, 65535))
def test_any_host_comes_back_from_its_text(address, port):
    host = address + port.to_bytes(4, "big")
    assert encode_host(decode_host(host)) == host


def test_a_port_out_of_range_is_shown_as_stored():
    assert decode_host(bytes.fromhex("01020304ffffffff")) == "1.2.3.4:-1"
