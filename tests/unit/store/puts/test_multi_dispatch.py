"""Light message queues and multi-dispatch through an open store; the bytes against RocketMQ's are in tests/golden."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.config.dispatch_rules import DispatchRules
from reput.errors import MessageIllegalError
from reput.formats.consume_queue import Unit, encode_unit
from reput.formats.properties import decode_properties
from reput.jobs.rebuild.job import rebuild
from reput.jobs.runner import LocalRunner
from reput.kernels.records.columns import RecordColumns
from tests.support.faulty_files import FaultyFiles
from tests.support.fixtures import OpenStore
from tests.support.invariants import SMALL, contents

ON = {"enable_multi_dispatch": True, "enable_lmq": True}
NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


def message(names: str, topic: str = "t", body: bytes = b"x", **fields: object) -> reput.Message:
    return reput.Message(topic, body, properties={NAMES: names}, **fields)  # type: ignore[arg-type]


def offsets_of(store: reput.MessageStore, result: reput.PutMessageResult) -> str | None:
    found = store.look_message_by_offset(result.commit_log_offset)
    assert found is not None
    return found.properties.get(OFFSETS)


def test_each_light_queue_counts_for_itself_and_serves_the_messages_that_name_it(open_store: OpenStore) -> None:
    store = open_store(**ON)
    named = ["%LMQ%a", "%LMQ%a,%LMQ%b", "", "%LMQ%b", "%LMQ%b,%LMQ%a"]
    results = [
        store.put_message(message(names) if names else reput.Message("t", b"x"), i) for i, names in enumerate(named)
    ]
    assert [offsets_of(store, result) for result in results] == ["0", "1,0", None, "1", "2,2"]
    store.wait_dispatched()
    for name in ("%LMQ%a", "%LMQ%b"):
        got = store.get_message(name, 0, 0)
        expected = [r.commit_log_offset for r, names in zip(results, named, strict=True) if name in names]
        assert [m.commit_log_offset for m in got.messages()] == expected
        assert {m.topic for m in got.messages()} == {"t"}
    assert {(q.topic, q.queue_id) for q in store.queues() if q.topic != "t"} == {("%LMQ%a", 0), ("%LMQ%b", 0)}
    store.close()
    store = open_store(**ON)
    assert store.recovery.dispatched_records == 0
    again = store.put_messages([message("%LMQ%b,%LMQ%a"), message("%LMQ%a")])
    assert [offsets_of(store, result) for result in again] == ["3,3", "4"]


def test_with_property_crcs_the_offsets_stand_before_the_crc(open_store: OpenStore) -> None:
    store = open_store(**ON, enabled_append_prop_crc=True)
    named = ["%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b"]
    results = [store.put_message(message(names)) for names in named]
    assert [offsets_of(store, result) for result in results] == ["0", "1,0", "1"]
    store.wait_dispatched()
    got = store.get_message("%LMQ%b", 0, 0).messages()
    assert [m.commit_log_offset for m in got] == [result.commit_log_offset for result in results[1:]]
    assert list(got[0].properties) == [NAMES, OFFSETS, "__CRC32#"]


def test_a_listener_hears_of_every_queue_that_a_message_is_in(open_store: OpenStore) -> None:
    heard: list[tuple[str, int, int, int]] = []

    def listen(columns: RecordColumns) -> None:
        queues = [(topic.decode(), queue_id) for topic, queue_id in columns.queues()]
        offsets = zip(columns["queue_offset"].tolist(), columns["commit_log_offset"].tolist(), strict=True)
        heard.extend((*queues[queue], *row) for queue, row in zip(columns["queue"].tolist(), offsets, strict=True))

    store = open_store(**ON, on_arrival=listen)
    first = store.put_message(message("%LMQ%a,%LMQ%b"), 3).commit_log_offset
    second = store.put_message(reput.Message("t", b"x"), 3).commit_log_offset
    third = store.put_message(message("%LMQ%b"), 3).commit_log_offset
    fourth = store.put_message(message("%LMQ%a", "%RETRY%g"), 0).commit_log_offset
    store.close()
    assert heard == [
        ("t", 3, 0, first), ("%LMQ%a", 0, 0, first), ("%LMQ%b", 0, 0, first), ("t", 3, 1, second),
        ("t", 3, 2, third), ("%LMQ%b", 0, 1, third), ("%RETRY%g", 0, 0, fourth),
    ]  # fmt: skip


def test_offsets_of_the_client_or_of_an_earlier_put_are_replaced(open_store: OpenStore) -> None:
    store = open_store(**ON)
    first = reput.Message("t", b"x", properties={OFFSETS: "77", NAMES: "%LMQ%a", "z": "1"}, tags="g")
    found = store.look_message_by_offset(store.put_message(first).commit_log_offset)
    assert found is not None
    assert (found.properties[OFFSETS], found.properties["z"], found.tags) == ("0", "1", "g")


def test_a_name_twice_counts_once_and_has_one_unit(open_store: OpenStore) -> None:
    store = open_store(**ON)
    results = [store.put_message(message("%LMQ%a,%LMQ%a")) for _ in range(3)]
    assert [offsets_of(store, result) for result in results] == ["0,0", "1,1", "2,2"]
    store.wait_dispatched()
    assert store.max_offset("%LMQ%a", 0) == 3


@pytest.mark.parametrize(
    ("topic", "sys_flag"),
    [("%RETRY%group", 0), ("rmq_sys_x", 0), ("SCHEDULE_TOPIC_XXXX", 0), ("t", 0x4), ("t", 0xC)],
)
def test_some_topics_and_transactions_take_no_part(open_store: OpenStore, topic: str, sys_flag: int) -> None:
    store = open_store(**ON)
    assert offsets_of(store, store.put_message(message("%LMQ%a", topic, sys_flag=sys_flag))) is None
    store.wait_dispatched()
    assert store.max_offset("%LMQ%a", 0) == 0


def test_by_the_rules_of_4_9_7_every_topic_takes_part(open_store: OpenStore, path: Path, tmp_path: Path) -> None:
    store = open_store(**ON, dispatch_rules="4.9.7")
    topics = ["%RETRY%group", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "t"]
    results = [store.put_message(message("%LMQ%a", topic)) for topic in topics]
    assert [offsets_of(store, result) for result in results] == ["0", "1", "2", "3"]
    store.wait_dispatched()
    assert store.max_offset("%LMQ%a", 0) == 4
    store.close()
    for rules, units in (("4.9.7", 4), ("5.3.3", 1)):
        built = rebuild(path, tmp_path / rules, runner=LocalRunner(1), rules=DispatchRules(rules), enable_lmq=True)
        assert built.units == 4 + units


@pytest.mark.parametrize("names", ["plain", "%LMQ%a,plain", "%LMQ%a,,%LMQ%b", "%LMQ%../../x", "%LMQ%" + "x" * 251])
def test_a_name_that_is_no_light_queue_is_refused_and_nothing_is_written(
    open_store: OpenStore, path: Path, names: str
) -> None:
    store = open_store(**ON)
    before = contents(path, "commitlog")
    for put in (
        store.put_message,
        store.async_put_message,
        lambda one: store.put_messages([reput.Message("t", b""), one]),
    ):
        with pytest.raises(MessageIllegalError, match="is no light queue"):
            put(message(names))  # type: ignore[operator]
    assert contents(path, "commitlog") == before


def test_the_whole_record_counts_against_the_limit_and_properties_against_theirs(open_store: OpenStore) -> None:
    store = open_store(**ON, mapped_file_size_commit_log=1 << 20, max_message_size=2000)
    store.put_message(reput.Message("t", bytes(2000)))
    with pytest.raises(MessageIllegalError, match=r"up to \d+ bytes; one that names light queues may take 2000"):
        store.put_message(message("%LMQ%a", body=bytes(1900)))
    with pytest.raises(MessageIllegalError, match=r"properties take up to \d+ bytes with INNER_MULTI_QUEUE_OFFSET"):
        store.put_message(message("%LMQ%a," * 2000))
    assert offsets_of(store, store.put_message(message("%LMQ%a", body=bytes(1700)))) == "0"


def test_a_table_with_such_a_row_is_refused_by_its_number(open_store: OpenStore, path: Path) -> None:
    store = open_store(**ON)
    properties = pa.array([[], None, [("a", "b")], [(NAMES, "%LMQ%a")]], pa.map_(pa.string(), pa.string()))
    table = pa.table({"topic": ["t"] * 4, "body": [b""] * 4, "properties": properties})
    before = contents(path, "commitlog")
    with pytest.raises(MessageIllegalError, match=r"row 3: the property INNER_MULTI_DISPATCH names further queues"):
        store.put_arrow(table)
    assert contents(path, "commitlog") == before
    store.put_arrow(table.slice(0, 3))
    store.wait_dispatched()
    assert store.max_offset("t", 0) == 3


def test_puts_to_a_light_queue_itself_share_its_counter(open_store: OpenStore) -> None:
    store = open_store(**ON)
    store.put_message(message("%LMQ%a"))
    assert store.put_message(reput.Message("%LMQ%a", b"direct")).queue_offset == 1
    store.put_arrow(pa.table({"topic": ["%LMQ%a"], "body": [b"row"]}))
    assert offsets_of(store, store.put_message(message("%LMQ%a"))) == "3"
    store.wait_dispatched()
    assert [m.body for m in store.get_message("%LMQ%a", 0, 0).messages()] == [b"x", b"direct", b"row", b"x"]


def test_many_threads_get_offsets_that_are_dense_and_in_log_order(open_store: OpenStore) -> None:
    store = open_store(**ON, flush_disk_type="ASYNC_FLUSH", os_page_cache_busy_time_out_mills=60_000)

    def put(thread: int) -> list[tuple[int, int]]:
        results = [store.put_message(message("%LMQ%b,%LMQ%a"), thread) for _ in range(30)]
        return [(r.commit_log_offset, int((offsets_of(store, r) or "").split(",")[1])) for r in results]

    with ThreadPoolExecutor(4) as pool:
        found = sorted(pair for pairs in pool.map(put, range(4)) for pair in pairs)
    assert [offset for _, offset in found] == list(range(120))


@pytest.mark.parametrize("on", [{}, {"enable_lmq": True}])
def test_without_the_keys_the_property_is_stored_as_it_is_and_nothing_is_derived(
    open_store: OpenStore, path: Path, on: dict[str, object]
) -> None:
    store = open_store(**on)
    result = store.put_message(reput.Message("t", b"x", properties={NAMES: "plain,%LMQ%a", OFFSETS: "0,0"}))
    store.wait_dispatched()
    assert [queue.topic for queue in store.queues()] == ["t"]
    assert offsets_of(store, result) == "0,0"
    store.close()
    (path / "abort").touch()  # recovery dispatches it again, by the rules of 4.9.7's multi-dispatch and of 5.3.3's
    store = open_store(enable_multi_dispatch=True)
    assert {(q.topic, q.queue_id) for q in store.queues()} == {("t", 0), ("plain", 0), ("%LMQ%a", 0)}


def test_a_light_queue_whose_folder_vanished_is_built_again(open_store: OpenStore, path: Path) -> None:
    import shutil

    store = open_store(**ON)
    for _ in range(20):
        store.put_message(message("%LMQ%a"))
    store.close()
    shutil.rmtree(path / "consumequeue/%LMQ%a")
    store = open_store(**ON)
    assert store.max_offset("%LMQ%a", 0) == 20
    assert offsets_of(store, store.put_message(message("%LMQ%a"))) == "20"


def test_texts_of_a_client_lead_nowhere_and_stop_nothing(open_store: OpenStore, path: Path) -> None:
    """Records as they lie in a log whose writer had light queues off; a later start has them on."""
    hostile = {"../../../evil": "0", "/evil": "0", "%LMQ%x": "9223372036854775807", "%LMQ%y": "-1", "%LMQ%z": "one",
               "": "0", "%LMQ%p,%LMQ%q": "0", "%LMQ%ok": "0"}  # fmt: skip
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL) as store:  # type: ignore[arg-type]
        for names, offsets in hostile.items():
            properties = {NAMES: names, OFFSETS: offsets} if names else {OFFSETS: offsets}
            store.put_message(reput.Message("t", b"x", properties=properties))
    (path / "abort").touch()
    with reput.MessageStore.open(path, files=FaultyFiles(), **SMALL | ON) as store:  # type: ignore[arg-type]
        assert [queue.topic for queue in store.queues()] == ["%LMQ%ok", "t"]
        assert store.max_offset("t", 0) == len(hostile)
    assert not list(path.parent.rglob("evil"))


def test_the_bytes_of_records_and_units_are_those_of_rocketmq(open_store: OpenStore, path: Path) -> None:
    store = open_store(**ON)
    fields = {"tags": "create", "properties": {NAMES: "%LMQ%a,%LMQ%b"}}
    results = [store.put_message(reput.Message("parent", body, **fields), 2) for body in (b"l0", b"l1")]  # type: ignore[arg-type]
    store.wait_dispatched()
    for number, result in enumerate(results):
        found = store.look_message_by_offset(result.commit_log_offset)
        assert found is not None
        text = decode_properties(
            f"TAGS\x01create\x02{NAMES}\x01%LMQ%a,%LMQ%b\x02{OFFSETS}\x01{number},{number}\x02".encode()
        )
        assert found.properties | {"TAGS": "create"} == text
    unit = encode_unit(*Unit(results[1].commit_log_offset, results[1].size, -1_352_294_148))
    for queue in ("%LMQ%a/0", "%LMQ%b/0", "parent/2"):
        assert (path / f"consumequeue/{queue}/{0:020d}").read_bytes()[20:40] == unit
