from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.config.namesrv import NamesrvConfig
from reput.config.properties import parse_properties
from reput.config.rocketmq_config import key_texts
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient
from tests.support.asking import ask
from tests.support.commands import Run, content_of


@contextmanager
def serving(folder: Path, *arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, with its files in a folder; and its first line."""
    command = [sys.executable, "-m", "reput", "namesrv", "--set", f"kvConfigPath={folder}/kv/kvConfig.json"]
    process = subprocess.Popen(
        [*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"HOME": str(folder)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_once_the_ready_line_is_there_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--port", 0, "--set", "bindAddress=127.0.0.1") as (process, line):
        address = line.removeprefix("ready namesrv=").strip()
        assert line == f"ready namesrv={address}\n"

        client = RemotingClient()
        fields = {"namespace": "NS", "key": "k", "value": "v"}
        assert (await client.call(address, RemotingCommand(100, ext_fields=fields))).code == 0
        process.send_signal(number)  # with a connection that is open
        assert process.wait(timeout=60) == 0
        client.close()
        out, err = process.communicate()
    assert out == ""
    assert "stopping" in err
    assert "Traceback" not in err
    assert json.loads((tmp_path / "kv/kvConfig.json").read_text()) == {"configTable": {"NS": {"k": "v"}}}


@pytest.mark.parametrize("is_told", [False, True])
def test_this_machine_alone_reaches_it_until_it_is_told_an_address(tmp_path: Path, *, is_told: bool) -> None:
    arguments = ("--port", 0, "--json", *(("--set", "bindAddress=0.0.0.0") if is_told else ()))
    with serving(tmp_path, *arguments) as (process, line):
        port = int(json.loads(line)["namesrv"].rpartition(":")[2])
        with socket.socket() as client:
            assert (client.connect_ex(("127.0.0.2", port)) == 0) == is_told  # as at another address of this machine
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    lines = {one["message"]: one for one in map(json.loads, err.splitlines())}
    assert lines["started"]["listens"] == ("0.0.0.0" if is_told else "127.0.0.1")
    assert ("otherMachinesNeed" in lines["started"]) != is_told
    assert any("whoever reaches the name server" in message for message in lines) == is_told


async def test_json_says_that_it_is_ready_and_the_port_wins_over_the_file(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=1\nclusterTest=true\nserverWorkerThreads=3\n")
    with serving(tmp_path, "--port", 0, "--config", conf, "--json", "--set", "serverWorkerThreads=4") as (
        process,
        line,
    ):
        told = json.loads(line)
        assert told["ready"] is True
        host, port = told["namesrv"].split(":")
        assert host == "127.0.0.1"
        assert int(port) > 1

        client = RemotingClient()
        await client.call(told["namesrv"], RemotingCommand(318, body=b"orderMessageEnable=true"))
        client.close()
        assert conf.read_text() == "listenPort=1\nclusterTest=true\nserverWorkerThreads=3\norderMessageEnable=true\n"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        (ignored,) = [one for one in map(json.loads, err.splitlines()) if "do nothing here" in one["message"]]
        assert (ignored["level"], ignored["keys"]) == ("warning", "clusterTest, serverWorkerThreads")


def test_a_file_with_some_keys_leaves_all_others_at_their_defaults(tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("bindAddress=127.0.0.1\n")
    with serving(tmp_path, "--port", 0, "--config", conf) as (_, line):
        address = line.removeprefix("ready namesrv=").strip()
        shown = parse_properties(ask(address, RequestCode.GET_NAMESRV_CONFIG).body.decode(), "319")
    paths = {"kvConfigPath": f"{tmp_path}/kv/kvConfig.json", "configStorePath": str(conf)}  # as RocketMQ's -c
    expected = key_texts(NamesrvConfig(), NamesrvConfig) | paths
    assert shown == expected | {"bindAddress": "127.0.0.1", "listenPort": address.rpartition(":")[2]}


def test_a_port_in_use_is_one_line_and_nothing_is_changed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        before = content_of(tmp_path)
        with serving(tmp_path, "--port", port, "--set", "bindAddress=127.0.0.1") as (process, line):
            _, err = process.communicate(timeout=60)
            assert process.returncode == 2
    assert line == ""
    (told,) = err.splitlines()
    assert told.startswith(f"reput: cannot listen on 127.0.0.1:{port}")
    assert told.endswith("choose another one, or 0 for any that is free")
    assert content_of(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--set", "kvConfigPaht=/tmp/x"), "did you mean kvConfigPath?"),
        (("--set", "listenPort=70000"), "listenPort=70000: expected a whole number from 0 to 65535"),
        (("--set", "listenPort"), "--set 'listenPort': write name=value"),
        (("--port", "70000"), "65535"),
        (("--config", "nothing.conf"), "nothing.conf: cannot open"),
        (("--config", ""), "an empty path"),
    ],
)
def test_wrong_usage_is_one_line(
    run_reput: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run_reput("namesrv", *arguments)
    assert answer.status == 2
    assert expected in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_wrong_key_of_the_file_is_named_with_its_line(run_reput: Run, tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=1\n\nwrongKey=1\n")
    answer = run_reput("namesrv", "--config", conf)
    assert answer.status == 2
    assert f"{conf}:3: unknown configuration key 'wrongKey'" in answer.err


def test_a_damaged_file_of_values_is_named(run_reput: Run, tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    answer = run_reput("namesrv", "--port", 0, "--set", f"kvConfigPath={path}")
    assert answer.status == 2
    assert f"{path}: damaged" in answer.err
