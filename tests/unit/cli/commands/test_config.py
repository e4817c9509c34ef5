"""reput config: every key with value, default, unit and meaning."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from reput.config.broker import BrokerConfig
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
from reput.config.rocketmq_config import keys_of
from reput.config.rocketmq_keys import ROCKETMQ_KEYS
from tests.support.commands import Run


def test_every_key_is_listed_with_its_meaning(run_reput: Run) -> None:
    keys = run_reput("config", "--json").object()["keys"]
    for of, kind in (("store", MessageStoreConfig), ("broker", BrokerConfig)):
        names = [camel_case(key.name) for key in fields(kind) if key.metadata]
        assert [key["key"] for key in keys if key["of"] == of] == names
    assert len({key["key"] for key in keys}) == len(keys)
    assert all(key["meaning"] for key in keys)
    text = run_reput("config").out
    assert all(f"\n{key['key']} " in text for key in keys)


def test_values_come_from_set_then_broker_conf_then_the_defaults(tmp_path: Path, run_reput: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("storeType=default\nlistenPort=1\nflushIntervalCommitLog=7\nbrokerName=b\n")
    answer = run_reput("config", "--config", conf, "--set", "listen_port=2", "--json").object()
    values = {key["key"]: (key["value"], key["default"], key["unit"]) for key in answer["keys"]}
    rocketmqs = {key["key"]: key["rocketmq"] for key in answer["keys"]}
    assert values["listenPort"] == (2, 10911, "")
    assert values["flushIntervalCommitLog"] == (7, 500, "ms")
    assert values["flushDiskType"][:2] == ("SYNC_FLUSH", "SYNC_FLUSH")
    assert rocketmqs["flushDiskType"] == "ASYNC_FLUSH"
    assert values["brokerName"] == ("b", "broker-a", "")
    assert answer["ignored"] == ["storeType"]
    text = run_reput("config", "--config", conf, "--set", "warmMapedFileEnable=true").out
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["flushIntervalCommitLog"][:8] == [
        "flushIntervalCommitLog",
        "store",
        "7",
        "ms",
        "500",
        "ms",
        "500",
        "ms",
    ]
    assert rows["warmMapedFileEnable"][1:5] == ["store", "true", "false", "false"]
    assert rows["flushDiskType"][1:5] == ["store", "SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH"]
    assert "ignored: storeType" in text


@pytest.mark.parametrize("text", ["flush", "FLUSH", "flush_disk", "tls.server", "tls_server_cert"])
def test_a_text_shows_the_keys_that_have_it_in_their_name(run_reput: Run, text: str) -> None:
    wanted = {text.lower(), camel_case(text).lower()}
    names = [camel_case(name) for kind in (MessageStoreConfig, BrokerConfig) for name in keys_of(kind)]
    expected = [name for name in names if any(one in name.lower() for one in wanted)]
    assert expected
    shown = run_reput("config", text, "--json").object()["keys"]
    assert [key["key"] for key in shown] == expected
    unused = [key for key in ROCKETMQ_KEYS if any(one in key.lower() for one in wanted) and key not in names]
    told = [line.split()[0] for line in run_reput("config", text).out.splitlines() if line and not line.startswith("─")]
    assert told == ["key", *expected, *(["RocketMQ's", *sorted(unused, key=str.lower)] if unused else [])]


def test_a_key_without_an_effect_is_shown_with_its_reason_and_the_version_that_has_it_first(run_reput: Run) -> None:
    answer = run_reput("config", "rocksdb", "--json").object()
    shown = {key["key"]: key for key in answer["unused"]}
    assert answer["keys"] == []
    assert shown["rocksdbMaxSizeAmplificationPercent"] == {
        "key": "rocksdbMaxSizeAmplificationPercent",
        "type": "int",
        "since": "5.5.1",
        "meaning": "no effect here: queues are in files, in no RocksDB",
    }
    assert shown["timerRocksDBEnable"]["since"] == "5.4.0"
    assert shown["timerRocksDBEnable"]["meaning"].startswith("only false is taken: messages with a time wait in ")
    assert shown["rocksdbCompressionType"]["since"] is None
    lines = run_reput("config", "brokerip2").out.splitlines()
    assert [line.split() for line in lines if line.startswith("broker")] == [
        "brokerIP2 no effect here: the broker has one address, brokerIP1, for clients and slaves".split()
    ]


def test_json_has_all_keys_of_rocketmq_and_the_table_those_that_have_an_effect(run_reput: Run) -> None:
    answer = run_reput("config", "--json").object()
    names = [key["key"] for kind in ("keys", "unused") for key in answer[kind]]
    assert len(set(names)) == len(names)
    assert set(names) >= ROCKETMQ_KEYS.keys()
    assert "brokerIP2" not in run_reput("config").out


def test_a_key_with_which_nothing_starts_is_told(tmp_path: Path, run_reput: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerId=0\nstoreType=defaultRocksDB\n")
    why = f"{conf}:2: storeType=defaultRocksDB: {ROCKETMQ_KEYS['storeType'].reason}; leave storeType out"
    answer = run_reput("config", "--config", conf, "--json").object()
    assert (answer["ignored"], answer["refused"]) == ([], [why])
    assert f"no broker starts with {why}" in " ".join(run_reput("config", "--config", conf).out.split())
    broker = run_reput("broker", tmp_path / "store", "--config", conf)
    assert (broker.status, broker.out, broker.err.splitlines()[-1]) == (2, "", f"reput: {why}")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("haListenPrt", "; did you mean haListenPort?"),
        ("qqqq", ""),
    ],
)
def test_a_text_that_no_key_has_is_an_error_with_what_was_meant(run_reput: Run, text: str, hint: str) -> None:
    answer = run_reput("config", text)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == f"reput: no key of broker or store has {text!r} in its name{hint}\n"


def test_a_wrong_line_of_a_broker_conf_is_named(tmp_path: Path, run_reput: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# broker\nlistenPrt=1\n")
    answer = run_reput("config", "--config", conf)
    assert answer.status == 2
    assert answer.err.startswith(f"reput: {conf}:2: unknown configuration key 'listenPrt'")
