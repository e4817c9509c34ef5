"""docs/formats/remoting.md says what the code does."""

from __future__ import annotations

import re

from reput.formats.remoting import MAX_FRAME_SIZE
from reput.remoting.command import RemotingCommand, decode_command, encode_command
from reput.transport import connection, requests
from tests.support.header_table import PAGE, header_classes, header_table, page_with_tables

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_of_header_classes_are_those_of_the_code() -> None:
    assert page_with_tables(TEXT) == TEXT, "python -m tests.support.header_table writes them"
    assert len(header_classes()) > 40
    assert header_table()["UnregisterClientRequestHeader"]["clientID"] == ("text", True)
    assert "| PullMessageRequestHeader | queueOffset | int64 | yes |\n" in TEXT


def test_each_header_class_has_one_name() -> None:
    assert len(header_table()) == len(header_classes())


def test_the_worked_frame_is_encoded_from_its_command() -> None:
    (block,) = re.findall(r"```hex\n(.*?)```", TEXT, re.DOTALL)
    frame = b"".join(bytes.fromhex(line[10:57]) for line in block.splitlines())
    command = decode_command(frame)
    assert command == RemotingCommand(11, 7, ext_fields={"topic": "abc"}, serialize_type=command.serialize_type)
    assert encode_command(command) == frame
    (header,) = re.findall(r"```json\n(.*?)\n```", TEXT, re.DOTALL)
    assert encode_command(RemotingCommand(11, 7, ext_fields={"topic": "abc"}))[8:] == header.encode()


def test_the_bounds_are_those_of_the_code() -> None:
    assert f"{MAX_FRAME_SIZE:,}".replace(",", " ") in TEXT
    assert f"{requests._MOST_TASKS:,}".replace(",", " ") in TEXT
    for size in (connection._PAUSE_AT, connection._RESUME_AT, connection._CLOSE_AT):
        assert f"{size >> 20} MiB" in TEXT
