"""reput put: what it stores, and what it refuses before anything is written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import reput
from reput.config.message_store import MessageStoreConfig
from tests.support.commands import SMALL_FILES, Run, content_of
from tests.support.faulty_files import FaultyFiles, fail_next


def test_every_option_arrives_in_the_stored_message(store: Path) -> None:
    with reput.MessageStore.open(store, read_only=True) as opened:
        first, second, *_ = opened.get_message("orders", 0, offset=0).messages()
        (elsewhere,) = opened.get_message("orders", 1, offset=0).messages()
    assert (first.body, first.tags, first.keys, first.properties) == (
        b"hello world",
        "paid",
        ("o-1", "o-2"),
        {"region": "eu"},
    )
    assert (second.body, second.tags, second.keys, second.properties) == (b"one", "shipped", ("o-2",), {})
    assert (elsewhere.body, elsewhere.queue_id) == (b"elsewhere", 1)


def test_the_answer_is_status_and_offsets_of_the_first_message(tmp_path: Path, run_reput: Run) -> None:
    path = tmp_path / "new"
    one = run_reput("put", path, "--topic", "t", "--body", "x", "--json", *SMALL_FILES)
    assert one.status == 0
    assert one.object() == {
        "status": "PUT_OK",
        "messages": 1,
        "queue_offset": 0,
        "last_queue_offset": 0,
        "commit_log_offset": 0,
        "message_id": "7F00000100002A9F" + "0" * 16,
    }
    many = run_reput("put", path, "--topic", "t", "--stdin", "--json", *SMALL_FILES, stdin="a\nb\n\nd").object()
    assert (many["messages"], many["queue_offset"], many["last_queue_offset"]) == (4, 1, 4)
    assert many["commit_log_offset"] == 91 + len("x") + len("t")
    text = run_reput("put", path, "--topic", "t", "--body", "x", *SMALL_FILES)
    assert "PUT_OK" in text.out
    assert "last_queue_offset  5" in text.out


def test_a_body_file_is_stored_byte_for_byte(tmp_path: Path, run_reput: Run) -> None:
    body = bytes(range(256)) + b"\n"
    (tmp_path / "body").write_bytes(body)
    assert run_reput("put", tmp_path / "s", "--topic", "t", "--body-file", tmp_path / "body", *SMALL_FILES).status == 0
    with reput.MessageStore.open(tmp_path / "s", read_only=True) as opened:
        (message,) = opened.get_message("t", 0, offset=0).messages()
    assert message.body == body


def test_a_broker_conf_configures_the_store_and_set_goes_before_it(tmp_path: Path, run_reput: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=a\nmappedFileSizeCommitLog=131072\nlistenPort=9999\n")
    arguments = ("--topic", "t", "--body", "x", "--config", conf, "--set", "listenPort=7777", "--json")
    answer = run_reput("put", tmp_path / "s", *arguments)
    assert answer.object()["message_id"].startswith(f"7F000001{7777:08X}")
    assert (tmp_path / "s/commitlog" / ("0" * 20)).stat().st_size == 131072


REFUSED = {
    "a topic that is no folder's name": (("--topic", "a/b", "--body", "x"), "cannot be the name of a folder"),
    "a topic of 128 bytes": (("--topic", "t" * 128, "--body", "x"), "takes 128 bytes; 127 are allowed"),
    "a body over maxMessageSize": (
        ("--topic", "t", "--body", "x" * 4097),
        "maxMessageSize allows 4096",
    ),
    "properties over 32767 bytes": (
        ("--topic", "t", "--body", "x", "--property", "p=" + "v" * 32767),
        "32767 are allowed",
    ),
    "a separator in a property": (("--topic", "t", "--body", "x", "--property", "p=a\x01b"), "holds a separator"),
    "a reserved property": (("--topic", "t", "--body", "x", "--property", "KEYS=a"), "pass keys="),
    "a property without a value": (("--topic", "t", "--body", "x", "--property", "p"), "write name=value"),
    "a property twice": (("--topic", "t", "--body", "x", "--property", "p=1", "--property", "p=2"), "given twice"),
    "a blank in a key": (("--topic", "t", "--body", "x", "--key", "a b"), "holds a blank"),
    "no body": (("--topic", "t"), "give one of --body, --body-file and --stdin"),
    "two bodies": (("--topic", "t", "--body", "x", "--stdin"), "give one of --body, --body-file and --stdin"),
    "a format without rows": (("--topic", "t", "--body", "x", "--format", "csv"), "--format counts only with --stdin"),
    "an empty input": (("--topic", "t", "--stdin"), "standard input is empty"),
    "no such body file": (("--topic", "t", "--body-file", "/no/such/file"), "/no/such/file: cannot open"),
    "no such broker.conf": (("--topic", "t", "--body", "x", "--config", "/no/such/file"), "/no/such/file"),
    "an unknown key": (("--topic", "t", "--body", "x", "--set", "listenPrt=1"), "did you mean listenPort?"),
    "a wrong value": (("--topic", "t", "--body", "x", "--set", "listenPort=70000"), "from 0 to 65535"),
    "a negative queue": (("--topic", "t", "--body", "x", "--queue-id", "-1"), "--queue-id"),
    "a queue that no record can have": (("--topic", "t", "--body", "x", "--queue-id", str(1 << 31)), "2147483647"),
    "no topic": (("--body", "x"), "--topic"),
}


@pytest.mark.parametrize(("arguments", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path, run_reput: Run, store: Path, arguments: tuple[str, ...], reason: str
) -> None:
    before = content_of(store)
    for path in (store, tmp_path / "not-there"):
        answer = run_reput("put", path, *SMALL_FILES, *arguments)
        assert (answer.status, answer.out) == (2, "")
        assert answer.err.startswith("reput: ")
        assert answer.err.count("\n") == 1
        assert reason in answer.err
    assert content_of(store) == before
    assert not (tmp_path / "not-there").exists()


def test_one_illegal_line_of_many_is_named_and_none_is_stored(store: Path, run_reput: Run) -> None:
    before = content_of(store)
    lines = "fine\n" + "x" * 5000 + "\nfine\n"
    answer = run_reput("put", store, "--topic", "orders", "--stdin", *SMALL_FILES, stdin=lines)
    assert answer.status == 2
    assert answer.err.startswith("reput: line 2: the body takes 5000 bytes")
    assert content_of(store) == before


ROWS = {
    "json": '{"body": "a", "tags": "paid", "keys": ["k1", "k2"], "properties": {"n": "1"}}\n\n{"body_base64": "/w=="}',
    "csv": "\ufeffbody,body_base64,keys,tags,n\na,,k1 k2,paid,1\n,/w==,,,\n",
}


@pytest.mark.parametrize(("format", "text"), ROWS.items(), ids=ROWS.keys())
def test_rows_of_input_are_those_of_produce(tmp_path: Path, run_reput: Run, format: str, text: str) -> None:
    command = ("put", tmp_path / "s", "--topic", "t", "--stdin", "--format", format, *SMALL_FILES)
    assert run_reput(*command, "--tags", "else", "--property", "n=2", stdin=text.encode()).status == 0
    with reput.MessageStore.open(tmp_path / "s", read_only=True) as opened:
        found = opened.get_message("t", 0, offset=0).messages()
    assert [(one.body, one.tags, one.keys, one.properties) for one in found] == [
        (b"a", "paid", ("k1", "k2"), {"n": "1"}), (b"\xff", "else", (), {"n": "2"}),
    ]  # fmt: skip
    before = content_of(tmp_path / "s")
    answer = run_reput(*command, stdin=text.replace("/w==", "?").encode())
    assert (answer.status, "line 3: `body_base64`" in answer.err) == (2, True)
    assert content_of(tmp_path / "s") == before


def test_a_store_of_another_file_size_is_refused_unchanged(store: Path, run_reput: Run) -> None:
    before = content_of(store)
    answer = run_reput("put", store, "--topic", "orders", "--body", "x", "--set", "mappedFileSizeCommitLog=131072")
    assert answer.status == 2
    assert "65536" in answer.err
    after = content_of(store)
    assert {name: data for name, (data, _) in after.items()} == {name: data for name, (data, _) in before.items()}


def test_a_store_that_is_open_elsewhere_is_refused(store: Path, run_reput: Run) -> None:
    with reput.MessageStore.open(
        store, mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=100,
        max_index_num=400,
    ):  # fmt: skip
        answer = run_reput("put", store, "--topic", "orders", "--body", "x", *SMALL_FILES)
    assert answer.status == 2
    assert answer.err.startswith(f"reput: {store}/lock: ")


@pytest.mark.parametrize("as_json", [False, True])
def test_where_the_disk_becomes_full_a_pipe_goes_on_after_the_lines_that_are_stored(
    tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    path, lines = tmp_path / "store", [f"{number} {'x' * 3000}\n" for number in range(100)]
    command = ("put", path, "--topic", "t", "--stdin", *SMALL_FILES, *(["--json"] if as_json else []))

    def open_on_a_full_disk(path: str, *, config: MessageStoreConfig) -> reput.MessageStore:
        full = fail_next("allocate", errno.ENOSPC, part="commitlog", times=1000, after=3)
        return reput.MessageStore.open(path, config=config, files=FaultyFiles(full))

    with monkeypatch.context() as patched:
        patched.setattr("reput.cli.commands.put.open_store", open_on_a_full_disk)
        answer = run_reput(*command, stdin="".join(lines))
    assert answer.status == 2
    assert "free some" in answer.err
    told = answer.object() if as_json else dict(line.split() for line in answer.out.splitlines())
    assert (told["status"], int(told["of"])) == ("FAILED", 100)
    stored = int(told["messages"])
    assert 0 < stored < 100
    assert run_reput(*command, stdin="".join(lines[stored:])).status == 0
    bodies = reput.read_log(path, columns=["body"]).read_all()["body"].to_pylist()
    assert bodies == [line.rstrip("\n").encode() for line in lines]


def test_of_a_failed_sync_nobody_knows_what_is_stored(
    tmp_path: Path, run_reput: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_on_a_bad_disk(path: str, *, config: MessageStoreConfig) -> reput.MessageStore:
        files = FaultyFiles()
        store = reput.MessageStore.open(path, config=config, files=files)
        store.put_message(reput.Message("t", b"x"))
        files.judge = fail_next("sync", part="commitlog", times=1000)
        return store

    monkeypatch.setattr("reput.cli.commands.put.open_store", open_on_a_bad_disk)
    answer = run_reput("put", tmp_path / "new", "--topic", "t", "--stdin", "--json", *SMALL_FILES, stdin="a\nb\n")
    assert answer.status == 2
    assert answer.object() == {"status": "FAILED", "messages": None, "of": 2}


@pytest.mark.parametrize(("topic", "remark"), [("a b", "illegal characters"), ("order.s", "illegal"), (" ", "blank")])
def test_a_topic_that_no_broker_serves_is_refused(tmp_path: Path, run_reput: Run, topic: str, remark: str) -> None:
    ended = run_reput("put", tmp_path / "s", "--topic", topic, "--body", "x", *SMALL_FILES)
    assert (ended.status, ended.out) == (2, "")
    assert f"--topic {topic!r}: no broker serves such a topic: " in ended.err
    assert remark in ended.err
    assert not (tmp_path / "s").exists()
