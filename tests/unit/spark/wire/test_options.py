"""Options of the format over the network."""

from __future__ import annotations

import pytest

from reput.errors import ConfigError
from reput.remoting.queue_tables import QueueKey
from reput.spark.options import is_wire
from reput.spark.wire.options import read_options, stream_options
from reput.transport.tls import ClientTls

GIVEN = {"namesrv": "127.0.0.1:9876", "subscribe": "orders"}
QUEUE = QueueKey("orders", "broker-a", 0)


def test_names_ignore_case_and_values_are_parsed() -> None:
    options = read_options(
        {
            "NameSrv": "a:1;b:2", "subscribepattern": "ord.*", "startingoffsets": '{"orders": {"broker-a:0": -2}}',
            "endingTimestamp": "2026-01-31T12:00:00Z", "minPartitions": "7", "failondataloss": "FALSE", "group": "g",
            "accessKey": "alice", "secretKey": "12345678", "tls.enable": "true", "tls.client.authServer": "false",
        }
    )  # fmt: skip
    assert options.access.namesrv == ("a:1", "b:2")
    assert options.subscribe_pattern is not None
    assert options.subscribe_pattern.fullmatch("orders")
    assert options.starting_offsets == {QUEUE: -2}
    assert (options.min_partitions, options.fail_on_data_loss, options.group) == (7, False, "g")
    assert options.access.tls == ClientTls(auth_server=False)
    assert options.access.credentials is not None
    assert options.access.credentials.access_key == "alice"


def test_a_secret_is_not_shown() -> None:
    secrets = {"accessKey": "alice", "secretKey": "open-sesame", "securityToken": "open-token"}
    options = read_options(GIVEN | secrets | {"tls.enable": "true", "tls.client.keyPassword": "open-key"})
    assert "open-" not in repr(options)
    with pytest.raises(ConfigError) as raised:
        read_options(GIVEN | {"secretKey": "open-sesame"})
    assert "open-" not in str(raised.value)


def test_the_option_namesrv_makes_the_format_read_at_brokers() -> None:
    assert is_wire({"NAMESRV": "a:1"})
    assert not is_wire({"path": "/store"})


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"subscribe": ""}, "no topic"),
        ({"subscribePattern": "o.*"}, "subscribe and subscribePattern: give one of the two"),
        ({"namesrv": "9876"}, "option namesrv: '9876' is no list of name servers"),
        ({"path": "/store"}, "no option 'path'"),
        ({"startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"startingOffsets": "newest"}, "neither earliest, latest"),
        ({"startingOffsets": '{"orders": 5}'}, "no offsets such as"),
        ({"startingOffsets": '{"orders": {"broker-a": 5}}'}, "no queue such as 'broker-a:0'"),
        ({"startingOffsets": '{"orders": {"broker-a:0": -3}}'}, "another offset than a number"),
        ({"startingOffsets": "latest", "startingTimestamp": "0"}, "startingOffsets and startingTimestamp"),
        ({"endingOffsets": "latest", "endingTimestamp": "0"}, "endingOffsets and endingTimestamp"),
        ({"minPartitions": "0"}, "no number above 0"),
        ({"accessKey": "alice"}, "accessKey and secretKey: give both"),
        ({"maxOffsetsPerTrigger": "5"}, "no option 'maxOffsetsPerTrigger'"),
    ],
)
def test_a_wrong_option_is_told(more: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_options(GIVEN | more)


def test_a_stream_has_a_limit_and_no_end() -> None:
    assert stream_options(GIVEN | {"maxOffsetsPerTrigger": "5"}).max_offsets_per_trigger == 5
    with pytest.raises(ConfigError, match="no option 'endingOffsets'"):
        stream_options(GIVEN | {"endingOffsets": "latest"})
    with pytest.raises(ConfigError, match="give one of the two, to say which topics"):
        stream_options({"namesrv": "a:1"})
