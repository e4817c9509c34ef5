"""`reput follow` and `reput rejoin` with a broker that checks who asks, and that talks TLS alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reput import Broker
from reput.transport.tls import ClientTls
from tests.support.asking import call
from tests.support.broker import SMALL, send_command
from tests.support.certificates import Files, write_certificate
from tests.support.commands import Run
from tests.support.signed import AUTHORIZATION, ROOT_PASSWORD, signed
from tests.support.sockets import free_ports

WRONG = "a-wrong-secret-of-tests"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("REPUT_ACCESS_KEY", "REPUT_SECRET_KEY", "REPUT_SECURITY_TOKEN", "REPUT_CLIENT_CONFIG"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_certificate(tmp_path / "files")


@pytest.fixture
def broker(tmp_path: Path, files: Files) -> Iterator[Broker]:
    keys = SMALL | AUTHORIZATION | files.server_keys | {"tls.server.mode": "enforcing"}
    where = {"bind_address": "127.0.0.1", "brokerIP1": "127.0.0.1", "haListenPort": free_ports(1)[0]}
    with Broker.start(tmp_path / "master", **where, **keys) as served:
        for _ in range(10):
            command = signed(send_command("orders"), "root", ROOT_PASSWORD)
            assert call(served.address, command, ClientTls(trust_cert_path=files.trust)).code == 0
        yield served


def written(path: Path, files: Files, password: str = ROOT_PASSWORD) -> Path:
    """A file for --client-config."""
    tls = f"tls.enable=true\ntls.client.trustCertPath={files.trust}\n"
    path.write_text(f"accessKey=root\nsecretKey={password}\n{tls}")
    return path


@pytest.mark.parametrize("by_name", [False, True], ids=["--master", "--namesrv"])
def test_they_sign_and_talk_tls(broker: Broker, files: Files, tmp_path: Path, run_reput: Run, by_name: bool) -> None:
    config = written(tmp_path / "f", files)
    where = ("--namesrv", broker.namesrv) if by_name else ("--master", broker.address)
    copy = tmp_path / "copies/broker-a"
    done = run_reput("follow", copy.parent if by_name else copy, *where, "--once", "--json", "--client-config", config)
    assert done.status == 0, done.err
    end = broker.in_loop(lambda state: state.store.max_commit_log_offset)
    assert (done.object()["followed_to"], end > 0) == (end, True)
    done = run_reput("rejoin", copy, "--master", broker.address, "--json", "--client-config", config)
    assert (done.status, done.object()["common_offset"]) == (0, end)


def test_who_is_refused_is_told_why_without_the_secret(
    broker: Broker, files: Files, tmp_path: Path, run_reput: Run
) -> None:
    config = written(tmp_path / "f", files, WRONG)
    for command in (["follow", tmp_path / "copy", "--once"], ["rejoin", tmp_path / "master"]):
        done = run_reput(*command, "--master", broker.address, "--client-config", config)
        assert (done.status, done.out) == (2, "")
        assert "check signature failed" in done.err
        assert WRONG not in done.err
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("by_name", [False, True], ids=["--master", "--namesrv"])
def test_who_is_refused_later_is_not_tried_again(
    broker: Broker, files: Files, tmp_path: Path, run_reput: Run, by_name: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy is there, and the password is another now: to wait does not help, as it does where a master starts."""
    where = ("--namesrv", broker.namesrv) if by_name else ("--master", broker.address)
    command = ("follow", tmp_path / "copies" if by_name else tmp_path / "copies/broker-a", *where, "--once")
    assert run_reput(*command, "--client-config", written(tmp_path / "right", files)).status == 0
    done = run_reput(*command, "--client-config", written(tmp_path / "wrong", files, WRONG))
    assert done.status == 2
    assert "check signature failed.; give the access key and the secret key of a user who may do this" in done.err
    assert "tried again" not in caplog.text
