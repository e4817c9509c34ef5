"""RocketMQ's own clients with signatures and with TLS against our broker, and our client against RocketMQ's TLS."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reput import Broker
from reput.errors import RemotingError
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from reput.transport.tls import ClientTls
from tests.support.async_tests import run
from tests.support.broker import make_topic
from tests.support.certificates import KEY_PASSWORD, write_certificate
from tests.support.rocketmq.apache import JAVA_OPTIONS, Apache, ApacheError
from tests.support.signed import ALICE_PASSWORD, AUTHORIZATION, ROOT_PASSWORD, SECRETS

pytestmark = pytest.mark.java

HERE: dict[str, Any] = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "mapped_file_size_commit_log": 1 << 20}
NO_PERMISSION = 16


def mqadmin(apache: Apache, broker: Broker, *words: str, password: str = ROOT_PASSWORD) -> str:
    """What a command prints that root has signed."""
    return str(apache.run("mqadmin", namesrv=broker.namesrv, words=words, user="root", password=password))


def of_broker(broker: Broker, command: str, *words: str) -> tuple[str, ...]:
    return (command, "-b", broker.address, *words)


def test_javas_clients_do_what_mqadmin_allows_their_user_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    alice = {"user": "alice", "password": ALICE_PASSWORD, "topic": "orders"}
    with (
        Broker.start(tmp_path / "store", **HERE, **AUTHORIZATION) as broker,
        Apache("5.3.3") as new,
        Apache("4.9.7") as old,
    ):
        create = of_broker(broker, "createUser", "-u", "alice", "-p", ALICE_PASSWORD, "-t", "Normal")
        assert "success" not in mqadmin(new, broker, *create, password="wrong")
        assert "success" in mqadmin(new, broker, *create)
        assert "alice" in mqadmin(new, broker, *of_broker(broker, "listUser"))
        made = mqadmin(new, broker, *of_broker(broker, "updateTopic", "-t", "orders", "-r", "1", "-w", "1"))
        assert "success" in made

        where = {"namesrv": broker.namesrv, "body": "paid"}
        refused = new.run("signed-send", **where, **alice)
        assert (refused["code"], "no matched policies" in refused["remark"]) == (NO_PERMISSION, True)
        policy = ("-s", "User:alice", "-r", "Topic:orders,Group:g", "-a", "Pub,Sub", "-d", "Allow")
        assert "success" in mqadmin(new, broker, *of_broker(broker, "createAcl", *policy))
        assert "Topic:orders" in mqadmin(new, broker, *of_broker(broker, "getAcl", "-s", "User:alice"))
        for apache in (new, old):
            assert apache.run("signed-send", **where, **alice) == {"status": "SEND_OK"}
            assert apache.run("signed-send", **where, topic="orders")["code"] == NO_PERMISSION
            wrong = apache.run("signed-send", **where, **(alice | {"password": "wrong"}))
            assert (wrong["code"], "check signature failed" in wrong["remark"]) == (NO_PERMISSION, True)
            assert apache.run("signed-send", **where, **(alice | {"topic": "others"}))["code"] == NO_PERMISSION
        assert old.run("signed-consume", **where, **alice, group="g") == "paid"
        assert new.run("signed-send", **where, **alice) == {"status": "SEND_OK"}  # the group may have had all others
        assert new.run("signed-consume", **where, **alice, group="g") == "paid"

        other: dict[str, Any] = HERE | AUTHORIZATION | {"namesrvAddr": broker.namesrv, "brokerName": "broker-b"}
        with Broker.start(tmp_path / "other", **other) as copy:
            check_copies(new, broker, copy)
            check_cluster(new, broker, copy)
        delete = of_broker(broker, "deleteAcl", "-s", "User:alice", "-r", "Topic:orders")
        assert "success" in mqadmin(new, broker, *delete)
        assert new.run("signed-send", **where, **alice)["code"] == NO_PERMISSION
        assert "success" in mqadmin(new, broker, *of_broker(broker, "deleteUser", "-u", "alice"))
        assert "is not found" in new.run("signed-send", **where, **alice)["remark"]
    assert "request refused" in caplog.text
    assert not any(secret in caplog.text for secret in SECRETS)


def check_copies(apache: Apache, broker: Broker, copy: Broker) -> None:
    """copyUser and copyAcl carry alice and her policies from one broker to another, and change them there."""
    between = ("-f", broker.address, "-t", copy.address)
    get_user, get_acl = of_broker(copy, "getUser", "-u", "alice"), of_broker(copy, "getAcl", "-s", "User:alice")
    assert "alice" not in mqadmin(apache, broker, *get_user)
    copied = f"of alice from {broker.address} to {copy.address} success"
    assert copied not in mqadmin(apache, broker, "copyUser", *between, "-u", "alice", password="wrong")
    assert copied in mqadmin(apache, broker, "copyUser", *between, "-u", "alice")
    shown = mqadmin(apache, broker, *get_user)
    assert all(one in shown for one in (ALICE_PASSWORD, "Normal", "enable"))
    assert "Topic:orders" not in mqadmin(apache, broker, *get_acl)
    copied = copied.replace("alice", "User:alice")
    assert copied in mqadmin(apache, broker, "copyAcl", *between, "-s", "User:alice")
    shown = mqadmin(apache, broker, *get_acl)
    assert all(one in shown for one in ("Topic:orders", "Group:g", "[Pub, Sub]", "Allow"))
    assert "success" in mqadmin(apache, broker, *of_broker(copy, "deleteAcl", "-s", "User:alice", "-r", "Group:g"))
    assert "success" in mqadmin(apache, broker, *of_broker(copy, "updateUser", "-u", "alice", "-p", "another"))
    assert copied in mqadmin(apache, broker, "copyAcl", *between)
    assert "Group:g" in mqadmin(apache, broker, *get_acl)
    assert "of root from" in mqadmin(apache, broker, "copyUser", *between)
    assert ALICE_PASSWORD in mqadmin(apache, broker, *get_user)


def check_cluster(apache: Apache, broker: Broker, other: Broker) -> None:
    """With -c the commands for users and policies go to all brokers, or ask one of them."""

    def all_of(command: str, *words: str) -> str:
        return mqadmin(apache, broker, command, "-c", "DefaultCluster", *words)

    def is_done(command: str, *words: str) -> bool:
        shown = all_of(command, *words)
        return all(f"to {one.address} success" in shown for one in (broker, other))

    bob, policy = ("-u", "bob"), ("-s", "User:bob", "-r", "Topic:bobs")
    assert is_done("createUser", *bob, "-p", "bob-secret", "-t", "Normal")
    assert is_done("updateUser", *bob, "-p", "bob-secret-2")
    assert is_done("createAcl", *policy, "-a", "Pub", "-d", "Allow")
    assert is_done("updateAcl", *policy, "-a", "Sub", "-d", "Deny", "-i", "10.0.0.1")
    for command in (("getUser", *bob), ("listUser", "-f", "bob")):
        assert "bob-secret-2" in all_of(*command)
    for command in (("getAcl", "-s", "User:bob"), ("listAcl", "-s", "bob", "-r", "bobs")):
        assert all(one in all_of(*command) for one in ("Topic:bobs", "[Sub]", "10.0.0.1", "Deny"))
    assert is_done("deleteAcl", *policy)
    for one in (broker, other):
        assert "Topic:bobs" not in mqadmin(apache, broker, *of_broker(one, "getAcl", "-s", "User:bob"))
    assert is_done("deleteUser", *bob)
    for one in (broker, other):
        assert "bob" not in mqadmin(apache, broker, *of_broker(one, "listUser"))


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_javas_clients_do_what_plain_acl_allows_their_account(version: str, tmp_path: Path) -> None:
    conf = tmp_path / "home/conf"
    conf.mkdir(parents=True)
    account = f"accessKey: alice-1, secretKey: {ALICE_PASSWORD}"
    file = f"accounts: [{{{account}, topicPerms: [orders=PUB|SUB], groupPerms: [g=SUB]}}]"
    (conf / "plain_acl.yml").write_text(file)
    alice = {"user": "alice-1", "password": ALICE_PASSWORD, "topic": "orders", "body": "paid"}
    keys: dict[str, Any] = {"aclEnable": True, "rocketmqHome": str(tmp_path / "home")}
    with Broker.start(tmp_path / "store", **HERE, **keys) as broker, Apache(version) as apache:
        where = {"namesrv": broker.namesrv} | alice
        assert apache.run("signed-send", **where) == {"status": "SEND_OK"}
        for changed, reason in (
            ({"password": "wrong"}, "Check signature failed for accessKey=alice-1"),
            ({"topic": "others"}, "No default permission for topic:others"),
            ({"user": "nobody"}, "No acl config for nobody"),
        ):
            refused = apache.run("signed-send", **(where | changed))
            assert (refused["code"], reason in refused["remark"]) == (1, True)
        assert apache.run("signed-consume", **where, group="g") == "paid"


def test_4_9s_mqadmin_changes_accounts_and_addresses_and_shows_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "home/conf/plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(f"accounts: [{{accessKey: root-42, secretKey: {ROOT_PASSWORD}, admin: true}}]\nkept: 1\n")
    keys: dict[str, Any] = {"aclEnable": True, "rocketmqHome": str(tmp_path / "home")}
    with Broker.start(tmp_path / "store", **HERE, **keys) as broker, Apache("4.9.7") as apache:

        def admin(*words: str, user: str = "root-42", password: str = ROOT_PASSWORD) -> str:
            signs = {"user": user, "password": password}
            return str(apache.run("mqadmin", namesrv=broker.namesrv, words=words, **signs))

        where = {"namesrv": broker.namesrv, "user": "alice-1", "password": ALICE_PASSWORD, "topic": "orders"}
        assert "No acl config for alice-1" in apache.run("signed-send", **where, body="paid")["remark"]
        put = of_broker(broker, "updateAclConfig", "-a", "alice-1", "-s", ALICE_PASSWORD)
        assert "success" in admin(*put, "-t", "orders=PUB|SUB", "-g", "g=SUB", "-w", "10.0.0.1")
        assert apache.run("signed-send", **where, body="paid") == {"status": "SEND_OK"}
        assert apache.run("signed-consume", **where, body="paid", group="g") == "paid"
        assert "success" not in admin(*put, "-m", "true", user="alice-1", password=ALICE_PASSWORD)
        assert "success" not in admin(*put, "-t", "orders=ALL")
        assert "success" in admin(*of_broker(broker, "updateGlobalWhiteAddr", "-g", "10.0.0.2", "-p", str(file)))
        shown = admin(*of_broker(broker, "getAclConfig"))
        assert all(one in shown for one in ("[10.0.0.2]", "alice-1", "[orders=PUB|SUB]", "[g=SUB]", "10.0.0.1"))
        listed = admin("clusterAclConfigVersion", "-c", "DefaultCluster")
        assert all(one in listed for one in (broker.address, str(file), "success"))
        delete = of_broker(broker, "deleteAclConfig", "-a", "alice-1")
        assert "success" in admin(*delete)
        assert "success" not in admin(*delete)
        assert "No acl config for alice-1" in apache.run("signed-send", **where, body="paid")["remark"]
    assert "kept: 1" in file.read_text()
    assert not any(secret in caplog.text for secret in SECRETS)


def tls_options(trust: str, *more: str) -> tuple[str, ...]:
    """Options of a JVM whose clients talk TLS, and verify."""
    return (
        *JAVA_OPTIONS, "-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={trust}", *more,
    )  # fmt: skip


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_javas_clients_talk_tls_and_show_certificates(
    version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = write_certificate(tmp_path, encrypted=True)
    mine = write_certificate(tmp_path, name="mine")
    stranger = write_certificate(tmp_path, name="stranger", of="strangers")
    keys: dict[str, Any] = server.server_keys | {
        "tls.server.mode": "enforcing",
        "tls.server.keyPassword": KEY_PASSWORD,
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": server.trust,
    }
    shown = (f"-Dtls.client.certPath={mine.cert}", f"-Dtls.client.keyPath={mine.key}")
    with Broker.start(tmp_path / "store", **HERE, **keys) as broker:
        where = {"namesrv": broker.namesrv, "topic": "orders", "body": "paid"}
        with Apache(version, tls_options(server.trust, *shown)) as apache:
            assert apache.run("signed-send", **where) == {"status": "SEND_OK"}

        def is_refused(options: tuple[str, ...]) -> None:
            with Apache(version, options) as apache, pytest.raises(ApacheError, match="exception"):
                apache.run("signed-send", **where)

        refused = tls_options(server.trust), tls_options(stranger.trust, *shown), JAVA_OPTIONS
        with ThreadPoolExecutor() as pool:  # each waits until it gives up
            list(pool.map(is_refused, refused))
    assert "no TLS" in caplog.text
    assert KEY_PASSWORD not in caplog.text


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_our_client_talks_tls_to_rocketmqs_name_server_and_refuses_its_own_certificate(
    version: str, tmp_path: Path
) -> None:
    async def ask(address: str, tls: ClientTls | None) -> int:
        client = RemotingClient(tls=tls)
        try:
            return (await client.call(address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), 30)).code
        finally:
            client.close()

    with Apache(version, (*JAVA_OPTIONS, "-Dtls.server.mode=permissive")) as apache:
        address = apache.run("start-namesrv", path=str(tmp_path))
        assert run(ask(address, None)) == 0
        assert run(ask(address, ClientTls(auth_server=False))) == 0
        with pytest.raises(RemotingError, match="no TLS: "):
            run(ask(address, ClientTls()))


def test_a_plain_client_of_rocketmqs_is_served_beside_tls(tmp_path: Path) -> None:
    server = write_certificate(tmp_path)
    with Broker.start(tmp_path / "store", **HERE, **server.server_keys) as broker, Apache("5.3.3") as apache:
        make_topic(broker.address, "orders", 1)
        sent = apache.run("signed-send", namesrv=broker.namesrv, topic="orders", body="paid")
        assert sent == {"status": "SEND_OK"}
