"""A follower's store is its master's, byte for byte; what does not go together is an error, and nothing is appended."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

import reput
from reput import (
    CorruptRecordError,
    Message,
    MessageExtBatch,
    MessageStore,
    ReplicationError,
    StorePoisonedError,
    StoreSyncError,
    TopicConfig,
)
from reput.remoting.codes import RequestCode
from reput.replication.follower import Follower, FollowState
from reput.replication.ha_stream import HAStream
from tests.support.bad_arguments import bad_values, check_refused, parameters
from tests.support.fake_master import FakeMaster, fake_master, log_of
from tests.support.faulty_files import FaultyFiles, abandon, fail_next

FILE_SIZE = 1 << 16
SIZES = {
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 2000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}


def open_store(path: Path) -> MessageStore:
    return MessageStore.open(path, flush_disk_type="ASYNC_FLUSH", **SIZES)


def put_random(path: Path, count: int, seed: int = 1) -> int:
    """Put messages of many sizes; the log's end."""
    chance = random.Random(seed)
    with open_store(path) as store:
        bodies = [chance.randbytes(chance.randrange(900)) for _ in range(count)]
        messages = [Message("orders", body, tags="paid", keys=[f"o-{n}"]) for n, body in enumerate(bodies)]
        store.put_messages(messages, [chance.randrange(4) for _ in messages])
        store.wait_dispatched()
        return store.max_commit_log_offset


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A master's store of five files, and the end of its log."""
    path = tmp_path_factory.mktemp("replication") / "master"
    return path, put_random(path, 450)


@pytest.fixture
def master(source: tuple[Path, int]) -> Iterator[FakeMaster]:
    with fake_master(log_of(*source), FILE_SIZE) as served:
        yield served


@pytest.mark.parametrize("name", parameters(Follower))
def test_what_is_no_argument_of_a_follower_is_refused(tmp_path: Path, name: str) -> None:
    with open_store(tmp_path / "copy") as store:
        check_refused(Follower, {"store": store, "address": "127.0.0.1:1"}, name, bad_values(Follower, name))
        follower = Follower(store, "127.0.0.1:1")
        check_refused(follower.run, {"stop": Event()}, "stop", bad_values(follower.run, "stop"))
        check_refused(follower.run, {"stop": Event()}, "once", bad_values(follower.run, "once"))


def record_ends(path: Path, data: bytes) -> list[int]:
    """Commit log offsets after each record of a store."""
    table = reput.read_log(path, columns=["commit_log_offset", "store_size"]).read_all()
    return [row["commit_log_offset"] + row["store_size"] for row in table.to_pylist()]


def follow(path: Path, master: FakeMaster, **options: object) -> FollowState:
    """Follow until all is there."""
    with open_store(path) as store:
        follower = Follower(store, master.address, **options)  # type: ignore[arg-type]
        follower.run(Event(), once=True)
        store.wait_dispatched()
        return follower.state


def files(path: Path, folder: str) -> dict[str, bytes]:
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted((path / folder).rglob("*")) if one.is_file()}


def same(path: Path, source: Path, begin: int = 0) -> bool:
    log = {name: data for name, data in files(source, "commitlog").items() if int(Path(name).name) >= begin}
    return files(path, "commitlog") == log


@pytest.mark.parametrize("piece", [7, 100, 4096, 32_768, 1 << 20])
def test_log_and_queues_are_those_of_the_master_whatever_frames_it_sends(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path, piece: int
) -> None:
    master.piece = piece
    state = follow(tmp_path / "copy", master)
    assert (state.end_offset, state.lag_bytes) == (source[1], 0)
    assert same(tmp_path / "copy", source[0])
    assert files(tmp_path / "copy", "consumequeue") == files(source[0], "consumequeue")


