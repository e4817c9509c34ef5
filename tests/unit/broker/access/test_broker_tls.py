"""A broker and its name server with one certificate."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reput.config.properties import camel_case
from reput.config.rocketmq_config import keys_of
from reput.config.rocketmq_keys import ROCKETMQ_KEYS
from reput.config.tls import TlsConfig
from reput.errors import ConfigError
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from reput.transport.tls import ClientTls
from tests.support.broker import controller_of, send_command, serving_broker
from tests.support.certificates import KEY_PASSWORD, write_certificate


def test_the_store_knows_all_keys_of_tls_as_keys_of_others() -> None:
    assert set(map(camel_case, keys_of(TlsConfig))) <= set(ROCKETMQ_KEYS)


async def test_broker_and_its_name_server_enforce_tls_and_the_broker_registers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    files = write_certificate(tmp_path / "files", encrypted=True)
    keys = files.server_keys | {"tls.server.mode": "enforcing", "tls.server.keyPassword": KEY_PASSWORD}

    async with serving_broker(tmp_path / "store", **keys) as served:
        broker, namesrv = served.controller.address, served.controller.namesrv
        client = RemotingClient(tls=ClientTls(trust_cert_path=files.trust))
        assert (await client.call(broker, send_command("orders"))).code == 0
        cluster = await client.call(namesrv, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert broker.encode() in bytes(cluster.body)
        shown = await client.call(broker, RemotingCommand(RequestCode.GET_BROKER_CONFIG))
        assert b"tls.server.keyPassword=******" in bytes(shown.body)
        client.close()
        for address in (broker, namesrv):
            host, _, port = address.rpartition(":")
            plain = RemotingClient()
            with pytest.raises(Exception, match="ended before the answer"):
                await plain.call(f"{host}:{port}", RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
            plain.close()
    assert "does not speak TLS" in caplog.text
    assert KEY_PASSWORD not in caplog.text


def test_a_certificate_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath=.*: No such file"):
        controller_of(tmp_path / "store", **{"tls.server.certPath": "/nowhere", "tls.server.keyPath": "/nowhere"})
    assert not (tmp_path / "store").exists()
