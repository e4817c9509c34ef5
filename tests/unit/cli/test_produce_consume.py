"""`reput produce` and `reput consume`, against a broker in this process."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from reput import Broker
from tests.support.asking import until
from tests.support.broker import SMALL, make_topic
from tests.support.commands import Answer, run_reput
from tests.support.interrupted import AT_A_CALL
from tests.support.sockets import free_ports


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path = tmp_path_factory.mktemp("broker")
    with Broker.start(path, bind_address="127.0.0.1", brokerIP1="127.0.0.1", **SMALL) as started:
        yield started


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of two queues for one test."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    assert run_reput("admin", "create-topic", name, "--queues", 2).status == 0
    return name


def produce(topic: str, text: str | bytes, *options: object) -> Answer:
    return run_reput("produce", topic, *options, stdin=text.encode() if isinstance(text, str) else text)


def consume(topic: str, *options: object) -> Answer:
    answer = run_reput("consume", topic, *options)
    assert answer.status == 0, answer.err
    return answer


def test_lines_are_bodies(topic: str) -> None:
    sent = produce(topic, "one\ntwo\nthree\nfour", "--tags", "paid", "--key", "k", "--property", "region=eu", "--json")
    assert (sent.status, sent.object()["messages"]) == (0, 4)
    assert sorted(consume(topic).out.split("\n")) == ["", "four", "one", "three", "two"]
    assert len(consume(topic, "--count", 3).out.splitlines()) == 3
    fields = [json.loads(line) for line in consume(topic, "--format", "json").out.splitlines()]
    assert {(one["tags"], *one["keys"], one["properties"]["region"]) for one in fields} == {("paid", "k", "eu")}


def test_nothing_from_the_end_is_told(topic: str) -> None:
    assert produce(topic, "one").status == 0
    for begin in ("last", "2100-01-01"):
        answer = consume(topic, "--from", begin)
        assert answer.out == ""
        assert "has no message to read from " in answer.err
    assert consume(topic, "--from", "2020-01-01").out == "one\n"


def test_json_goes_from_one_topic_to_another(topic: str) -> None:
    rows = [
        {"body": "ö", "tags": "a", "keys": ["k1", "k2"], "properties": {"region": "eu"}},
        {"body_base64": "/w==", "keys": "k3 k4"},
    ]
    assert produce(topic, "\n\n".join(map(json.dumps, rows)), "--format", "json").status == 0
    first = consume(topic, "--format", "json").out
    copy = f"{topic}-copy"
    assert run_reput("admin", "create-topic", copy, "--queues", 1).status == 0
    assert produce(copy, first, "--format", "json").status == 0
    found = [json.loads(line) for line in consume(copy, "--format", "json").out.splitlines()]
    assert {(one.get("body"), one.get("body_base64"), one["tags"], *one["keys"]) for one in found} == {
        ("ö", None, "a", "k1", "k2"), (None, "/w==", None, "k3", "k4"),
    }  # fmt: skip
    assert [one["properties"]["region"] for one in found if one.get("body") == "ö"] == ["eu"]


def consume_parquet(topic: str) -> bytes:
    command = [sys.executable, "-m", "reput", "consume", topic, "--format", "parquet"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def test_parquet_goes_from_one_topic_to_another(topic: str) -> None:
    rows = [{"body": f"{i}", "tags": "a", "keys": [f"k{i}"], "properties": {"region": "eu"}} for i in range(20)]
    assert produce(topic, "\n".join(map(json.dumps, rows)), "--format", "json").status == 0
    written = consume_parquet(topic)
    table = parquet.read_table(pa.BufferReader(written))
    assert sorted(table["body"].to_pylist()) == sorted(b"%d" % i for i in range(20))
    assert set(table["tags"].to_pylist()) == {"a"}
    sent = produce(topic, written, "--format", "parquet", "--json")
    assert (sent.status, sent.object()["messages"]) == (0, 20)
    fields = [json.loads(line) for line in consume(topic, "--format", "json").out.splitlines()]
    assert sorted(one["keys"][0] for one in fields) == sorted(2 * [f"k{i}" for i in range(20)])
    assert {one["properties"]["region"] for one in fields} == {"eu"}


def test_what_parquet_cannot_be_is_refused(topic: str) -> None:
    assert "is no Parquet" in produce(topic, b"no parquet", "--format", "parquet").err
    for option in (("--tags", "a"), ("--rate", 10)):
        answer = produce(topic, b"", "--format", "parquet", *option)
        assert (answer.status, "has no meaning with --format parquet" in answer.err) == (2, True)
    answer = run_reput("consume", topic, "--format", "parquet", "--follow")
    assert (answer.status, "has no meaning with --format parquet" in answer.err) == (2, True)


def test_csv_has_columns_for_tags_keys_and_properties(topic: str) -> None:
    text = b'tags,body,keys,region\npaid,"a,""b""\nc",k1 k2,eu\n,\xff,,\n'
    assert produce(topic, text, "--format", "csv", "--property", "region=us").status == 0
    rows = [json.loads(line) for line in consume(topic, "--format", "json").out.splitlines()]
    rows.sort(key=lambda one: one["tags"] or "")
    assert [(one.get("body"), one["keys"], one["properties"]["region"]) for one in rows] == [
        (None, [], "us"), ('a,"b"\nc', ["k1", "k2"], "eu"),
    ]  # fmt: skip
    lines = consume(topic, "--group", topic, "--tags", "paid", "--format", "csv").out.split("\n")
    assert lines[0] == "topic,queue_id,queue_offset,store_timestamp,tags,keys,properties,body,body_base64"
    assert any(',paid,k1 k2,"{""region"": ""eu""' in line for line in lines)


def test_csv_goes_from_one_topic_to_another(topic: str) -> None:
    body, region = 'a,"b"\r\nö', 'e,"u"'
    rows = [
        {"body": body, "tags": "a", "keys": "k1 k2", "properties": {"region": region}},
        {"body_base64": "/w==", "properties": {"status": "new"}},
        {"body": "x" * 200_000},
    ]
    assert produce(topic, "\n".join(map(json.dumps, rows)), "--format", "json").status == 0
    copy = f"{topic}-copy"
    assert run_reput("admin", "create-topic", copy, "--queues", 1).status == 0
    assert produce(copy, consume(topic, "--format", "csv").out, "--format", "csv").status == 0
    found = [json.loads(line) for line in consume(copy, "--format", "json").out.splitlines()]
    assert {
        (one.get("body"), one.get("body_base64"), one["tags"], *one["keys"], one["properties"].get("region"))
        for one in found
    } == {(None, "/w==", None, None), (body, None, "a", "k1", "k2", region), ("x" * 200_000, None, None, None)}
    assert [one["properties"]["status"] for one in found if "body_base64" in one] == ["new"]


def test_a_group_goes_on_where_it_was(topic: str) -> None:
    assert produce(topic, "one").status == 0
    assert consume(topic, "--group", topic).out == "one\n"
    assert produce(topic, "two", "--tags", "paid").status == 0
    assert produce(topic, "three").status == 0
    assert consume(topic, "--group", topic, "--tags", "paid").out == "two\n"
    assert consume(topic, "--group", topic).out == ""


@pytest.mark.parametrize(
    ("format", "text", "stored", "words"),
    [
        ("json", '{"body":"a"}\n[]', 1, "line 2: expected a JSON object, found list"),
        ("lines", "a\n\nb", 1, "line 2: the body is empty"),
        ("json", "{", 0, "line 1: expected a JSON object"),
        ("json", '{"body":"a","body":"b"}', 0, "line 1: expected a JSON object: the name 'body' is there twice"),
        ("json", '{"body":"a","x":' + "[" * 100_000, 0, "line 1: expected a JSON object: nested too deeply"),
        ("json", "{}", 0, "`body` or `body_base64`"),
        ("json", '{"body_base64":"?"}', 0, "line 1: `body_base64`"),
        ("json", '{"body":"a","keys":1}', 0, "expected a list in `keys`"),
        ("json", '{"body":"a","tags":1}', 0, "line 1: tags must be text, not int"),
        ("json", '{"body":"a","key":"o-1"}', 0, "line 1: a message has no field 'key'; did you mean 'keys'?"),
        ("json", '{"body":"a","Tags":"x"}', 0, "did you mean 'tags'?"),
        ("json", '{"body":"a","stage":1}\n{"body":"b","keys":[],"key":7}\n[]', 2, "line 3"),
        ("csv", "tags\na", 0, "line 1: expected names of columns"),
        ("csv", "body,tags\na,b\nc", 1, "line 3: expected 2 columns, found 1"),
        ("csv", 'body\na\n"b', 1, "line 3: no CSV: unexpected end of data"),
        ("csv", "body,properties\na,[]", 0, "line 2: `properties`: expected a JSON object, found list"),
        ("csv", "body_base64\n?", 0, "line 2: `body_base64`"),
    ],
)
def test_what_is_no_message_ends_with_its_line_and_with_how_many_are_stored(
    topic: str, format: str, text: str, stored: int, words: str
) -> None:
    answer = produce(topic, text, "--format", format, "--json")
    assert answer.status == 2
    assert words in answer.err
    assert answer.object()["messages"] <= stored
    assert len(consume(topic).out.splitlines()) == answer.object()["messages"]


@pytest.mark.usefixtures("topic")
def test_what_makes_no_sense_is_refused() -> None:
    for arguments, words in (
        (("produce", "nosuch"), "there is no topic 'nosuch'"),
        (("produce", "nosuch"), "`reput admin create-topic nosuch` makes it"),
        (("admin", "send", "nosuch", "x"), "`reput admin create-topic nosuch` makes it"),
        (("consume", "nosuch"), "there is no topic 'nosuch'"),
        (("consume", "orders", "--tags", "a"), "--tags counts only with --group"),
        (("consume", "orders", "--from", "x"), "'x' is no time"),
    ):
        answer = run_reput(*arguments, stdin=b"a")
        assert (answer.status, answer.out) == (2, "")
        assert words in answer.err


def test_a_rate_is_kept(topic: str) -> None:
    sent = produce(topic, "a\n" * 30, "--rate", 100, "--json").object()
    assert sent["messages"] == 30
    assert sent["seconds"] >= 0.19


def test_a_pipe_that_stays_open_is_sent_and_followed_as_it_comes(topic: str, tmp_path: Path) -> None:
    reput = [sys.executable, "-m", "reput"]
    with (
        subprocess.Popen([*reput, "consume", topic, "--follow"], stdout=subprocess.PIPE, text=True) as follower,
        subprocess.Popen([*reput, "produce", topic], stdin=subprocess.PIPE, text=True, bufsize=1) as sender,
    ):
        assert follower.stdout is not None
        assert sender.stdin is not None
        for number in range(3):
            sender.stdin.write(f"{number}\n")
            sender.stdin.flush()
            assert follower.stdout.readline() == f"{number}\n"
        sender.stdin.close()
        assert sender.wait(60) == 0
        follower.send_signal(signal.SIGINT)
        assert follower.wait(60) == 0


def test_what_is_refused_ends_a_pipe_that_stays_open_with_one_line_and_status_2(topic: str) -> None:
    """A thread reads standard input meanwhile: it kept a lock that Python takes at its end, which aborted."""
    reput = [sys.executable, "-m", "reput"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*reput, "produce", topic], stdin=pipe, stdout=pipe, stderr=pipe) as sender:
        assert sender.stdin is not None
        assert sender.stderr is not None
        sender.stdin.write(b"one\n" + bytes(2 << 20) + b"\n")
        sender.stdin.flush()
        assert sender.wait(60) == 2
        (line,) = sender.stderr.read().splitlines()
        assert b"answers code 13: the message is illegal" in line


def test_a_standard_input_that_the_shell_has_closed_is_one_line(topic: str, tmp_path: Path) -> None:
    reput = f"exec {sys.executable} -m reput"
    for words in (
        f"produce {topic}", f"produce {topic} --format csv", f"produce {topic} --format parquet",
        f"put {tmp_path / 'store'} --topic a --stdin",
    ):  # fmt: skip
        ended = subprocess.run(f"{reput} {words} <&-", shell=True, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (2, "reput: standard input is closed; give messages there\n")


def test_a_standard_input_that_cannot_be_read_is_no_error_of_the_output(topic: str, tmp_path: Path) -> None:
    reput = f"exec {sys.executable} -m reput"
    for words in (f"produce {topic}", f"put {tmp_path / 'store'} --topic a --stdin"):
        ended = subprocess.run(f"{reput} {words} 0>/dev/null", shell=True, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (2, "reput: standard input cannot be read: Bad file descriptor\n")


def test_an_interrupt_tells_how_many_messages_may_be_stored_beside_those_that_are(topic: str) -> None:
    sender = [sys.executable, "-c", AT_A_CALL, "reput.client.producing.producer", "Producer.send_batch", "1"]
    for more, shown in (([], "messages  0\n"), (["--json"], '"less_safe": {}, "unknown": 1}\n')):
        ended = subprocess.run(
            [*sender, "produce", topic, *more], input="1\n", capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 130
        assert shown in ended.stdout
        assert ended.stderr.splitlines() == [
            "reput: 1 message may be stored, too: the answer has not come", "reput: interrupted",
        ]  # fmt: skip


def test_a_topic_that_nobody_may_read_is_told_at_once_to_a_group_too(topic: str, broker: Broker) -> None:
    make_topic(broker.address, topic, 2, perm=2)
    for options in ((), ("--group", "g"), ("--group", "g", "--follow")):
        answer = run_reput("consume", topic, *options)
        assert answer.status == 2
        assert answer.err == f"reput: topic {topic!r} has no queue that gives messages: nobody may read it\n"


@pytest.mark.parametrize(("more", "status"), [(["--follow"], 0), ([], 130)])
def test_one_interrupt_ends_a_command_whose_reader_stands_still(topic: str, more: list[str], status: int) -> None:
    assert produce(topic, b"%010000d\n" % 7 * 20).status == 0  # each fills the pipe
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(
        [sys.executable, "-m", "reput", "consume", topic, *more], stdout=writer, stderr=subprocess.PIPE, text=True
    ) as command:
        os.close(writer)
        try:
            until(lambda: _unread(reader) >= 4096)
            command.send_signal(signal.SIGINT)
            assert command.wait(30) == status
            assert command.stderr is not None
            assert command.stderr.read() == ("reput: interrupted\n" if status else "")
        finally:
            command.kill()
            os.close(reader)


def _unread(pipe: int) -> int:
    """Bytes that a pipe holds."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_messages_that_no_slave_has_are_told_with_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {
        "bind_address": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "broker_role": "SYNC_MASTER",
        **SMALL,
    }
    (keys["ha_listen_port"],) = free_ports(1)
    with Broker.start(tmp_path / "store", **keys) as alone:
        monkeypatch.setenv("NAMESRV_ADDR", alone.namesrv)
        assert run_reput("admin", "create-topic", "orders", "--queues", 2).status == 0
        sent = produce("orders", "one\ntwo", "--json")
        assert (sent.status, sent.object()["messages"]) == (1, 2)
        assert sent.object()["less_safe"] == {"SLAVE_NOT_AVAILABLE": 2}
        assert "less safe than their broker was to make them: SLAVE_NOT_AVAILABLE 2" in sent.err
        late = {"body": "three", "properties": {"DELAY": "1"}}
        assert produce("orders", json.dumps(late), "--format", "json", "--json").object()["less_safe"] == {
            "SLAVE_NOT_AVAILABLE": 1
        }
        rows = tmp_path / "rows.parquet"
        parquet.write_table(pa.table({"body": [b"four", b"five"]}), rows)
        table = produce("orders", rows.read_bytes(), "--format", "parquet", "--json")
        assert (table.status, table.object()["less_safe"]) == (1, {"SLAVE_NOT_AVAILABLE": 2})


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_what_a_message_asked_for_is_not_asked_again_by_its_copy(topic: str, tmp_path: Path, format: str) -> None:
    hour = {"TIMER_DELAY_MS": "3600000", "TRAN_MSG": "true", "PGROUP": "shop"}
    rows: list[dict[str, str]] = [{"region": "eu"}, {**hour, "REAL_TOPIC": "x", "REAL_QID": "0", "region": "us"}]
    if format == "json":
        text = "\n".join(json.dumps({"body": str(n), "properties": row}) for n, row in enumerate(rows)).encode()
    elif format == "csv":
        lines = [f'{n},"{json.dumps(row).replace(chr(34), chr(34) * 2)}"' for n, row in enumerate(rows)]
        text = "\n".join(["body,properties", *lines]).encode()
    else:
        properties = pa.array([list(row.items()) for row in rows], pa.map_(pa.string(), pa.string()))
        parquet.write_table(pa.table({"body": [b"0", b"1"], "properties": properties}), tmp_path / "rows.parquet")
        text = (tmp_path / "rows.parquet").read_bytes()
    sent = produce(topic, text, "--format", format)
    assert sent.status == 0, sent.err
    found = [json.loads(line) for line in consume(topic, "--format", "json").out.splitlines()]
    assert {(one["body"], one["properties"]["region"]) for one in found} == {("0", "eu"), ("1", "us")}
    assert not any({*hour, "REAL_TOPIC", "REAL_QID"} & one["properties"].keys() for one in found)
