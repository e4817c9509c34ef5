"""RocketMQ's own RemotingCommand reads what we write and we read what it writes; its header classes are our table."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from reput.errors import RemotingDecodeError
from reput.remoting.codes import LanguageCode, SerializeType
from reput.remoting.command import RemotingCommand, decode_command, encode_command
from tests.support.frames import binary_header, entry, frame_of, recorded_frames
from tests.support.header_table import header_table
from tests.support.rocketmq.apache import SOURCES, build

pytestmark = pytest.mark.java


class Java(NamedTuple):
    """`run("frames", [frame, ...])`, `run("headers", [name, ...])`: what RocketMQ of a version made of each."""

    version: str
    run: Callable[[str, list[Any]], list[Any]]


#: CFNotNull, but RocketMQ's class begins with a value, or most requests do without the field.
WITH_DEFAULT = {
    ("CreateTopicRequestHeader", "order"),
    ("SendMessageRequestHeader", "defaultTopic"),
    ("SendMessageRequestHeader", "defaultTopicQueueNums"),
    ("PullMessageRequestHeader", "commitOffset"),
    ("PullMessageRequestHeader", "suspendTimeoutMillis"),
    ("PullMessageRequestHeader", "subVersion"),
    ("PopMessageResponseHeader", "popTime"),
    ("PopMessageResponseHeader", "invisibleTime"),
    ("PopMessageResponseHeader", "reviveQid"),
    ("PopMessageResponseHeader", "restNum"),
    ("ChangeInvisibleTimeResponseHeader", "popTime"),
    ("ChangeInvisibleTimeResponseHeader", "invisibleTime"),
    ("ChangeInvisibleTimeResponseHeader", "reviveQid"),
}
#: Fields of reput's own: RocketMQ's peers send none of them, and pass them over. A class of these alone is ours, too.
OWN = {
    "GetRouteInfoRequestHeader": {"withLostBrokers"},
    "LostBrokersRequestHeader": {"withLostBrokers"},
    "WipeWritePermOfBrokerRequestHeader": {"lostOnly"},
}
TYPES = {
    "text": {"String", "BoundaryType"},
    "bool": {"Boolean", "boolean"},
    "int32": {"Integer", "int"},
    "int64": {"Long", "long"},
}
ODD = '{1:2} " \\ / \n\t\x07\x01\x02 \x7f\x85 \u2028 ü 😀 $.a.b'
PLAIN = RemotingCommand(310, 7, ext_fields={"a": "PID", "e": "1", "i": "KEYS\x01k\x02"}, body=b"Hello", version=479)
COMMANDS = (
    PLAIN,
    RemotingCommand(0, -1, 1, "none ü", language=LanguageCode.GO, version=317),
    RemotingCommand(34, 1 << 30, 2, ext_fields={}, body=bytes(range(256))),
    RemotingCommand(200_050, (1 << 31) - 1, 3, "", {"x": "", "y": "1"}, version=1),
    RemotingCommand(1, -(1 << 31), 1, ODD, {ODD: ODD}, language=LanguageCode.RUST),
    RemotingCommand(2, 0, 1, "\ud800", {"\udfff": "a\udfffb"}),
)
#: Headers that clients do not send, or not all; both sides take each of them, and read the same.
TOLERATED = (
    b'{"code":11,"extFields":{"a":1,"b":true,"c":null,"d":"x","e":-7,"f":1795230747406}}',
    b'{"code":11,"extFields":null,"remark":null,"shoeSize":44,"deep":{"a":[1,{"b":2}]}}',
    b' \n{"code":11,"remark":""}\n', b'{"version":479,"opaque":5,"code":11,"flag":1}', b"{}",
    b'{"code":"11","opaque":"-5"}', b'{"code":1,"code":2}', b'{"code":11,"language":"KLINGON"}',
    b'{"code":11,"remark":"\\ud83d\\ude00\\u0001"}',
)  # fmt: skip
#: Neither side takes these.
REFUSED = (
    frame_of(b""), frame_of(b"x"), frame_of(b"[]"), frame_of(b"null"), frame_of(b'{"code":1'), frame_of(b"{}", kind=2),
    frame_of(binary_header()[:-1], kind=1), frame_of(binary_header(remark_size=1 << 30), kind=1),
    frame_of(binary_header(remark_size=-1), kind=1), frame_of(binary_header(ext_size=1 << 30), kind=1),
    frame_of(binary_header(entries=entry(b"a", b"1", value_size=1 << 30)), kind=1),
    frame_of(binary_header(entries=entry(b"a", b"1", name_size=-1)), kind=1),
)  # fmt: skip


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Java:
    """RocketMQ's classes, compiled with a program that shows them."""
    built = build(request.param)
    classes = tmp_path_factory.mktemp("classes")
    jars = f"{built / 'jars'}/*"
    source = SOURCES / "src/remoting/java/reput/interop/Remoting.java"
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", classes, source], check=True, capture_output=True)

    def run(mode: str, lines: list[Any]) -> list[Any]:
        silent = f"-Drmq.logback.configurationFile={built / 'classes/logback.xml'}"
        path = f"{classes}:{built / 'classes'}:{jars}"
        command = ["java", silent, f"-Duser.home={classes}", "-cp", path, "reput.interop.Remoting", mode]
        text = "".join(f"{line.hex() if isinstance(line, bytes) else line}\n" for line in lines)
        done = subprocess.run(command, input=text, check=True, capture_output=True, timeout=600, encoding="utf-8")
        return [json.loads(line) for line in done.stdout.rstrip("\n").split("\n")]  # texts have other ends of lines

    return Java(request.param, run)


