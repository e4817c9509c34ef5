"""Reader and sender of Spark at a broker that talks TLS alone and checks who asks; and tables of a producer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from reput import Broker
from reput.client import ClientTls, SessionCredentials
from reput.client.sync import Producer
from reput.errors import AccessDeniedError, MQClientError
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.options import read_options
from reput.spark.wire.reader import WireReader
from reput.spark.wire.row_keys import RowKeys
from reput.spark.wire.sender import Sender
from reput.spark.wire.write_options import write_options
from tests.support.broker import SMALL
from tests.support.certificates import Files, write_certificate
from tests.support.signed import AUTHORIZATION, ROOT_PASSWORD

WRONG = "a-wrong-secret-of-tests"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[str]:
    """The name server of a broker with users, and 20 messages in its topic orders; both talk TLS alone."""
    keys = SMALL | AUTHORIZATION | files.server_keys | {"tls.server.mode": "enforcing"}
    path = tmp_path_factory.mktemp("broker")
    with Broker.start(path, bind_address="127.0.0.1", brokerIP1="127.0.0.1", **keys) as broker:
        tls, root = ClientTls(trust_cert_path=files.trust), SessionCredentials("root", ROOT_PASSWORD)
        with Producer(broker.namesrv, group="shop", tls=tls, credentials=root) as producer:
            sent = producer.send_arrow(rows_of(20))
        assert sent["status"].to_pylist() == ["SEND_OK"] * 20
        yield broker.namesrv


def rows_of(count: int) -> pa.Table:
    return pa.table({"topic": ["orders"] * count, "body": [b"%d" % i for i in range(count)]})


@pytest.fixture
def access(namesrv: str, files: Files) -> dict[str, str]:
    return {
        "namesrv": namesrv, "accessKey": "root", "secretKey": ROOT_PASSWORD, "tls.enable": "true",
        "tls.client.trustCertPath": files.trust,
    }  # fmt: skip


def read_bodies(access: dict[str, str], topic: str) -> list[int]:
    reader = WireReader(read_options(access | {"subscribe": topic}), ("body",))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(int(body) for batch in batches for body in batch["body"].to_pylist())


def send_table(access: dict[str, str], table: pa.Table, topic: str) -> None:
    options = write_options(access | {"topic": topic})
    cluster = Cluster(options.access)
    try:
        sender = Sender(cluster, options, RowKeys("query", 0, 0))
        for batch in table.to_batches():
            sender.put(batch)
        sender.flush()
    finally:
        cluster.close()


def test_who_may_reads_and_sends_over_tls(access: dict[str, str]) -> None:
    assert read_bodies(access, "orders") == list(range(20))
    send_table(access, rows_of(5), "copies")
    assert read_bodies(access, "copies") == list(range(5))


def test_a_wrong_secret_is_refused_by_reader_sender_and_producer(
    access: dict[str, str], namesrv: str, files: Files
) -> None:
    wrong = access | {"secretKey": WRONG}
    tls, credentials = ClientTls(trust_cert_path=files.trust), SessionCredentials("root", WRONG)
    with Producer(namesrv, group="shop", tls=tls, credentials=credentials) as producer:
        for refused in (
            lambda: read_bodies(wrong, "orders"),
            lambda: send_table(wrong, rows_of(1), "orders"),
            lambda: producer.send_arrow(rows_of(1)),
        ):
            with pytest.raises(AccessDeniedError) as raised:
                refused()
            assert WRONG not in str(raised.value)
    assert read_bodies(access, "orders") == list(range(20))


def test_plain_text_and_an_authority_that_nobody_knows_reach_nobody(access: dict[str, str], tmp_path: Path) -> None:
    stranger = write_certificate(tmp_path, of="strangers")
    for other in ({"tls.enable": "false"}, {"tls.client.trustCertPath": stranger.trust}):
        with pytest.raises(MQClientError, match="name server"):
            read_bodies(access | other, "orders")
