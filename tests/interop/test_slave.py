"""A slave of a master of RocketMQ's: equal bytes, its topics and offsets, and RocketMQ's consumers once it is gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.client.sync import Producer
from reput.formats.message import Message
from reput.formats.metadata import ConsumerOffsets, decode_metadata
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.spark.wire.cluster import Cluster
from reput.spark.wire.options import read_options
from reput.transport.tls import ClientTls
from tests.support.asking import ask, call, request, until
from tests.support.broker import make_topic, pull_command, send_command
from tests.support.certificates import write_certificate
from tests.support.fake_master import log_of
from tests.support.rocketmq.apache import JAVA_OPTIONS, Apache
from tests.support.signed import ROOT_PASSWORD, signed
from tests.support.sockets import free_ports

pytestmark = pytest.mark.java

FILE_SIZE = 1 << 20
LOCAL: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1"}
COUNT = 300


@pytest.fixture(params=["4.9.7", "5.3.3", "5.5.0"])
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Apache, str]]:
    """A broker of RocketMQ's with the topic orders in 4 queues, and its name server, which outlives it."""
    with Broker.start(tmp_path / "master", mapped_file_size_commit_log=FILE_SIZE, **LOCAL) as broker:
        make_topic(broker.address, "orders", 4)
    with Apache(request.param) as java:
        keys = {"brokerName": "broker-a"}
        yield java, java.serve(tmp_path / "master", keys=keys, log_file_size=FILE_SIZE, topic="orders", queues=4)


def log_end(address: str) -> int:
    """A broker's commitLogMaxOffset; 0 in the first second of RocketMQ's, whose statistics have no sample yet."""
    answer = call(address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
    if answer.code == ResponseCode.SYSTEM_ERROR and "NoSuchElementException" in (answer.remark or ""):
        return 0
    assert answer.code == ResponseCode.SUCCESS, answer
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def test_a_slave_has_all_and_serves_rocketmqs_consumers_when_its_master_is_gone(
    master: tuple[Apache, str], tmp_path: Path
) -> None:
    java, namesrv = master
    cluster = Cluster(read_options({"namesrv": namesrv, "subscribe": "orders"}).access)
    address = cluster.address(cluster.queues(["orders"])[0])
    cluster.close()
    keys = {**LOCAL, "broker_name": "broker-a", "broker_role": "SLAVE", "broker_id": 1, "namesrv_addr": namesrv}
    with Broker.start(tmp_path / "slave", mapped_file_size_commit_log=FILE_SIZE, **keys) as slave:
        with Producer(namesrv, group="p") as producer:
            for number in range(COUNT):
                producer.send(Message("orders", b"%d" % number + b" " * 4000))
        fields = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 9}
        assert call(address, pull_command("orders")).code in (
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
        )  # makes g
        ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
        until(lambda: log_end(address) > FILE_SIZE)
        end = log_end(address)
        until(lambda: log_end(slave.address) == end)

        def offset() -> int | None:
            body = ask(slave.address, RequestCode.GET_ALL_CONSUMER_OFFSET).body
            return decode_metadata(ConsumerOffsets, body).offset_table.get("orders@g", {}).get(0)

        until(lambda: offset() == 9)
        until(lambda: "orders" in slave.in_loop(lambda state: set(state.topics.topic_config_table)))
        java.run("broker-stop")
        until(lambda: not slave.in_loop(lambda state: state.slave is not None and state.slave.has_master))
        java.run("consumer-start", namesrv=namesrv, group="readers", topic="orders")
        bodies = sorted(int(java.run("consumer-take")) for _ in range(COUNT))
        java.run("consumer-stop")
        assert bodies == list(range(COUNT))
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)


CREDENTIALS = json.dumps({"accessKey": "replicas", "secretKey": ROOT_PASSWORD})
#: How a broker of each version checks who asks: by plain_acl.yml, or by users.
CHECKS = {
    "4.9.7": {"aclEnable": "true"},
    "5.3.3": {
        "authenticationEnabled": "true", "innerClientAuthenticationCredentials": CREDENTIALS,
        "authenticationMetadataProvider":
            "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    },
}  # fmt: skip


@pytest.mark.parametrize("version", CHECKS)
def test_a_slave_signs_over_tls_what_it_asks_a_master_that_checks_it(tmp_path: Path, version: str) -> None:
    files, (port, namesrv_port) = write_certificate(tmp_path / "files"), free_ports(2)
    account = {"accessKey": "replicas", "secretKey": ROOT_PASSWORD, "admin": True}
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(json.dumps({"accounts": [account]}))
    options = (
        "-Dtls.test.mode.enable=false", "-Dtls.server.mode=enforcing", f"-Dtls.server.certPath={files.cert}",
        f"-Dtls.server.keyPath={files.key}", "-Dtls.enable=true", "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={files.trust}", f"-Drocketmq.home.dir={tmp_path}",
    )  # fmt: skip
    keys = {
        **LOCAL, "broker_role": "SLAVE", "broker_id": 1, "namesrv_addr": f"127.0.0.1:{namesrv_port}",
        "tls_enable": True, "tls_client_trust_cert_path": files.trust, "mapped_file_size_commit_log": FILE_SIZE,
        "inner_client_authentication_credentials": CREDENTIALS,
    }  # fmt: skip

    def ask_master(command: RemotingCommand) -> RemotingCommand:
        answer = call(
            f"127.0.0.1:{port}", signed(command, "replicas", ROOT_PASSWORD), ClientTls(trust_cert_path=files.trust)
        )
        assert answer.code == 0, answer
        return answer

    with Broker.start(tmp_path / "master", mapped_file_size_commit_log=FILE_SIZE, **LOCAL) as broker:
        make_topic(broker.address, "orders", 4)
    with Apache(version, (*JAVA_OPTIONS, *options)) as java:
        java.start_broker(
            tmp_path / "master", keys={"brokerName": "broker-a"} | CHECKS[version], port=port,
            namesrv_port=namesrv_port, log_file_size=FILE_SIZE,
        )  # fmt: skip
        refused = call(f"127.0.0.1:{port}", request(RequestCode.GET_ALL_TOPIC_CONFIG), ClientTls(auth_server=False))
        assert refused.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)  # it does check who asks
        for _ in range(10):
            ask_master(send_command("orders"))
        ask_master(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"g"}'))
        ask_master(
            request(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", topic="orders", queueId=0, commitOffset=4)
        )
        with Broker.start(tmp_path / "slave", **keys) as slave:
            until(lambda: slave.in_loop(lambda state: state.offsets.query_offset("g", "orders", 0)) == 4)
            assert slave.in_loop(lambda state: state.topics.topic_config_table["orders"].write_queue_nums) == 4
            end = slave.in_loop(lambda state: state.store.max_commit_log_offset)
    assert log_of(tmp_path / "slave", end) == log_of(tmp_path / "master", end)
