"""Stores on object storage: the rows of a store on a disk, read in ranges; and nothing is written."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import reput
from reput.errors import ConfigError, CorruptRecordError, StoreError, StoreFormatError
from reput.files import DISK
from reput.formats.message import Message
from reput.jobs.archive import archive
from reput.jobs.audit import audit
from reput.jobs.backup import backup, restore
from reput.jobs.job_folder import JobFolder
from reput.jobs.lake import export, open_source
from reput.jobs.rebuild import rebuild
from reput.jobs.repair import salvage
from reput.jobs.runner import LocalRunner
from reput.log.directory import StoreDirectory
from reput.log.object_storage import ObjectStorage
from reput.store.sinks.import_sink import ImportSink
from reput.store.sinks.replay import replay
from tests.support.counted_storage import CountedStorage
from tests.support.damaged_copy import damaged_copy
from tests.support.fixtures import LogWriter

GOLDEN = Path(__file__).parents[2] / "golden" / "5.3.3"
CLEAN = GOLDEN / "clean" / "store"
CASES = ["batch", "bcq", "clean", "empty", "ext", "killed", "retention", "torn"]


@pytest.fixture
def memory() -> Iterator[Callable[[Path], str]]:
    """`memory(store)`: the URL of a copy in fsspec's memory."""
    storage = fsspec.filesystem("memory")

    def copy(store: Path) -> str:
        for file in store.rglob("*"):
            name = f"/brokers/{file.relative_to(store.parent)}"
            storage.pipe_file(name, file.read_bytes()) if file.is_file() else storage.makedirs(name, exist_ok=True)
        return f"memory://brokers/{store.name}"

    yield copy
    storage.rm("/brokers", recursive=True)


@pytest.mark.parametrize("case", CASES)
def test_its_rows_are_those_of_the_store(case: str, memory: Callable[[Path], str]) -> None:
    store = GOLDEN / case / "store"
    expected = reput.read_log(store).read_all()
    for url in (memory(store), f"file://{store}", f"counted://{store}/"):
        assert reput.read_log(url).read_all() == expected
        dataset = reput.log_dataset(url)
        assert dataset.to_table() == expected
        assert duckdb.sql("select count(*) from dataset").fetchall() == [(expected.num_rows,)]


def test_queues_index_and_statistics_prune(memory: Callable[[Path], str], tmp_path: Path) -> None:
    table = reput.read_log(CLEAN).read_all()
    url, kept = memory(CLEAN), tmp_path / "times"
    topic, key = table["topic"][500].as_py(), table["keys"][500].as_py()[0]
    late = pc.field("store_timestamp") > table["store_timestamp"][700].as_py()
    dataset = pickle.loads(pickle.dumps(reput.log_dataset(url, statistics=kept)))
    assert dataset.to_table(filter=pc.field("topic") == topic) == table.filter(pc.field("topic") == topic)
    for _ in range(2):
        assert dataset.to_table(filter=late) == table.filter(late)
    assert list(kept.iterdir())  # on the disk
    assert reput.log_dataset(url, keys=[key]).to_table() == reput.read_log(CLEAN, keys=[key]).read_all()


def test_the_log_may_be_elsewhere(memory: Callable[[Path], str]) -> None:
    url = memory(CLEAN)
    assert (
        reput.read_log(url, commit_log_path=f"file://{CLEAN}/commitlog").read_all() == reput.read_log(CLEAN).read_all()
    )


def test_files_are_read_in_ranges(tmp_path: Path, write_log: LogWriter) -> None:
    write_log([Message("orders", bytes(65_000))] * 500, 16 << 20)
    dataset = reput.log_dataset(f"counted://{tmp_path}/store")
    CountedStorage.ranges.clear()
    assert dataset.head(3, columns=["topic"]).num_rows == 3
    assert sum(size for _, size in CountedStorage.ranges) < 5 << 20
    CountedStorage.ranges.clear()
    assert dataset.count_rows() == 500
    assert len(CountedStorage.ranges) < 30  # of 32 MiB
    assert sum(size for _, size in CountedStorage.ranges) < 50 << 20


def test_damage_is_told_from_the_end_of_the_log(memory: Callable[[Path], str], tmp_path: Path) -> None:
    path, file, offset = damaged_copy(tmp_path / "store", 0)
    url = memory(path)
    with pytest.raises(CorruptRecordError) as caught:
        reput.read_log(url).read_all()
    assert (caught.value.path, caught.value.offset) == (f"{url}/commitlog/{Path(file).name}", offset)
    rows = reput.read_log(url, mode="PERMISSIVE", store="store").read_all()
    assert rows.num_rows == reput.read_log(path, mode="PERMISSIVE").read_all().num_rows


