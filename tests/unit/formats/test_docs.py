"""The pages of docs/formats say what the code does: field tables, flags, names and worked examples."""

import dataclasses
import json
import re
import struct
from pathlib import Path

import pytest

from reput.formats import (
    batch_consume_queue,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    epoch_file,
    index_file,
    metadata,
    paths,
    record,
    record_layout,
    replication,
    rocksdb,
    timer_checkpoint,
    timer_log,
    timer_wheel,
)
from reput.formats.hosts import decode_host, encode_host
from reput.formats.java import body_crc
from reput.formats.java_bean import encode_bean
from reput.formats.properties import tags_code

DOCS = Path(__file__).parents[3] / "docs" / "formats"
TYPES = {"i": "int32", "q": "int64", "h": "int16", "b": "int8", "8s": "bytes", None: "bytes"}
SIZE_NAMES = {"BITMAP": "m", "BODY": "b", "TOPIC": "t", "PROPERTIES": "p"}
FIELD_TABLE = "| offset | width | type | name | meaning |"
PARTS = ["Grammar", "Fields", "Rules", "Worked example", "Oddities"]
EXAMPLE_TABLE = "| offset | width | name | bytes | value |"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def tables(text, heading):
    """Rows of each table with this heading."""
    for part in text.split(heading + "\n")[1:]:
        lines = part.split("\n\n")[0].splitlines()[1:]
        yield [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def examples(text):
    """Bytes of each hex block."""
    for block in re.findall(r"```hex\n(.*?)```", text, re.DOTALL):
        lines = block.splitlines()
        data = b"".join(bytes.fromhex(line[10:57]) for line in lines)
        assert [line[:8] for line in lines] == [f"{position:08x}" for position in range(0, len(data), 16)]
        shown = "".join(line[59:].ljust(16) for line in lines)
        assert shown.rstrip() == "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data).rstrip()
        yield data


def expected_rows(fields):
    position, variable = 0, ""
    for field in fields:
        width = SIZE_NAMES[field.name] if field.size is None else str(field.size)
        yield [f"{position}{variable}", width, TYPES[field.code], field.name, field.meaning]
        position += field.size or 0
        variable += f" + {width}" if field.size is None else ""


def value_of(code, data):
    """Text that the example table shows for the bytes of a field."""
    if code == "8s":
        return decode_host(data)
    if code is None:
        return data.decode().replace("\x01", "␁").replace("\x02", "␂")
    return str(struct.unpack(">" + code, data)[0])


def check_example(data, rows, fields):
    """Each row's bytes stand in data where it says, and its value is theirs."""
    assert [row[2] for row in rows] == [name for name, _ in fields]
    for (offset, width, name, shown, value), (_, code) in zip(rows, fields, strict=True):
        found = data[int(offset) : int(offset) + int(width)]
        assert shown == f"`{found.hex()}`", name
        assert value == value_of(code, found), name
    return [row[4] for row in rows]


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("commit-log.md", [record_layout.FIELDS]),
        ("consume-queue.md", [consume_queue.FIELDS]),
        ("consume-queue-ext.md", [consume_queue_ext.FIELDS]),
        ("batch-consume-queue.md", [batch_consume_queue.FIELDS]),
        ("rocksdb.md", [rocksdb.FIELDS]),
        ("index-file.md", [index_file.HEADER_FIELDS, index_file.ENTRY_FIELDS]),
        ("checkpoint.md", [checkpoint.FIELDS]),
        ("timer.md", [timer_wheel.FIELDS, timer_log.FIELDS, timer_checkpoint.FIELDS]),
    ],
)
def test_field_tables_agree_with_the_code(name, formats):
    assert list(tables(page(name), FIELD_TABLE)) == [list(expected_rows(fields)) for fields in formats]


