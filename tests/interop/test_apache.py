"""The other side itself: what it is told it stores, and what it cannot do it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rocketmq.apache import Apache, ApacheError, build
from tests.support.rocketmq.stores import each_store_version

pytestmark = pytest.mark.java

CONFIG = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
MESSAGE = {"topic": "a", "queue_id": 1, "body": "cafe", "properties": {"TAGS": "t", "KEYS": "k"}, "born_host": "::1:5"}


@each_store_version
def test_a_killed_store_shows_what_was_put_into_it(apache: Apache, tmp_path: Path) -> None:
    assert apache.run("open", path=str(tmp_path), config=CONFIG)[1] == 0
    (result,) = apache.run("put", messages=[MESSAGE])
    assert (result["status"], result["commit_log_offset"], result["count"]) == ("PUT_OK", 0, 1)
    apache.kill()
    assert (tmp_path / "abort").exists()
    assert apache.run("open", path=str(tmp_path), config=CONFIG)[0] == 0
    told = apache.run("dump")
    (queue,) = told["queues"]
    assert queue["messages"] == [record["message"] for record in told["records"]]
    assert {name: queue["messages"][0][name] for name in ("topic", "body", "properties", "born_host")} == {
        **{name: MESSAGE[name] for name in ("topic", "body", "properties")},
        "born_host": "0" * 31 + "1:5",
    }
    assert apache.run("query", topic="a", keys=["k", "none"], max_num=9) == {"k": [0], "none": []}
    apache.run("close")
    assert not (tmp_path / "abort").exists()


@each_store_version
def test_what_java_cannot_do_is_said(apache: Apache) -> None:
    with pytest.raises(ApacheError, match=r"RocketMQ [45.379]+\d, put: .*IllegalStateException: no store is open"):
        apache.run("put", messages=[MESSAGE])
    with pytest.raises(ApacheError, match=r"no command seal, there are \[open, put"):
        apache.run("seal")


def test_a_machine_without_java_and_maven_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        ApacheError, match=r"java and javac and mvn not found on PATH: .* need a JDK 11 or newer and Maven"
    ):
        build("5.3.3")