def test_with_once_a_log_of_the_same_length_is_compared_however_late_its_bytes_come(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path
) -> None:
    follow(tmp_path / "copy", master)
    stepped = Event()

    def other_bytes_late(offset: int, body: bytes) -> tuple[int, bytes]:
        stepped.wait(60)
        return offset, bytes(len(body))

    master.change = other_bytes_late
    with open_store(tmp_path / "copy") as store, pytest.raises(ReplicationError, match="differ from the bytes of"):
        Follower(store, master.address, on_state=lambda state: stepped.set()).run(Event(), once=True)


def test_an_empty_master_is_waited_for_or_with_once_is_the_end(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, master.log = master.log, (0, b"")
    assert follow(tmp_path / "copy", master).end_offset == 0
    monkeypatch.setattr("reput.replication.follower._RETRY_S", 0.0)
    stop = Event()

    def look(state: FollowState) -> None:
        master.log = log
        if state.end_offset == source[1]:
            stop.set()

    with open_store(tmp_path / "copy") as store:
        Follower(store, master.address, on_state=look).run(stop)
    assert same(tmp_path / "copy", source[0])


@pytest.mark.parametrize("has_messages", [True, False])
def test_a_store_that_lost_its_power_before_its_first_sync_begins_again(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path, has_messages: bool
) -> None:
    follow(tmp_path / "copy", master)
    log = tmp_path / "copy/commitlog"
    for file in log.iterdir():
        if int(file.name):
            file.unlink()
        else:
            file.write_bytes(bytes(FILE_SIZE))
    for derived in ("consumequeue", "index", "checkpoint", "config/reputShutdown.json"):
        path = tmp_path / "copy" / derived
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not has_messages:
        master.log = 0, b""
    assert follow(tmp_path / "copy", master).end_offset == (source[1] if has_messages else 0)
    assert same(tmp_path / "copy", source[0]) is has_messages


def test_it_goes_on_after_each_cut_of_the_connection_and_tells_each(
    source: tuple[Path, int],
    master: FakeMaster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("reput.replication.follower._RETRY_S", 0.0)
    master.piece, master.cut_after = 5000, 20
    follow(tmp_path / "copy", master)
    assert len(master.reports) > 3
    assert same(tmp_path / "copy", source[0])
    lines = [f"{record.getMessage()} ".partition("tried again")[1] or "again" for record in caplog.records]
    assert lines == ["tried again", "again"] * (len(master.reports) - 1)
    assert caplog.messages[-1] == f"{master.address} is followed again"


def test_a_store_that_is_closed_and_opened_again_goes_on_at_any_place(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path
) -> None:
    begin, data = master.log
    ends = record_ends(source[0], data)
    for end in (*ends[::40], ends[-1]):
        master.log = begin, data[:end]
        assert follow(tmp_path / "copy", master).end_offset == end
    assert same(tmp_path / "copy", source[0])
    assert files(tmp_path / "copy", "consumequeue") == files(source[0], "consumequeue")


def test_an_empty_store_begins_with_the_oldest_file_or_with_the_newest(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path
) -> None:
    newest = source[1] // FILE_SIZE * FILE_SIZE
    follow(tmp_path / "newest", master, begin="newest")
    assert same(tmp_path / "newest", source[0], newest)
    master.log = log_of(*source, begin=FILE_SIZE)
    follow(tmp_path / "oldest", master)
    assert same(tmp_path / "oldest", source[0], FILE_SIZE)
    for path in (tmp_path / "newest", tmp_path / "oldest"):
        with MessageStore.open(path, read_only=True) as copy, MessageStore.open(source[0], read_only=True) as whole:
            for queue_id in range(4):
                first, end = copy.min_offset("orders", queue_id), whole.max_offset("orders", queue_id)
                assert 0 < first < copy.max_offset("orders", queue_id) == end
                ours, theirs = (one.get_message("orders", queue_id, first, 1000) for one in (copy, whole))
                assert ours.messages() == theirs.messages()


def test_a_store_without_a_log_gets_files_of_the_masters_size_unless_it_was_given_one(
    source: tuple[Path, int], tmp_path: Path
) -> None:
    others = {name: size for name, size in SIZES.items() if name != "mapped_file_size_commit_log"}
    with MessageStore.open(tmp_path / "copy", flush_disk_type="ASYNC_FLUSH", **others) as store:
        with fake_master((0, b""), 1 << 20) as empty:  # its log has no file, either
            Follower(store, empty.address).run(Event(), once=True)
            assert store.config.mapped_file_size_commit_log == 1 << 20
        with fake_master(log_of(*source), FILE_SIZE) as master:
            Follower(store, master.address).run(Event(), once=True)
        store.wait_dispatched()
        assert store.config.mapped_file_size_commit_log == FILE_SIZE
        assert messages_of(store) == messages_of_source(source[0])
    assert same(tmp_path / "copy", source[0])
    with MessageStore.open(tmp_path / "copy", read_only=True) as store:
        assert messages_of(store) == messages_of_source(source[0])


def messages_of_source(path: Path) -> list[object]:
    with MessageStore.open(path, read_only=True) as store:
        return messages_of(store)


def messages_of(store: MessageStore) -> list[object]:
    """What pulls, pulls with tags, and queries give of the log's last file."""
    found: list[object] = []
    for queue in store.queues():
        for tags in ("*", "paid"):
            got = store.get_message("orders", queue.queue_id, queue.max_offset - 5, tags=tags)
            found.append([one.body for one in got.messages()])
    found.append([one.body for one in store.query_message("orders", "o-449")])
    return found


def test_why_a_log_is_not_followed_is_part_of_the_state(master: FakeMaster, tmp_path: Path) -> None:
    failures: list[str | None] = []
    stop = Event()

    def note(state: FollowState) -> None:
        failures.append(state.failure)
        if state.end_offset == len(master.log[1]):
            master.close()
            if state.failure is not None:
                stop.set()

    with open_store(tmp_path / "copy") as store:
        follower = Follower(store, master.address, on_state=note)
        assert follower.state.failure == "the master has not answered yet"
        follower.run(stop)
    assert None in failures
    assert ": the connection " in str(failures[-1])


def test_a_log_that_was_refused_is_not_followed_when_it_is_tried_again_before_it_was_compared(
    master: FakeMaster, tmp_path: Path
) -> None:
    with open_store(tmp_path / "copy") as store:
        failures: list[str | None] = []
        follower = Follower(store, master.address, on_state=lambda state: failures.append(state.failure))
        follower.run(Event(), once=True)
        assert follower.state.failure is None
        begin, data = master.log
        master.log = begin, data[:-1] + bytes([data[-1] ^ 1])
        for _ in range(2):
            failures.clear()
            with pytest.raises(ReplicationError, match="another log, or was cut"):
                follower.run(Event())
            assert "another log, or was cut" in str(follower.state.failure)
        assert None not in failures


def test_by_default_nothing_is_acknowledged_and_as_a_slave_all_is(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.replication.follower.HEARTBEAT_S", 0.0)
    follow(tmp_path / "copy", master)
    assert set(master.reports[0]) == {1}
    assert len(master.reports[0]) > 1
    follow(tmp_path / "slave", master, acknowledges=True)
    assert master.reports[1][0] == 1
    assert max(master.reports[1]) > FILE_SIZE
    assert master.reports[1] == sorted(master.reports[1])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of dispatch: it fails, too
def test_what_could_not_be_synced_is_not_acknowledged(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, report = list[int](), HAStream.report

    def tell(stream: HAStream, offset: int) -> None:
        told.append(offset)
        report(stream, offset)

    monkeypatch.setattr(HAStream, "report", tell)
    (begin, log), synced = master.log, record_ends(source[0], master.log[1])[9]
    master.log = begin, log[:synced]
    disk = FaultyFiles()
    store = MessageStore.open(tmp_path / "copy", flush_disk_type="SYNC_FLUSH", files=disk, **SIZES)
    Follower(store, master.address, acknowledges=True).run(Event(), once=True)
    assert told.pop() == synced
    disk.judge = fail_next("sync", part="commitlog", times=1000)
    master.log = begin, log[:FILE_SIZE]  # of one file, which is there
    with pytest.raises((StoreSyncError, StorePoisonedError)):
        Follower(store, master.address, acknowledges=True).run(Event(), once=True)
    assert max(told) <= synced
    abandon(store, disk)


def test_topics_are_those_of_the_master(master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master.topics = {name: TopicConfig(name, 3, 5) for name in ("orders", "refunds")}
    follow(tmp_path / "copy", master)
    with MessageStore.open(tmp_path / "copy", read_only=True) as store:
        assert store.topics == master.topics
    written = (tmp_path / "copy/config/topics.json").read_bytes()
    follow(tmp_path / "copy", master)
    assert (tmp_path / "copy/config/topics.json").read_bytes() == written
    del master.topics["refunds"]
    master.topics["orders"] = TopicConfig("orders", 8, 8)
    follow(tmp_path / "copy", master)
    with MessageStore.open(tmp_path / "copy", read_only=True) as store:
        assert store.topics == master.topics


def shown(store: MessageStore, topic: str) -> list[int]:
    """Commit log offsets of the messages that the queues of a topic have."""
    return sorted(
        message.commit_log_offset
        for queue in store.queues()
        if queue.topic == topic
        for offset in range(queue.max_offset)
        for message in store.get_message(topic, queue.queue_id, offset, 1).messages()
    )


def test_a_topic_that_is_deleted_at_the_master_begins_where_it_does_there(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path
) -> None:
    """The master's end may be far after the copy's when the topics are copied."""
    path = tmp_path / "copy"
    begins = reput.read_log(source[0], columns=["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist()
    begin, log = begins[300], master.log[1]
    follow(path, master)
    with open_store(path) as store:
        assert shown(store, "orders") == begins
    shutil.rmtree(path)
    master.topics, master.begins = {"orders": TopicConfig("orders", 4, 4)}, {"orders": begin}
    master.log = 0, log[: begins[100]]
    follow(path, master)
    with open_store(path) as store:
        assert shown(store, "orders") == []
    master.log = 0, log
    follow(path, master)
    with open_store(path) as store:
        assert shown(store, "orders") == begins[300:]
        assert store.topic_metadata.begin_offset_table == {"orders": begin}


def test_a_copy_that_keeps_its_log_for_longer_than_its_master_keeps_begins_that_the_master_needs_no_more(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path
) -> None:
    """A begin that the master lacks for another reason, as after a restore, goes here, too."""
    path = tmp_path / "copy"
    begins = reput.read_log(source[0], columns=["commit_log_offset"]).read_all()["commit_log_offset"].to_pylist()
    master.topics, master.begins = {"orders": TopicConfig("orders", 4, 4)}, {"orders": begins[100]}
    follow(path, master)
    log = master.log[1]
    at = -(-begins[100] // FILE_SIZE) * FILE_SIZE
    master.log, master.begins = (at, log[at:]), {}
    follow(path, master)
    with open_store(path) as store:
        assert store.min_commit_log_offset == 0
        assert shown(store, "orders") == begins[100:]
    master.log = 0, log
    follow(path, master)
    with open_store(path) as store:
        assert shown(store, "orders") == begins


def test_a_copy_that_is_promoted_before_it_has_a_topics_begin_takes_messages_of_that_topic(
    source: tuple[Path, int], master: FakeMaster, tmp_path: Path
) -> None:
    path = tmp_path / "copy"
    ends = record_ends(source[0], b"")
    master.begins = {"orders": ends[300]}
    master.log = 0, master.log[1][: ends[100]]
    follow(path, master)
    with open_store(path) as store:
        assert store.topic_metadata.begin_offset_table == {"orders": ends[100]}
        new = store.put_message(Message("orders", b"new")).commit_log_offset
        store.wait_dispatched()
        assert (new, shown(store, "orders")) == (ends[100], [ends[100]])


@pytest.mark.parametrize("is_late", [False, True], ids=["before the connection", "just before its first batch"])
def test_inner_batches_go_to_the_queues_of_their_topic(tmp_path: Path, is_late: bool) -> None:
    topic = TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"})
    with open_store(tmp_path / "master") as store:
        store.put_messages([Message("orders", b"%d" % number) for number in range(50)])
        store.update_topic(topic)
        for number in range(20):
            batch = MessageExtBatch.of([Message("batches", b"%d" % number)] * 3, unique_key=f"{number:032X}")
            store.put_batch(batch)
        store.wait_dispatched()
        end = store.max_commit_log_offset

    def make_topic(offset: int, body: bytes) -> tuple[int, bytes]:
        served.topics = {"batches": topic}
        return offset, body

    with fake_master(log_of(tmp_path / "master", end), FILE_SIZE) as served:
        served.topics = {} if is_late else {"batches": topic}
        served.change = make_topic
        follow(tmp_path / "copy", served)
    assert files(tmp_path / "copy", "batchconsumequeue") == files(tmp_path / "master", "batchconsumequeue") != {}
    assert files(tmp_path / "copy", "consumequeue") == files(tmp_path / "master", "consumequeue")


class TestTopicsThatAreMadeMeanwhile:
    """A topic comes with its first message, long before the next look for changes of topics."""

    TOPICS = ("orders", "orders", "refunds", "orders")

    @pytest.fixture
    def ends(self, tmp_path: Path) -> list[int]:
        """Where the records of a store at tmp_path/master end, one for each of `TOPICS`."""
        with open_store(tmp_path / "master") as store:
            store.put_messages([Message(topic, b"x") for topic in self.TOPICS])
            store.wait_dispatched()
        return record_ends(tmp_path / "master", b"")

    @pytest.fixture
    def served(self, ends: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
        """A master without topics that has the first record of that store."""
        monkeypatch.setattr("reput.replication.follower._TOPICS_S", 3600.0)
        with fake_master(log_of(tmp_path / "master", ends[0]), FILE_SIZE) as served:
            yield served

    @staticmethod
    def follow(tmp_path: Path, master: FakeMaster, life: Callable[[MessageStore], Iterator[int]]) -> None:
        """Follow; each step of `life` is done at the first step of the follower with the offset that it has given."""
        stop = Event()
        with open_store(tmp_path / "copy") as store:
            steps = life(store)
            wanted = next(steps)

            def look(state: FollowState) -> None:
                nonlocal wanted
                if state.end_offset == wanted:
                    try:
                        wanted = next(steps)
                    except StopIteration:
                        stop.set()

            Follower(store, master.address, ha_address=master.ha_address, on_state=look).run(stop)

    def test_each_is_there_with_its_first_message(
        self, ends: list[int], served: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known: list[set[str]] = []

        def life(store: MessageStore) -> Iterator[int]:
            yield 0
            for topic, end in zip(self.TOPICS, ends, strict=True):
                served.topics |= {topic: TopicConfig(topic, 3, 5)}
                served.log = log_of(tmp_path / "master", end)
                yield end
                known.append(set(store.topics))

        served.log = 0, b""
        monkeypatch.setattr("reput.replication.follower._RETRY_S", 0.0)
        self.follow(tmp_path, served, life)
        assert known == [{"orders"}, {"orders"}, {"orders", "refunds"}, {"orders", "refunds"}]

    @pytest.mark.parametrize("refuses", [False, True])
    def test_the_master_is_asked_once_for_each_that_it_does_not_tell(
        self, ends: list[int], served: FakeMaster, tmp_path: Path, refuses: bool
    ) -> None:
        counts = []

        def life(store: MessageStore) -> Iterator[int]:
            for end in ends:
                served.log = log_of(tmp_path / "master", end)
                yield end
                counts.append(served.asked.count(RequestCode.GET_ALL_TOPIC_CONFIG))

        served.refuses = refuses
        self.follow(tmp_path, served, life)
        assert counts == [2, 2, 3, 3]  # the first time before any record

    def test_it_is_asked_again_for_one_that_was_not_there_before_the_last_look(
        self, ends: list[int], served: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def life(store: MessageStore) -> Iterator[int]:
            yield ends[0]
            monkeypatch.setattr("reput.replication.follower._TOPICS_S", -1.0)
            yield ends[0]
            monkeypatch.setattr("reput.replication.follower._TOPICS_S", 3600.0)
            served.topics = {"orders": TopicConfig("orders", 3, 5)}
            served.log = log_of(tmp_path / "master", ends[1])
            yield ends[1]
            assert store.topics == served.topics

        self.follow(tmp_path, served, life)

    def test_messages_are_not_acknowledged_without_their_topics(
        self, ends: list[int], served: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("reput.replication.follower._RETRY_S", 0.0)
        stop = Event()

        def lose(offset: int, body: bytes) -> tuple[int, bytes]:
            served.hangs_up = True
            return offset, body

        def look(state: FollowState) -> None:
            if state.end_offset == ends[0] and not state.is_connected:
                stop.set()

        served.change = lose
        with open_store(tmp_path / "copy") as store:
            Follower(store, served.address, acknowledges=True, on_state=look).run(stop)
            assert store.max_commit_log_offset == ends[0]
        assert served.reports == [[1]]


class TestAMasterThatRefusesToAnswer:
    """Its log is followed by its HA address; nobody is told topics."""

    @staticmethod
    def follow(path: Path, master: FakeMaster, end: int, *, known: int | None = None) -> None:
        """Follow until the store ends at an offset; `known`: where the master is then thought to end."""
        stop = Event()

        def look(state: FollowState) -> None:
            if state.end_offset == end and (state.master and state.master.max_offset) == known:
                stop.set()

        with open_store(path) as store:
            Follower(store, master.address, ha_address=master.ha_address, on_state=look).run(stop)
            store.wait_dispatched()

    @pytest.mark.parametrize("begin", [0, FILE_SIZE])
    def test_the_log_is_the_masters_from_its_begin_and_from_any_place(
        self, source: tuple[Path, int], master: FakeMaster, tmp_path: Path, begin: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        master.log, master.refuses = log_of(*source, begin=begin), True
        master.topics = {"orders": TopicConfig("orders", 3, 5)}
        whole = master.log[1]
        half = next(end for end in record_ends(source[0], whole) if end > source[1] // 2)
        master.log = begin, whole[: half - begin]
        self.follow(tmp_path / "copy", master, half)
        master.log = begin, whole
        self.follow(tmp_path / "copy", master, source[1])
        assert same(tmp_path / "copy", source[0], begin)
        with MessageStore.open(tmp_path / "copy", read_only=True) as store:
            assert not store.topics
        told = [one for one in caplog.messages if "its log is followed, but its topics are not copied" in one]
        assert len(told) == 2  # once by each follower
        assert "check signature failed" in told[0]

    def test_an_empty_log_is_waited_for(
        self, source: tuple[Path, int], master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("reput.replication.follower.HEARTBEAT_S", 0.0)
        log, master.log, master.refuses = master.log, (0, b""), True
        stop = Event()

        def look(state: FollowState) -> None:
            if any(len(one) > 3 for one in master.reports):  # it has heard heartbeats
                master.log = log
            if state.end_offset == source[1]:
                stop.set()

        with open_store(tmp_path / "copy") as store:
            Follower(store, master.address, ha_address=master.ha_address, on_state=look).run(stop)
        assert same(tmp_path / "copy", source[0])

    def test_it_is_asked_again_at_each_sign_of_life(
        self, source: tuple[Path, int], master: FakeMaster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("reput.replication.follower._TOPICS_S", 0.0)
        master.refuses, master.topics = True, {"orders": TopicConfig("orders", 3, 5)}
        stop = Event()

        def look(state: FollowState) -> None:
            if state.end_offset == source[1]:
                master.refuses = False
            if state.master is not None:
                stop.set()

        with open_store(tmp_path / "copy") as store:
            Follower(store, master.address, ha_address=master.ha_address, on_state=look).run(stop)
            assert store.topics == master.topics

    def test_other_bytes_are_found_without_its_answers(
        self, source: tuple[Path, int], master: FakeMaster, tmp_path: Path
    ) -> None:
        self.follow(tmp_path / "copy", master, source[1], known=source[1])
        begin, data = master.log
        at = len(data) - 100
        master.log, master.refuses = (begin, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] + data), True
        with pytest.raises(ReplicationError, match="differ from the bytes of"):
            self.follow(tmp_path / "copy", master, -1)
        assert same(tmp_path / "copy", source[0])

    def test_an_inner_batch_waits_for_its_topic(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("reput.replication.follower._RETRY_S", 0.0)
        topic = TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"})
        with open_store(tmp_path / "master") as store:
            store.put_messages([Message("orders", b"%d" % number) for number in range(50)])
            plain = store.max_commit_log_offset
            store.update_topic(topic)
            store.put_batch(MessageExtBatch.of([Message("batches", b"x")] * 3, unique_key="0" * 32))
            store.wait_dispatched()
            end = store.max_commit_log_offset
        with fake_master(log_of(tmp_path / "master", end), FILE_SIZE) as served:
            served.refuses, served.topics, stop = True, {"batches": topic}, Event()
            ends = []

            def look(state: FollowState) -> None:
                ends.append(state.end_offset)
                if "tried again" in caplog.text:
                    served.refuses = False
                if state.end_offset == end:
                    stop.set()

            with open_store(tmp_path / "copy") as store:
                Follower(store, served.address, ha_address=served.ha_address, on_state=look).run(stop)
                store.wait_dispatched()
        assert set(ends) <= {0, plain, end}
        assert files(tmp_path / "copy", "batchconsumequeue") == files(tmp_path / "master", "batchconsumequeue") != {}

    def test_without_an_ha_address_nothing_says_where_the_log_is(self, master: FakeMaster, tmp_path: Path) -> None:
        master.refuses, stop = True, Event()
        with open_store(tmp_path / "copy") as store:
            Follower(store, master.address, on_state=lambda _: stop.set()).run(stop)
        assert not master.reports


class TestRefusals:
    """Each names the reason; the store keeps what it had."""

    @pytest.fixture
    def copy(self, master: FakeMaster, source: tuple[Path, int], tmp_path: Path) -> Path:
        """A store that has the first half of the log, which the master then has whole."""
        begin, data = master.log
        ends = record_ends(source[0], data)
        master.log = begin, data[: ends[len(ends) // 2]]
        follow(tmp_path / "copy", master)
        master.log = begin, data
        return tmp_path / "copy"

    def check(self, copy: Path, master: FakeMaster, error: type[Exception], reason: str) -> None:
        before = files(copy, "commitlog"), files(copy, "consumequeue")
        with pytest.raises(error, match=reason):
            follow(copy, master)
        assert (files(copy, "commitlog"), files(copy, "consumequeue")) == before

    def test_a_store_that_is_ahead(self, copy: Path, master: FakeMaster) -> None:
        begin, data = master.log
        master.log = begin, data[:5000]
        self.check(copy, master, ReplicationError, "the master has lost its last records")

    def test_a_master_that_loses_its_records_while_it_is_followed(self, copy: Path, master: FakeMaster) -> None:
        begin, data = master.log
        with MessageStore.open(copy, read_only=True) as store:
            end = store.max_commit_log_offset
        master.log = begin, data[:end]
        told = iter([(begin, end + 1), (begin, end - 100)])  # before the connection, and at the first sign of life
        type(master).told = property(lambda self: next(told), lambda self, value: None)  # type: ignore[assignment]
        try:
            self.check(copy, master, ReplicationError, "the next byte is")
        finally:
            del type(master).told  # type: ignore[misc]

    def test_other_bytes_at_the_same_length(self, copy: Path, master: FakeMaster) -> None:
        begin, data = master.log
        with MessageStore.open(copy, read_only=True) as store:
            end = store.max_commit_log_offset
        for at in (end - 1, end - 300, end - 5000):
            changed = bytearray(data)
            changed[at] ^= 1
            master.log = begin, bytes(changed)
            self.check(copy, master, ReplicationError, "another log, or was cut and written again")

    def test_a_gap_that_retention_has_left(self, copy: Path, source: tuple[Path, int], master: FakeMaster) -> None:
        master.log = log_of(*source, begin=source[1] // FILE_SIZE * FILE_SIZE)
        self.check(copy, master, ReplicationError, "the bytes between were deleted there")

    def test_files_of_another_size(self, copy: Path, master: FakeMaster) -> None:
        master.file_size = 1 << 20
        self.check(copy, master, ReplicationError, "has log files of 1048576")

    @pytest.mark.parametrize("size", [1 << 20, 1 << 30])
    def test_another_size_than_a_new_store_was_given(self, tmp_path: Path, master: FakeMaster, size: int) -> None:
        """Also if it was given the default."""
        with MessageStore.open(tmp_path / "new", **SIZES | {"mapped_file_size_commit_log": size}) as store:
            with pytest.raises(
                ReplicationError, match=f"log files of {size} bytes, and .* has log files of {FILE_SIZE}"
            ):
                Follower(store, master.address).run(Event(), once=True)
            assert files(tmp_path / "new", "commitlog") == {}

    @pytest.mark.parametrize("size", ["-1", "1099511627776", "much"])
    def test_a_size_that_is_none(self, tmp_path: Path, master: FakeMaster, size: str) -> None:
        master.file_size = size  # type: ignore[assignment]
        with MessageStore.open(tmp_path / "new") as store:
            with pytest.raises(ReplicationError, match=f"{master.address}: mappedFileSizeCommitLog={size}: expected"):
                Follower(store, master.address).run(Event(), once=True)
            assert store.config.mapped_file_size_commit_log == 1 << 30

    def test_a_frame_of_another_place(self, copy: Path, master: FakeMaster) -> None:
        master.change = lambda offset, body: (offset + 4, body)
        self.check(copy, master, ReplicationError, "goes on at")

    def test_a_body_that_does_not_fit_its_crc(self, copy: Path, master: FakeMaster) -> None:
        self.change_the_first_new_byte(copy, master, 150)
        self.check(copy, master, CorruptRecordError, "does not fit its CRC")

    @pytest.mark.parametrize(
        ("position", "reason"),
        [(4, "neither a message nor a blank"), (0, "does not fit into its file"), (30, "another offset")],
    )
    def test_bytes_that_are_no_record(self, copy: Path, master: FakeMaster, position: int, reason: str) -> None:
        self.change_the_first_new_byte(copy, master, position)
        self.check(copy, master, CorruptRecordError, reason)

    def change_the_first_new_byte(self, copy: Path, master: FakeMaster, position: int) -> None:
        begin, data = master.log
        with MessageStore.open(copy, read_only=True) as store:
            end = store.max_commit_log_offset
        changed = bytearray(data)
        changed[end + position] ^= 16
        master.log = begin, bytes(changed)