def test_the_table_of_flags_agrees_with_the_code():
    (rows,) = tables(page("commit-log.md"), "| bit mask | name | meaning |")
    flags = {name: mask for name, mask in vars(record_layout.SysFlag).items() if name.isupper()}
    assert {name: int(mask, 16) for mask, name, _ in rows} == flags


def test_the_worked_record_is_encoded_from_its_values():
    text = page("commit-log.md")
    data, blank = examples(text)
    (rows,) = tables(text, EXAMPLE_TABLE)
    values = check_example(data, rows, [(field.name, field.code) for field in record_layout.FIELDS])
    by_name = dict(zip([field.name for field in record_layout.FIELDS], values, strict=True))
    magic, topic = record_layout.encode_topic(by_name["TOPIC"])
    body = by_name["BODY"].encode()
    packed = record_layout.pack_record(
        magic,
        body_crc(body),
        int(by_name["QUEUEID"]),
        int(by_name["FLAG"]),
        int(by_name["QUEUEOFFSET"]),
        int(by_name["PHYSICALOFFSET"]),
        int(by_name["SYSFLAG"]),
        int(by_name["BORNTIMESTAMP"]),
        encode_host(by_name["BORNHOST"]),
        int(by_name["STORETIMESTAMP"]),
        encode_host(by_name["STOREHOSTADDRESS"]),
        int(by_name["RECONSUMETIMES"]),
        int(by_name["PREPAREDTRANSACTIONOFFSET"]),
        body,
        topic,
        by_name["PROPERTIES"].replace("␁", "\x01").replace("␂", "\x02").encode(),
    )
    assert packed == data
    assert record.decode_record(data).message_id in text
    assert f"= {len(data)} bytes" in text
    assert f"{int.from_bytes(blank[:4], 'big')} bytes are left" in text
    assert blank == record.encode_blank(329)


def test_the_worked_key_and_value_are_encoded_from_their_values():
    text = page("rocksdb.md")
    key, value = examples(text)
    assert rocksdb.encode_key(b"order-topic", 0, 0) == key
    (rows,) = tables(text, EXAMPLE_TABLE)
    values = check_example(value, rows, [(field.name, field.code) for field in rocksdb.FIELDS])
    assert rocksdb.encode_value(*map(int, values)) == value
    assert rocksdb.unit_of(value) == next(examples(page("consume-queue.md")))


def test_the_worked_unit_is_that_of_the_worked_record():
    text = page("consume-queue.md")
    data, filler = examples(text)
    (rows,) = tables(text, EXAMPLE_TABLE)
    values = check_example(data, rows, [(field.name, field.code) for field in consume_queue.FIELDS])
    assert consume_queue.encode_unit(*map(int, values)) == data
    message = record.decode_record(next(examples(page("commit-log.md"))))
    code = tags_code(message.tags)
    assert consume_queue.decode_unit(data) == (message.commit_log_offset, message.store_size, code)
    assert f"Its tags are `{message.tags}`, whose hash is {code}.".replace("-", "−") in text
    assert filler == consume_queue.encode_unit(*consume_queue.FILLER)
    assert f"filler        = {filler.hex(' ')} ;" in text


def test_the_worked_extension_is_decoded_to_its_values():
    text = page("consume-queue-ext.md")
    (data,) = examples(text)
    (rows,) = tables(text, EXAMPLE_TABLE)
    fields = [(f"unit {unit} {field.name}", field.code) for unit in (0, 1) for field in consume_queue_ext.FIELDS[:-1]]
    values = list(map(int, check_example(data, rows, fields)))
    position = 0
    for unit in (values[:4], values[4:]):
        found = consume_queue_ext.decode_ext_unit(data, position)
        assert [found.size, found.tags_code, found.store_timestamp, len(found.bit_map)] == unit
        assert not found.bit_map or f"`{found.bit_map.hex()}`" in text
        position += found.size
    end = len(data) - consume_queue_ext.END_BLANK_SIZE
    assert data[end:] == consume_queue_ext.END_MARK + bytes(2)
    assert f"{consume_queue_ext.DEFAULT_FILE_SIZE:,} bytes".replace(",", " ") in text
    assert str(consume_queue_ext.MAX_ADDRESS).replace("-", "−") in text