def check_same(theirs: dict[str, Any], ours: RemotingCommand) -> None:
    """RocketMQ has read what we have."""
    assert "error" not in theirs, theirs["error"]
    assert theirs["code"] in (ours.code, ours.code - 3 * 65_536)  # a binary header has 16 bits of POP's codes
    assert (theirs["opaque"], theirs["flag"], theirs["version"]) == (ours.opaque, ours.flag, ours.version)
    assert theirs["remark"] == ours.remark
    assert {name: value for name, value in (theirs["extFields"] or {}).items() if value is not None} == (
        ours.ext_fields or {}
    )
    assert (theirs["language"] or "OTHER") == ours.language.name
    assert theirs["serialize"] == ours.serialize_type.name
    assert bytes.fromhex(theirs["body"]) == ours.body


@pytest.mark.parametrize("kind", list(SerializeType))
def test_rocketmq_reads_what_we_write_and_writes_it_again(java: Java, kind: SerializeType) -> None:
    ours = [encode_command(replace(one, serialize_type=kind)) for one in COMMANDS]
    theirs = java.run("frames", ours)
    for found, frame in zip(theirs, ours, strict=True):
        command = decode_command(frame)
        check_same(found, command)
        again = decode_command(bytes.fromhex(found["again"]))
        assert again == command
    assert bytes.fromhex(theirs[0]["again"]) == ours[0]
    assert bytes.fromhex(theirs[1]["again"]) == ours[1]


def test_rocketmq_reads_recorded_frames_as_we_do(java: Java) -> None:
    recorded = recorded_frames()
    for found, one in zip(java.run("frames", [one.frame for one in recorded]), recorded, strict=True):
        command = decode_command(one.frame)
        check_same(found, command)
        assert decode_command(bytes.fromhex(found["again"])) == command
        if "Java" in one.name:
            assert len(found["again"]) == len(encode_command(command).hex())  # fields in another order, from a HashMap


def test_rocketmq_tolerates_what_we_tolerate(java: Java) -> None:
    frames = [frame_of(header) for header in TOLERATED]
    for found, frame in zip(java.run("frames", frames), frames, strict=True):
        command = decode_command(frame)
        if b'"version"' not in frame:  # RocketMQ's class has its own process's for one that is missing
            found["version"] = command.version
        if b'"opaque"' not in frame:  # and the next number of its own counter
            found["opaque"] = command.opaque
        check_same(found, command)


def test_rocketmq_refuses_what_we_refuse(java: Java) -> None:
    for found, frame in zip(java.run("frames", list(REFUSED)), REFUSED, strict=True):
        assert "error" in found, frame
        with pytest.raises(RemotingDecodeError):
            decode_command(frame)


def test_the_header_classes_are_those_of_rocketmq(java: Java) -> None:
    ours = {
        name: {field: fields[field] for field in fields if field not in OWN.get(name, ())}
        for name, fields in header_table().items()
        if not fields or fields.keys() != OWN.get(name)
    }
    if java.version != "5.3.3":
        names = ("msgId", "queueId", "queueOffset", "transactionId")
        ours = {"SendMessageResponseHeader": {name: ours["SendMessageResponseHeader"][name] for name in names}}
    for (name, fields), theirs in zip(ours.items(), java.run("headers", list(ours)), strict=True):
        assert theirs is not None, name
        assert fields.keys() == theirs.keys(), name
        for field, (kind, is_required) in fields.items():
            type_of, is_not_null = theirs[field]
            assert type_of in TYPES[kind], (name, field)
            assert is_required == (is_not_null and (name, field) not in WITH_DEFAULT), (name, field)
