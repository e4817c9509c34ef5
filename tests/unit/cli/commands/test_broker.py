"""reput broker: ready, stopped, refused."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from reput import MessageStore
from reput.config.properties import parse_properties
from reput.remoting.codes import RequestCode
from tests.support.asking import ask, call
from tests.support.broker import SMALL, Client, make_topic, send_command
from tests.support.broker_load import broker_process
from tests.support.commands import Run

LOCAL = ("--set", "bindAddress=127.0.0.1", "--set", "brokerIP1=127.0.0.1")
#: Of index files, which do not tell it while they are nearly empty.
GEOMETRY_KEYS = ("max_hash_slot_num", "max_index_num")
GEOMETRY = [word for key in GEOMETRY_KEYS for word in ("--set", f"{key}={SMALL[key]}")]


def _put(address: str) -> int:
    make_topic(address, "orders", 1)
    return call(address, send_command("orders")).code


def _route(address: str) -> int:
    return ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_and_its_store_is_closed_clean(
    tmp_path: Path, run_reput: Run, number: signal.Signals
) -> None:
    with broker_process(tmp_path / "store") as (process, ready):
        assert set(ready) == {"ready", "broker", "namesrv"}
        assert _put(ready["broker"]) == 0
        assert _route(ready["namesrv"]) == 0
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    assert "clean" in run_reput("info", tmp_path / "store", *GEOMETRY).out
    with MessageStore.open(tmp_path / "store", read_only=True, **SMALL) as store:
        assert store.max_offset("orders", 0) == 1


def _start(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "reput", "broker", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_ready_line_is_text_without_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reput", "broker", str(tmp_path / "store"), "--port", "0", "--namesrv-port", "0"]
    with subprocess.Popen([*command, *LOCAL], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert words[0] == "ready"
    assert [word.partition("=127.0.0.1:")[0] for word in words[1:]] == ["broker", "namesrv"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_broker_whose_name_server_answers_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = [tmp_path / "store", "--port", "0", "--namesrv", f"127.0.0.1:{silent.getsockname()[1]}", *LOCAL]
        command = [sys.executable, "-m", "reput", "broker", *map(str, words)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = silent.accept()  # it registers
            with connection:
                connection.recv(1)
                process.send_signal(number)
                out, errors = process.communicate(timeout=15)  # a registration has 24 s
    assert (process.returncode, out) == (0, ""), errors
    assert "msg=stopped" in errors
    assert not (tmp_path / "store" / "abort").exists()  # closed clean


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--port", 19123, "--namesrv-port", 19123), "listenPort and the name server's port are both 19123"),
        (("--port", 19123, "--set", "haListenPort=19123"), "listenPort and haListenPort are both 19123"),
        (
            ("--namesrv-port", 19123, "--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=19123"),
            "the name server's port and metricsPromExporterPort are both 19123",
        ),
    ],
)
def test_one_port_for_two_purposes_is_refused(tmp_path: Path, words: tuple[object, ...], said: str) -> None:
    refused = _start(tmp_path / "store", *words)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"reput: {said}: each needs a port of its own\n"
    assert not (tmp_path / "store").exists()


def test_what_happens_is_told_in_lines_with_fields(tmp_path: Path) -> None:
    with broker_process(tmp_path / "store") as (process, ready):
        assert _put(ready["broker"]) == 0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert [(line["logger"], line["message"]) for line in lines] == [
        ("reput.namesrv", "broker registered"),
        ("reput.broker", "registered"),
        ("reput", "started"),
        ("reput.broker", "topic made or changed"),
        ("reput", "stopping"),
        ("reput.namesrv", "broker unregistered"),
        ("reput.broker", "unregistered"),
        ("reput", "stopped"),
    ]
    assert (lines[2]["broker"], lines[2]["namesrv"]) == (ready["broker"], ready["namesrv"])
    assert lines[2]["flushDiskType"] == "ASYNC_FLUSH"
    assert (lines[3]["topic"], lines[3]["queues"]) == ("orders", 1)


def test_a_file_without_a_flush_mode_syncs_and_the_log_tells_where_defaults_are_not_rocketmqs(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nhaListenPort=0\nbrokerName=b\nstorePathRootDir=/other\n"
    )
    sizes = [
        word for name in ("mapped_file_size_commit_log", *GEOMETRY_KEYS) for word in ("--set", f"{name}={SMALL[name]}")
    ]
    options = ("--config", conf, "--port", 0, "--namesrv-port", 0, "--json", *sizes)
    command = [sys.executable, "-m", "reput", "broker", tmp_path / "store", *options]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        config = parse_properties(ask(ready["broker"], RequestCode.GET_BROKER_CONFIG).body.decode(), "26")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert config["flushDiskType"] == "SYNC_FLUSH"
    lines = {line["message"]: line for line in map(json.loads, errors.splitlines())}
    assert lines["started"]["flushDiskType"] == "SYNC_FLUSH"
    assert lines["started"]["storePathRootDir"] == f"{tmp_path / 'store'}, and not /other, as --config or --set says"
    told = lines["keys that are not named have reput's defaults"]
    assert told["flushDiskType"] == "SYNC_FLUSH (RocketMQ: ASYNC_FLUSH)"
    assert told.keys() - {"time", "level", "logger", "message"} == {
        "flushDiskType", "slaveReadEnable", "tls.client.authServer",
    }  # fmt: skip


@pytest.mark.parametrize("others", [(), ("--set", "brokerIP1=127.0.0.2", "--set", "bindAddress=0.0.0.0")])
def test_this_machine_alone_reaches_a_broker_until_it_is_told_another_address(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    sizes = ("--set", f"mapped_file_size_commit_log={SMALL['mapped_file_size_commit_log']}", *GEOMETRY)
    words = ("broker", tmp_path / "store", "--port", "0", "--namesrv-port", "0", "--json", *sizes, *others)
    command = [sys.executable, "-m", "reput", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        ports = [int(ready[name].rpartition(":")[2]) for name in ("broker", "namesrv")]
        reached = [_is_reached("127.0.0.2", port) for port in ports]  # as at another address of this machine
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    lines = {line["message"]: line for line in map(json.loads, errors.splitlines())}
    started = lines["started"]
    told = any("whoever reaches" in message for message in lines)
    if others:
        assert (reached, started["listens"], told) == ([True, True], "0.0.0.0", True)
        assert "otherMachinesNeed" not in started
    else:
        assert (reached, started["listens"], told) == ([False, False], "127.0.0.1", False)
        assert started["otherMachinesNeed"].startswith("brokerIP1=")


def _is_reached(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


async def test_bodies_and_properties_are_in_no_log(tmp_path: Path) -> None:
    secret = {"SECRET": "SECRET"}

    async def send(address: str) -> None:
        host, _, port = address.rpartition(":")
        client = Client(*await asyncio.open_connection(host, int(port)))
        for command in (
            send_command("orders", b"SECRET", properties=secret, queueId=-9),
            send_command("orders", b"SECRET", properties=secret, sysFlag=0xC0),
        ):
            command.ext_fields = (command.ext_fields or {}) | {"SecretKey": "SECRET"}
            await client.begin_all([command])[0]
        client.writer.write(b"SECRET" * 100)
        await client.ended()

    with broker_process(tmp_path / "store", log_level="debug") as (process, ready):
        await send(ready["broker"])
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert "connection closed: no frame" in errors
    assert "SECRET" not in errors


def test_a_taken_port_is_one_line_and_nothing_is_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for options in (("--port", port, "--namesrv-port", 0), ("--port", 0, "--namesrv-port", port)):
            ended = _start(tmp_path / "store", *options, *LOCAL)
            assert (ended.returncode, ended.stdout) == (2, "")
            (line,) = ended.stderr.splitlines()
            assert f"cannot listen on 127.0.0.1:{port}" in line
            assert "or 0 for any that is free" in line
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_open_elsewhere_is_one_line_and_goes_on_being_served(tmp_path: Path) -> None:
    with broker_process(tmp_path / "store") as (_, ready):
        ended = _start(tmp_path / "store", "--port", 0, "--namesrv-port", 0, *LOCAL)
        assert (ended.returncode, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
        assert str(tmp_path / "store") in ended.stderr
        assert _put(ready["broker"]) == 0


def test_a_wrong_key_names_the_line_and_nothing_is_made(tmp_path: Path, run_reput: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nbrokerNme=b\n")
    answer = run_reput("broker", tmp_path / "store", "--config", conf)
    assert answer.status == 2
    assert answer.err.startswith(f"reput: {conf}:2: unknown configuration key 'brokerNme'")
    answer = run_reput("broker", tmp_path / "store", "--set", "brokerPermission=9")
    assert (answer.status, len(answer.err.splitlines())) == (2, 1)
    assert "brokerPermission=9: expected a whole number from 0 to 7" in answer.err
    answer = run_reput("broker", tmp_path / "store", "--set", "brokerIP1=10.1", "--port", 0, "--namesrv-port", 0)
    assert (answer.status, len(answer.err.splitlines())) == (2, 1)
    assert "brokerIP1=10.1: expected an IPv4 or IPv6 address" in answer.err
    for other in (("--namesrv", "names:9876"), ("--set", "namesrvAddr=names:9876")):
        answer = run_reput("broker", tmp_path / "store", "--namesrv-port", 0, *other)
        assert (answer.status, len(answer.err.splitlines())) == (2, 1)
        assert "--namesrv-port has no meaning with the name servers names:9876" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]