def test_the_worked_batch_unit_is_encoded_from_its_values():
    text = page("batch-consume-queue.md")
    (data,) = examples(text)
    (rows,) = tables(text, EXAMPLE_TABLE)
    values = check_example(data, rows, [(field.name, field.code) for field in batch_consume_queue.FIELDS])
    unit = batch_consume_queue.BatchUnit(*map(int, values))
    assert batch_consume_queue.encode_batch_unit(unit) == data
    assert unit.tags_code == tags_code("create")
    assert f"whose hash is\n−{-unit.tags_code}" in text
    units, size = batch_consume_queue.DEFAULT_FILE_SIZE // len(data), batch_consume_queue.DEFAULT_FILE_SIZE
    assert f"{size:,} bytes by default: {units:,} units".replace(",", " ") in text


def test_the_worked_index_file_is_encoded_from_its_values():
    text = page("index-file.md")
    (data,) = examples(text)
    (rows,) = tables(text, EXAMPLE_TABLE)
    header = [(field.name, field.code) for field in index_file.HEADER_FIELDS]
    slots = [(f"slot {slot}", "i") for slot in range(4)]
    entries = [(f"entry {i} {field.name}", field.code) for i in (1, 2, 3) for field in index_file.ENTRY_FIELDS]
    values = list(map(int, check_example(data, rows, header + slots + entries)))
    packed = bytearray(index_file.file_size(4, 4))
    packed[:40] = index_file.encode_header(index_file.IndexHeader(*values[:6]))
    for slot in range(4):
        struct.pack_into(">i", packed, index_file.slot_position(slot), values[6 + slot])
    for i in (1, 2, 3):
        position = index_file.entry_position(4, i)
        entry = index_file.IndexEntry(*values[6 + 4 * i : 10 + 4 * i])
        packed[position : position + 20] = index_file.encode_entry(entry)
    assert packed == data
    hash_ = index_file.key_hash("t", "same")
    assert f"hash {hash_}, slot {hash_ % 4}" in text
    default = index_file.file_size(index_file.DEFAULT_HASH_SLOT_NUM, index_file.DEFAULT_INDEX_NUM)
    assert f"{default:,} bytes".replace(",", " ") in text


def test_the_worked_checkpoint_is_encoded_from_its_values():
    text = page("checkpoint.md")
    data, abort, lock = examples(text)
    (rows,) = tables(text, EXAMPLE_TABLE)
    values = check_example(data, rows, [(field.name, field.code) for field in checkpoint.FIELDS])
    whole = checkpoint.encode_checkpoint(checkpoint.Checkpoint(*map(int, values)))
    assert whole[: len(data)] == data
    assert not any(whole[len(data) :])
    rest = len(whole) - len(data)
    assert f"The first {len(data)} bytes of a checkpoint after a clean shutdown; the other {rest} are 00." in text
    assert abort == b"4711"
    assert lock == paths.LOCK_CONTENT


def test_the_worked_timer_is_that_of_the_code():
    text = page("timer.md")
    kinds = [timer_log.FIELDS, timer_wheel.FIELDS, timer_checkpoint.FIELDS]
    unit, slot, checked = examples(text)
    for data, rows, fields in zip((unit, slot, checked), tables(text, EXAMPLE_TABLE), kinds, strict=True):
        check_example(data, rows, [(field.name, field.code) for field in fields])
    assert timer_log.encode_timer_unit(timer_log.decode_timer_unit(unit)) == unit
    found = timer_wheel.decode_slot(slot)
    assert timer_wheel.encode_slot(found) == slot
    assert f"number {timer_wheel.slot_index(found.time * 1000, 1000)}" in text
    assert timer_checkpoint.encode_timer_checkpoint(timer_checkpoint.decode_timer_checkpoint(checked)) == checked
    assert f"{timer_wheel.WHEEL_SIZE:,} bytes".replace(",", " ") in text
    assert f"{timer_log.DEFAULT_FILE_SIZE:,} bytes".replace(",", " ") in text
    assert f"the other {timer_checkpoint.FILE_SIZE - len(checked)} are 00" in text


