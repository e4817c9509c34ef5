"""HAStream: what is told where no master is."""

from __future__ import annotations

import pytest

from reput.errors import RemotingError
from reput.replication.ha_stream import HAStream


def test_where_nobody_serves_a_log_the_key_of_the_ha_port_is_named() -> None:
    expected = (
        r"127\.0\.0\.1:1: Connection refused: expected the HA port of a broker there; "
        "start the broker with haListenPort, or correct the address"
    )
    with pytest.raises(RemotingError, match=expected):
        HAStream("127.0.0.1:1")