def test_what_is_not_there_is_an_error_with_its_url(memory: Callable[[Path], str]) -> None:
    with pytest.raises(StoreFormatError, match="memory://brokers/nothing: no such directory"):
        reput.read_log("memory://brokers/nothing")
    with pytest.raises(StoreFormatError, match="file, not a directory"):
        reput.read_log(f"{memory(CLEAN)}/checkpoint")
    with pytest.raises(StoreError, match="nothing://bucket/store: cannot look up: ValueError: Protocol not known"):
        reput.log_dataset("nothing://bucket/store")
    reader = reput.read_log(url := memory(CLEAN), ["topic"])
    fsspec.filesystem("memory").rm("/brokers/store/commitlog", recursive=True)
    with pytest.raises(StoreError, match=f"{url}/commitlog/0+: it was there when the store was listed, and is gone"):
        reader.read_all()


@pytest.mark.parametrize(
    "use",
    [
        lambda url: reput.MessageStore.open(url),
        lambda url: reput.MessageStore.open(url, read_only=True),
        lambda url: StoreDirectory(url),
        lambda url: ImportSink(url, reput.MessageStoreConfig(), "flights", files=DISK),
        lambda url: replay(CLEAN, url),
    ],
)
def test_whatever_else_needs_a_disk_refuses_a_url(use: Callable[[str], Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="s3://bucket/store: a store on object storage is only read"):
        use("s3://bucket/store")
    with pytest.raises(ConfigError, match="localhost:9876: the address of a server, where the directory of a store"):
        use("localhost:9876")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "broker-a:10911").mkdir()  # as of `reput follow --namesrv`: a folder may have such a name
    with pytest.raises(StoreFormatError, match="no store"):
        reput.read_log("broker-a:10911")


@pytest.mark.parametrize(
    "use",
    [
        lambda url: export(CLEAN, url, runner=LocalRunner()),
        lambda url: open_source(url),
        lambda url: rebuild(CLEAN, url, runner=LocalRunner()),
        lambda url: salvage(CLEAN, url, runner=LocalRunner(), apply=True),
        lambda url: restore("backups", url, runner=LocalRunner()),
        lambda url: audit(CLEAN, runner=LocalRunner(), work_dir=url),
        lambda url: JobFolder(url, "query", {}),
    ],
)
@pytest.mark.parametrize("url", ["s3://bucket/lake", "file:///bucket/lake"])
def test_a_job_takes_no_url_for_a_folder(use: Callable[[str], Any], url: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"{url}: a URL, where a file or folder of a disk is expected"):
        use(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "use",
    [
        lambda url: reput.MessageStore.open(url),
        lambda url: reput.read_log(url),
        lambda url: export(CLEAN, url, runner=LocalRunner()),
        lambda url: backup(CLEAN, url, runner=LocalRunner()),
        lambda url: archive(CLEAN, url, runner=LocalRunner()),
        lambda url: restore(url, "store", runner=LocalRunner()),
    ],
)
@pytest.mark.parametrize(
    ("url", "text"),
    [
        (
            "s3:/bucket/lake",
            r"s3:/bucket/lake: a URL has two slashes, s3://bucket/lake; a folder of this name is \./s3:/",
        ),
        (Path("s3://bucket/lake"), "s3:/bucket/lake: a URL has two slashes"),
        ("s3://", "s3://: a URL names a bucket and a folder, as s3://bucket/folder"),
    ],
)
def test_a_url_that_lost_a_part_is_no_folder(
    use: Callable[[Any], Any], url: Any, text: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=text):
        use(url)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_have_the_name_of_a_scheme(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CLEAN, tmp_path / "s3:" / "store")
    assert reput.read_log("s3:/store").read_all().num_rows == reput.read_log(CLEAN).read_all().num_rows


def test_hidden_objects_are_passed_over() -> None:
    storage = fsspec.filesystem("memory")
    for name in ("/hidden/.nfs1", "/hidden/file", "/hidden/.topic/file"):
        storage.pipe(name, b"x")
    listed = ObjectStorage().list_directory("memory://hidden")
    assert [(entry.name, entry.is_directory) for entry in listed] == [(".topic", True), ("file", False)]


def test_no_object_is_opened_for_writing() -> None:
    with pytest.raises(StoreError, match="only read"):
        ObjectStorage().open("memory://brokers/store/checkpoint", writable=True, create=True)


def test_a_path_without_a_scheme_is_on_the_disk(tmp_path: Path) -> None:
    files = ObjectStorage()
    with files.open(str(tmp_path / "file"), writable=True, create=True) as file:
        file.write(0, b"one")
    assert files.read_bytes(str(tmp_path / "file")) == b"one"
    assert [entry.name for entry in files.list_directory(str(tmp_path))] == ["file"]
    assert reput.read_log(CLEAN, files=files).read_all() == pa.Table.from_batches(reput.read_log(CLEAN))
