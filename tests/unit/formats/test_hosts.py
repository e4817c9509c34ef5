import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.client.instance.name_servers import name_server_addresses
from reput.config.arguments import check_address
from reput.config.broker import BrokerConfig
from reput.errors import ConfigError, MessageIllegalError, RemotingError
from reput.formats.hosts import decode_host, encode_host, is_address
from reput.transport.client import host_and_port


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


ADDRESSES = ["localhost:1", "127.0.0.1:9876", "[::1]:9876", "a.b-c_d:65535", "überall:80"]
NO_ADDRESSES = [
    *("", ":", "9876", ":9876", "a", "a:", "a:0", "a:-1", "a:65536", "a:1x", "a:٣", "a: 1", "a:000009876"),
    *("http://a:1", "a b:1", "a@b:1", "a\0b:1", "a\n:1", "\ud800:1", f"a:{'9' * 5000}"),
]


@pytest.mark.parametrize("text", ADDRESSES)
def test_a_host_and_a_port_are_an_address(text):
    assert is_address(text)


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_has_no_host_or_no_port_is_no_address_to_anybody(text):
    assert not is_address(text)
    with pytest.raises(ConfigError, match=r"^address .*: expected HOST:PORT"):
        check_address("address", text)
    with pytest.raises(RemotingError, match="expected HOST:PORT"):
        host_and_port(text)
    with pytest.raises(ConfigError, match="HOST:PORT"):
        name_server_addresses(text)
    if text.strip() and text.isprintable():  # a text with other characters is no value of any key
        with pytest.raises(ConfigError, match="HOST:PORT"):
            BrokerConfig(namesrv_addr=text)
        with pytest.raises(ConfigError, match="HOST:PORT"):
            BrokerConfig(ha_master_address=text)
