"""reput config: every key with value, default, unit and meaning."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from reput.config.broker import BrokerConfig
from reput.config.message_store import MessageStoreConfig
from reput.config.properties import camel_case
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
    assert values["listenPort"] == (2, 10911, "")
    assert values["flushIntervalCommitLog"] == (7, 500, "ms")
    assert values["flushDiskType"][0] == "ASYNC_FLUSH"
    assert values["brokerName"] == ("b", "broker-a", "")
    assert answer["ignored"] == ["storeType"]
    text = run_reput("config", "--config", conf, "--set", "warmMapedFileEnable=true").out
    assert "7 ms (default 500)" in text
    assert "true (default false)" in text
    assert "ignored: storeType" in text


def test_without_a_broker_conf_a_put_is_synced(run_reput: Run) -> None:
    keys = {key["key"]: key["value"] for key in run_reput("config", "--json").object()["keys"]}
    assert keys["flushDiskType"] == "SYNC_FLUSH"


def test_a_wrong_line_of_a_broker_conf_is_named(tmp_path: Path, run_reput: Run) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("# broker\nlistenPrt=1\n")
    answer = run_reput("config", "--config", conf)
    assert answer.status == 2
    assert answer.err.startswith(f"reput: {conf}:2: unknown configuration key 'listenPrt'")
