"""`reput admin` against brokers that check who asks, and that talk TLS alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reput import Broker
from reput.client import ClientTls, PullConsumer, SessionCredentials
from tests.support.broker import SMALL
from tests.support.certificates import Files, write_certificate
from tests.support.commands import run_reput
from tests.support.signed import AUTHORIZATION, ROOT_PASSWORD

WRONG = "a-wrong-secret-of-tests"
ENVIRONMENT = {
    "access": "REPUT_ACCESS_KEY", "secret": "REPUT_SECRET_KEY", "token": "REPUT_SECURITY_TOKEN",
    "file": "REPUT_CLIENT_CONFIG", "namesrv": "NAMESRV_ADDR",
}  # fmt: skip
#: Each command that asks a broker, and a word of what it shows.
COMMANDS = (
    (["cluster"], "broker-a"),
    (["create-topic", "orders", "--queues", "1"], "topic orders has 1 queue"),
    (["topics"], "orders"),
    (["topic", "orders"], "next offset"),
    (["send", "orders", "hello"], "SEND_OK"),
    (["peek", "orders"], "hello"),
    (["groups"], "shop"),
    (["lag", "shop"], "last consumed"),
    (["connections", "shop"], "127.0.0.1:"),
    (["reset", "shop", "orders", "--to", "latest", "--yes"], "the offsets are reset"),
    (["delete-topic", "orders", "--yes"], "is deleted"),
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[str]:
    """The name server of a broker with users; both talk TLS alone."""
    keys = SMALL | AUTHORIZATION | files.server_keys | {"tls.server.mode": "enforcing"}
    path = tmp_path_factory.mktemp("broker")
    with Broker.start(path, bind_address="127.0.0.1", brokerIP1="127.0.0.1", **keys) as broker:
        yield broker.namesrv


def written(path: Path, **keys: str) -> Path:
    """A file for --client-config."""
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in keys.items()))
    return path


def refused(*arguments: object) -> str:
    """The one line of a command that could not be done; no secret is in it."""
    answer = run_reput("admin", *arguments)
    assert (answer.status, answer.out) == (2, "")
    line: str
    (line,) = answer.err.splitlines()
    assert ROOT_PASSWORD not in line
    assert WRONG not in line
    return line


async def test_each_command_signs_and_talks_tls(namesrv: str, files: Files, tmp_path: Path) -> None:
    config = written(
        tmp_path / "admin.properties", accessKey="root", secretKey=ROOT_PASSWORD, tls_enable="true",
        tls_client_trustCertPath=files.trust,
    )  # fmt: skip

    consumer = PullConsumer(
        namesrv, group="shop", topics={"orders": "*"}, consume_from="first",
        credentials=SessionCredentials("root", ROOT_PASSWORD), tls=ClientTls(trust_cert_path=files.trust),
    )  # fmt: skip
    for arguments, word in COMMANDS:
        if arguments[0] == "groups":  # the first command that looks for the group
            await consumer.start()
            assert [message.body for message in await consumer.poll(timeout=30)] == [b"hello"]
            await consumer.commit()
        command = ("admin", *arguments, "--namesrv", namesrv, "--client-config", config)
        answer = await asyncio.to_thread(run_reput, *command)
        assert (answer.status, answer.err) == (0, ""), arguments
        assert word in answer.out, arguments
        if arguments[0] == "delete-topic":
            await consumer.close()


def test_who_asks_and_where_the_file_is_may_stand_in_the_environment(
    namesrv: str, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(
        tmp_path / "f", accessKey="root", secretKey=WRONG, tls_enable="true", tls_client_trustCertPath=files.trust
    )
    for kind, value in (("file", str(file)), ("namesrv", namesrv)):
        monkeypatch.setenv(ENVIRONMENT[kind], value)
    assert "check signature failed" in refused("groups")
    monkeypatch.setenv(ENVIRONMENT["access"], "root")
    assert refused("groups") == "reput: the environment says who asks, and REPUT_SECRET_KEY is missing"
    monkeypatch.setenv(ENVIRONMENT["secret"], ROOT_PASSWORD)
    assert json.loads(run_reput("admin", "groups", "--json").out).keys() == {"groups"}
    monkeypatch.setenv(ENVIRONMENT["token"], "a token")  # it is signed, too
    assert run_reput("admin", "groups").status == 0


def test_who_is_refused_is_told_why_without_a_secret(
    namesrv: str, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT["namesrv"], namesrv)
    tls = {"tls_enable": "true", "tls_client_trustCertPath": files.trust}
    other = write_certificate(tmp_path / "other", of="another authority").trust
    for keys, reason in (
        (tls, "give the access key and the secret key of a user who may do this"),
        (tls | {"accessKey": "root", "secretKey": WRONG}, "check signature failed"),
        (tls | {"accessKey": "nobody", "secretKey": ROOT_PASSWORD}, "User:nobody is not found"),
        (tls | {"tls_client_trustCertPath": other, "accessKey": "root", "secretKey": ROOT_PASSWORD}, "no TLS: "),
        (tls | {"tls_client_trustCertPath": str(tmp_path / "none.pem")}, "none.pem: No such file"),
        ({"accessKey": "root", "secretKey": ROOT_PASSWORD}, "no name server answers"),
        ({"accessKey": "root", ROOT_PASSWORD: "secretKey"}, "f:2: unknown key"),
    ):
        assert reason in refused("groups", "--client-config", written(tmp_path / "f", **keys))
    assert "none: cannot open: No such file" in refused("groups", "--client-config", tmp_path / "none")
    (tmp_path / "f").write_bytes(b"secretKey=\xff" + WRONG.encode())
    assert "f: expected text in UTF-8" in refused("groups", "--client-config", tmp_path / "f")