def test_the_store_directory_is_laid_out_with_the_names_of_the_code():
    text = page("store-directory.md")
    (rows,) = tables(text, "| name | constant | kind | content |")
    names = {name: value for name, value in vars(paths).items() if name.isupper() and isinstance(value, str)}
    assert {constant: name.strip("`") for name, constant, *_ in rows} == names
    (data,) = examples(text)
    assert data.decode() == paths.offset_to_file_name(0)
    listed = re.search(r"```\n(abort\n.*?)```", text, re.DOTALL)[1].splitlines()
    queue = f"{paths.CONSUME_QUEUE}/order-topic/0"
    assert listed == [
        paths.ABORT,
        paths.CHECKPOINT,
        f"{paths.COMMIT_LOG}/{paths.offset_to_file_name(0)}",
        f"{paths.COMMIT_LOG}/{paths.offset_to_file_name(1 << 30)}",
        f"{queue}/{paths.offset_to_file_name(0)}",
        f"{queue}/{paths.offset_to_file_name(consume_queue.DEFAULT_FILE_SIZE)}",
        f"{paths.INDEX}/{paths.index_file_name(1_700_000_000_123, 3600)}",
        paths.LOCK,
    ]


def test_the_page_of_the_metadata_names_the_files_and_the_members_of_a_topic():
    text = page("metadata.md")
    (rows,) = tables(text, "| file | class | RocketMQ's class | content |")
    assert {name: file.strip("`") for file, name, *_ in rows} == {
        kind.__name__: name for kind, name in metadata.FILE_NAMES.items()
    }
    (rows,) = tables(text, "| member | name | default | meaning |")
    topic = encode_bean(metadata.TopicConfig("x"))
    assert {member.strip("`") for member, *_ in rows} == set(topic)
    assert all(f"`{json.dumps(topic[m.strip('`')])}`" == default for m, _, default, _ in rows[1:])
    assert [name for _, name, *_ in rows] == [one.name for one in dataclasses.fields(metadata.TopicConfig)][:-1]


def test_the_worked_metadata_are_encoded_from_their_values():
    (example,) = re.findall(r"```json\n(.*?)\n```", page("metadata.md"), re.DOTALL)
    assert example.encode() == metadata.encode_metadata(metadata.ConsumerOffsets({"t@g": {0: 12, 1: 7}}))


def test_the_heads_of_replication_are_as_the_page_says():
    text = page("replication.md")
    report, frame = tables(text, FIELD_TABLE)
    for rows, structure in ((report, replication.REPORT), (frame, replication.FRAME_HEADER)):
        assert [int(width) for _, width, *_ in rows] == [struct.calcsize(f">{code}") for code in structure.format[1:]]
        assert [kind for _, _, kind, *_ in rows] == [TYPES[code] for code in structure.format[1:]]
        assert sum(int(width) for _, width, *_ in rows) == structure.size
    reports, sign_of_life = examples(text)
    assert reports == replication.REPORT.pack(1) + replication.REPORT.pack(690)
    assert sign_of_life == replication.FRAME_HEADER.pack(690, 0)
    (rows,) = tables(text, EXAMPLE_TABLE)
    assert [int(value) for *_, value in rows] == list(replication.FRAME_HEADER.unpack(sign_of_life))


def test_the_epochs_of_the_example_are_read():
    (data,) = examples(page("epoch-file.md"))
    assert epoch_file.decode_epochs(data) == ((1, 0), (2, 1872))


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.stem)
def test_each_page_has_the_same_parts_and_no_dead_links(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == PARTS
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (DOCS / link).exists(), link
