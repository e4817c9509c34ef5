"""Topics that are not what reput recorded: found by an audit, put back by a repair and a salvage; what is no fault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.formats.java_bean import encode_bean
from reput.formats.metadata import DataVersion, TopicConfig, Topics, decode_metadata, encode_metadata
from reput.formats.shutdown import decode_shutdown
from reput.jobs.audit.job import audit
from reput.jobs.backup.backup_job import backup
from reput.jobs.backup.restore_job import restore
from reput.jobs.findings import Finding
from reput.jobs.rebuild.job import rebuild
from reput.jobs.repair.repair_job import repair
from reput.jobs.repair.salvage_job import salvage
from reput.jobs.runner import LocalRunner
from tests.support.faulty_files import FaultyFiles, abandon
from tests.support.orders import SIZES, put

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

RUNNER = LocalRunner(1)
TYPED = {"message.type": "FIFO"}
SHUTDOWN = "config/reputShutdown.json"


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("topics") / "store"
    with reput.MessageStore.open(path, files=FaultyFiles(), **SIZES) as store:
        put(store, 20)
        store.update_topic(TopicConfig("orders", 4, 8))
        store.update_topic(TopicConfig("refunds", 2, 2, attributes=TYPED))
    return path


@pytest.fixture
def store(closed_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(closed_store, tmp_path / "store"))


def file_of(store: Path) -> Path:
    return store / "config/topics.json"


def topics_of(store: Path) -> Topics:
    return decode_metadata(Topics, file_of(store).read_bytes())


def findings(store: Path) -> tuple[Finding, ...]:
    return audit(store, runner=RUNNER).findings


def change(store: Path, old: str, new: str) -> None:
    text = file_of(store).read_text()
    assert old in text
    file_of(store).write_text(text.replace(old, new, 1))


CHANGES: dict[str, tuple[str, str, str]] = {
    "a number": ('"writeQueueNums":8', '"writeQueueNums":9', "orders: writeQueueNums: expected 8, found 9"),
    "a permission": ('"perm":6', '"perm":4', "orders: perm: expected 6, found 4"),
    "an attribute": (
        '"FIFO"', '"FIFN"', 'refunds: attributes: expected {"message.type": "FIFO"}, found {"message.type": "FIFN"}'
    ),
    "the name of a topic": ('"orders":{', '"ordess":{', "orders: expected this topic, found none of its name"),
    "the name in a topic": (
        '"topicName":"orders"', '"topicName":"Orders"', 'orders: topicName: expected "orders", found "Orders"'
    ),
    "the name of a member": ('"readQueueNums":4', '"readQueueNumr":4', "orders: readQueueNums: expected 4, found 16"),
    "the name of a member that has its default": ('"order":', '"ordes":', "orders: expected order, found ordes"),
    "the name of the table": (
        "topicConfigTable", "topicConfigTablf", "orders: expected this topic, found none of its name"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_setting_is_told_with_what_was_expected_and_put_back(name: str, store: Path) -> None:
    before, whole = topics_of(store), file_of(store).read_bytes()
    old, new, text = CHANGES[name]
    change(store, old, new)
    damaged = file_of(store).read_bytes()
    found = findings(store)[0]
    assert (found.code, found.path, found.text, found.topic) == (
        "config-changed",
        str(file_of(store)),
        text,
        text.split(":")[0],
    )
    assert found.kind.finding_class == "hidden"
    result = repair(store, apply=True, runner=RUNNER)
    assert ([step.action.value for step in result.steps], result.is_fine) == (["restore-topics"], True)
    assert text in result.steps[0].text
    assert result.kept == (f"{file_of(store)}.broken",)
    assert Path(result.kept[0]).read_bytes() == damaged
    restored = topics_of(store)
    assert (dict(restored.topic_config_table), restored.data_version) == (
        dict(before.topic_config_table),
        before.data_version,
    )
    assert file_of(store).read_bytes() == whole or name == "the name of the table"
    assert findings(store) == ()


@pytest.mark.parametrize("content", [None, b""])
def test_a_file_that_is_gone_is_told_and_made_again(content: bytes | None, store: Path) -> None:
    before = topics_of(store)
    file_of(store).unlink()
    if content is not None:
        file_of(store).write_bytes(content)
    (found,) = findings(store)
    assert (found.code, found.text) == ("config-changed", "expected 2 topics, found no file, or nothing in it")
    assert repair(store, apply=True, runner=RUNNER).is_fine
    assert topics_of(store) == before


def test_a_file_that_is_damaged_with_its_backup_is_made_from_the_record(store: Path) -> None:
    before = topics_of(store)
    for path in (file_of(store), file_of(store).with_name("topics.json.bak")):
        path.write_bytes(b"{{{")
    assert repair(store, apply=True, runner=RUNNER).is_fine
    assert topics_of(store) == before


def reorder(topics: Topics) -> bytes:
    """As another writer may spell it: other blanks, another order, its own topics, a member of a later version."""
    plain = encode_bean(topics)
    for topic in plain["topicConfigTable"].values():
        topic["liteTopicExpiration"] = -1
    table = {"SELF_TEST_TOPIC": encode_bean(TopicConfig("SELF_TEST_TOPIC", 1, 1))}
    table |= dict(reversed(plain["topicConfigTable"].items()))
    return json.dumps(dict(reversed((plain | {"topicConfigTable": table}).items()))).encode()


def older(topics: Topics) -> bytes:
    """As 4.9.7 does: without members that it does not know."""
    plain = encode_bean(topics)
    del plain["topicConfigTable"]["orders"]["attributes"], plain["dataVersion"]["stateVersion"]
    return json.dumps(plain).encode()


def later(topics: Topics) -> bytes:
    """Every change that RocketMQ makes raises the data version."""
    table = {"orders": TopicConfig("orders", 1, 1, 4)}
    version = DataVersion(topics.data_version.counter + 1, 0, topics.data_version.timestamp + 1)
    return encode_metadata(replace(topics, topic_config_table=table, data_version=version))


@pytest.mark.parametrize("spell", [reorder, older, later])
def test_what_another_writer_may_do_is_no_fault(spell: Callable[[Topics], bytes], store: Path) -> None:
    file_of(store).write_bytes(spell(topics_of(store)))
    assert findings(store) == ()


def test_a_change_of_the_data_version_alone_changes_nothing_that_is_given(store: Path) -> None:
    before = topics_of(store)
    change(store, '"counter":2', '"counter":3')
    assert findings(store) == ()
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:
        assert dict(opened.topics) == dict(before.topic_config_table)
        opened.update_topic(TopicConfig("later"))
    assert topics_of(store).data_version.counter == 4


def recorded(store: Path) -> Any:
    shutdown = decode_shutdown((store / SHUTDOWN).read_bytes())
    assert shutdown is not None
    assert shutdown.topics is not None
    return shutdown.topics["topicConfigTable"]


def test_a_start_goes_on_with_what_it_finds_and_the_finding_stays(store: Path) -> None:
    change(store, '"perm":6', '"perm":4')
    with reput.MessageStore.open(store, read_only=True, **SIZES) as opened:
        assert opened.topics["orders"].perm == 4
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:
        assert opened.topics["orders"].perm == 4
        opened.put_message(reput.Message("orders", b"x"))
    assert [found.code for found in findings(store)] == ["config-changed"]
    with reput.MessageStore.open(store, files=FaultyFiles(), **SIZES) as opened:
        opened.update_topic(replace(opened.topics["orders"], perm=2))
    assert findings(store) == ()
    assert recorded(store)["orders"]["perm"] == 2


def test_the_record_of_a_store_that_was_killed_since_holds(store: Path) -> None:
    files = FaultyFiles()
    opened = reput.MessageStore.open(store, files=files, **SIZES)
    put(opened, 4)
    abandon(opened, files)
    assert "config-changed" not in {found.code for found in findings(store)}
    change(store, '"perm":6', '"perm":4')
    assert "config-changed" in {found.code for found in findings(store)}


def test_the_record_of_a_store_that_was_killed_behind_a_change_of_topics_is_void(store: Path) -> None:
    files = FaultyFiles()
    opened = reput.MessageStore.open(store, files=files, **SIZES)
    opened.update_topic(TopicConfig("orders", 1, 1))
    abandon(opened, files)
    assert findings(store) == ()


def test_a_garbled_record_is_told_and_blames_nobody(store: Path) -> None:
    text = (store / SHUTDOWN).read_text()
    assert '"perm": 6' in text
    (store / SHUTDOWN).write_text(text.replace('"perm": 6', '"perm": 4', 1))
    before = file_of(store).read_bytes()
    (found,) = findings(store)
    assert (found.code, found.path) == ("config-backup", str(store / SHUTDOWN))
    assert repair(store, apply=True, runner=RUNNER).is_fine
    assert file_of(store).read_bytes() == before


def test_a_salvaged_store_has_what_was_recorded_and_says_so(store: Path, tmp_path: Path) -> None:
    before = topics_of(store)
    change(store, '"perm":6', '"perm":4')
    result = salvage(store, tmp_path / "salvaged", apply=True, runner=RUNNER)
    assert topics_of(tmp_path / "salvaged") == before
    assert not (tmp_path / "salvaged" / SHUTDOWN).exists()
    assert any("topics.json: changed" in note for note in result.config)


def test_a_restored_backup_and_a_store_rebuilt_in_place_have_no_record(store: Path, tmp_path: Path) -> None:
    backup(store, str(tmp_path / "backups"), runner=RUNNER)
    restore(str(tmp_path / "backups"), tmp_path / "restored", runner=RUNNER)
    assert file_of(tmp_path / "restored").read_bytes() == file_of(store).read_bytes()
    rebuild(store, None, runner=RUNNER)
    for path in (tmp_path / "restored", store):
        assert not (path / SHUTDOWN).exists()
        change(path, '"perm":6', '"perm":4')
        assert findings(path) == ()


def test_a_store_without_topics_records_none(tmp_path: Path) -> None:
    with reput.MessageStore.open(tmp_path / "store", files=FaultyFiles(), **SIZES) as opened:
        put(opened, 4)
    shutdown = decode_shutdown((tmp_path / "store" / SHUTDOWN).read_bytes())
    assert shutdown is not None
    assert shutdown.topics is None
    assert findings(tmp_path / "store") == ()
