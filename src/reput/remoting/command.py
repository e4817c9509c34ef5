"""RemotingCommand: a request or an answer, and the two ways to write its header (docs/formats/remoting.md)."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NoReturn

from reput.errors import RemotingDecodeError
from reput.formats.java import INT32_MAX, INT32_MIN
from reput.formats.remoting import (
    BINARY_HEAD,
    FRAME_HEAD,
    HEADER_SIZE_MASK,
    LENGTH_SIZE,
    MAX_FRAME_SIZE,
    ONE_WAY_FLAG,
    RESPONSE_FLAG,
    TYPE_SHIFT,
)
from reput.remoting.codes import VERSION, LanguageCode, RequestCode, ResponseCode, SerializeType
from reput.remoting.other_protocol import other_protocol

#: Bytes of the largest header. A send's has 115,000 in JSON if 32,767 bytes of properties have names and values of a
#: letter. RocketMQ takes a header of a whole frame, which would hold up a loop for seconds.
MAX_HEADER_SIZE = 128 << 10
#: Fields of a header: RocketMQ's have 30 at the most.
MAX_FIELDS = 1024

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
#: A binary header keeps 16 bits of a code: the codes of POP by what is left of them.
_WHOLE_CODES = {code & 0xFFFF: int(code) for code in RequestCode if code > 0x7FFF}
_LANGUAGES = {language.name: language for language in LanguageCode}


@dataclass(slots=True)
class RemotingCommand:
    """A request or an answer.

    Attributes:
        code: Of a request (`RequestCode`) or an answer (`ResponseCode`).
        opaque: Number by which an answer finds its request; each side counts its own requests.
        flag: Bit 0: an answer; bit 1: one-way, nobody answers.
        remark: Text for people, of errors above all.
        ext_fields: The header's fields as text.
        body: Bytes after the header; none and empty are the same.
        serialize_type: How the header was, or is to be, written.
        language, version: Of the sender.
        cached_header: The instance of a header class that `ext_fields` make, if whoever decoded the command has it.
        around_opaque: The header in JSON before and after opaque, if whoever made the command has it; it counts then,
            and not the fields.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    serialize_type: SerializeType = SerializeType.JSON
    language: LanguageCode = LanguageCode.JAVA
    version: int = VERSION
    cached_header: Any = field(default=None, compare=False, repr=False)
    around_opaque: tuple[str, str] | None = field(default=None, compare=False, repr=False)

    @property
    def is_response(self) -> bool:
        """Whether it answers a request."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_one_way(self) -> bool:
        """Whether it is a request that nobody answers."""
        return bool(self.flag & ONE_WAY_FLAG)

    def response(
        self,
        code: int = ResponseCode.SUCCESS,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """The answer to this request, with its opaque; in JSON, as 5.3.3 answers whatever the request's type is."""
        return RemotingCommand(code, self.opaque, RESPONSE_FLAG, remark, ext_fields, body)


def encode_command(command: RemotingCommand) -> bytes:
    """The frame of a command.

    Raises RemotingDecodeError if no peer could decode it: it is larger than `MAX_FRAME_SIZE`, or its header than
    `MAX_HEADER_SIZE`, or a number or the name of a field does not fit into a binary header.
    """
    header = _encode_json(command) if command.serialize_type is SerializeType.JSON else _encode_binary(command)
    _check_header_size(len(header))
    size = FRAME_HEAD.size + len(header) + len(command.body)
    if size > MAX_FRAME_SIZE:
        raise RemotingDecodeError(f"a frame of {size} bytes; peers take up to {MAX_FRAME_SIZE}")
    head = FRAME_HEAD.pack(size - LENGTH_SIZE, command.serialize_type << TYPE_SHIFT | len(header))
    return b"".join((head, header, command.body))


def encode_answer(answer: RemotingCommand | bytes) -> bytes:
    """The frame of an answer; of SYSTEM_ERROR if it is larger than a frame."""
    if isinstance(answer, bytes):
        return answer
    try:
        return encode_command(answer)
    except RemotingDecodeError as error:  # larger than a frame
        remark = f"the answer is too large: {error}"
        return encode_command(
            RemotingCommand(
                ResponseCode.SYSTEM_ERROR, answer.opaque, answer.flag, remark, serialize_type=answer.serialize_type
            )
        )


def frame_size(head: bytes | bytearray | memoryview) -> int:
    """Size of a frame, its length word counted, by its first 8 bytes.

    Raises RemotingDecodeError if no frame begins like this; nothing has been allocated for it.
    """
    if len(head) < FRAME_HEAD.size:
        raise RemotingDecodeError(f"a frame of {len(head)} bytes: expected {FRAME_HEAD.size} at least")
    length, word = FRAME_HEAD.unpack_from(head)
    if not LENGTH_SIZE <= length <= MAX_FRAME_SIZE - LENGTH_SIZE:
        if other := other_protocol(head):
            error = RemotingDecodeError(other.reason)
            error.answer = other.answer
            raise error
        raise RemotingDecodeError(f"frame length {length}: expected {LENGTH_SIZE} to {MAX_FRAME_SIZE - LENGTH_SIZE}")
    _check_header_size(word & HEADER_SIZE_MASK)
    if word & HEADER_SIZE_MASK > length - LENGTH_SIZE:
        raise RemotingDecodeError(f"a header of {word & HEADER_SIZE_MASK} bytes in a frame of {length}")
    if word >> TYPE_SHIFT > SerializeType.ROCKETMQ:
        raise RemotingDecodeError(f"serialize type {word >> TYPE_SHIFT}: expected 0 (JSON) or 1 (ROCKETMQ)")
    return int(length) + LENGTH_SIZE


def _check_header_size(size: int) -> None:
    if size > MAX_HEADER_SIZE:
        raise RemotingDecodeError(f"a header of {size} bytes: expected {MAX_HEADER_SIZE} at most")


def decode_command(frame: bytes | memoryview) -> RemotingCommand:
    """The command of one whole frame, as `frame_size` measured it.

    Raises RemotingDecodeError if the header is none; RocketMQ then closes the connection.
    """
    size = frame_size(frame)
    if size != len(frame):
        raise RemotingDecodeError(f"a frame of {size} bytes in {len(frame)}")
    _, word = FRAME_HEAD.unpack_from(frame)
    body_begin = FRAME_HEAD.size + (word & HEADER_SIZE_MASK)
    data, body = bytes(frame[FRAME_HEAD.size : body_begin]), bytes(frame[body_begin:])
    return _decode_json(data, body) if word >> TYPE_SHIFT == SerializeType.JSON else _decode_binary(data, body)


# -- JSON


def _encode_json(command: RemotingCommand) -> bytes:
    """Members by name, as fastjson writes them; null members are left out."""
    if command.around_opaque is not None:
        before, after = command.around_opaque
        return f"{before}{command.opaque}{after}".encode("utf-8", "replace")
    fields = remark = ""
    if command.ext_fields is not None:
        members = ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in command.ext_fields.items()])
        fields = f'"extFields":{{{members}}},'
    if command.remark is not None:
        remark = f'"remark":{quoted(command.remark)},'
    return (
        f'{{"code":{int(command.code)},{fields}"flag":{int(command.flag)},"language":"{command.language.name}",'
        f'"opaque":{command.opaque},{remark}"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    ).encode("utf-8", "replace")


#: A text as JSON has it.
quoted = json.encoder.encode_basestring
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_loads = json.JSONDecoder(strict=False).decode


def _decode_json(data: bytes, body: bytes) -> RemotingCommand:
    try:
        members = _loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise RemotingDecodeError(f"the header is no JSON: {error}") from None
    if not isinstance(members, dict):
        raise RemotingDecodeError(f"the header is no JSON object, but {type(members).__name__}")
    remark = members.get("remark")
    fields = members.get("extFields")
    language = members.get("language", "JAVA")
    if not isinstance(fields, dict | None):
        raise RemotingDecodeError(f"extFields is no JSON object, but {type(fields).__name__}")
    return RemotingCommand(
        _int32(members, "code"),
        _int32(members, "opaque"),
        _int32(members, "flag"),
        None if remark is None else _text(remark),
        None if fields is None else _texts(fields),
        body,
        SerializeType.JSON,
        LanguageCode.OTHER if not isinstance(language, str) else _LANGUAGES.get(language, LanguageCode.OTHER),
        _int32(members, "version"),
    )


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    """Fields as text, without those that are null; most are text already."""
    if len(fields) > MAX_FIELDS:
        raise RemotingDecodeError(f"a header of {len(fields)} fields: expected {MAX_FIELDS} at most")
    if set(map(type, fields.values())) == {str}:
        return fields
    return {name: _text(value) for name, value in fields.items() if value is not None}


def _int32(members: dict[str, Any], name: str) -> int:
    """A number of the header, 0 if it is missing; text with a number counts, as for fastjson."""
    value = members.get(name)
    if type(value) is int and INT32_MIN <= value <= INT32_MAX:
        return value
    if value is None:
        return 0
    if isinstance(value, str) and len(value) <= 11:
        try:
            value = int(value)
        except ValueError:
            _refuse_number(name, value)
    if type(value) is not int or not INT32_MIN <= value <= INT32_MAX:
        _refuse_number(name, value)
    return value


def _refuse_number(name: str, value: object) -> NoReturn:
    found = type(value).__name__ if isinstance(value, dict | list) else repr(value)[:40]
    raise RemotingDecodeError(f"{name} in the header: expected a whole number of 32 bits, found {found}")


def _text(value: Any) -> str:
    """A value as fastjson puts it into a String; Node and C++ send numbers and booleans."""
    if isinstance(value, str):
        return value
    try:
        return _dumps(value)
    except RecursionError:
        raise RemotingDecodeError("a value in the header has too many levels") from None


# -- ROCKETMQ


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    entries = []
    code = command.code & 0xFFFF
    try:
        for name, value in (command.ext_fields or {}).items():
            key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
            entries += [_SHORT.pack(len(key)), key, _INT.pack(len(text)), text]
        head = BINARY_HEAD.pack(
            code if code <= 0x7FFF else code - 0x10000, command.language, command.version, command.opaque,
            command.flag, len(remark),
        )  # fmt: skip
    except struct.error as error:
        raise RemotingDecodeError(f"command {command.code} has no binary header: {error}") from None
    ext = b"".join(entries)
    return b"".join((head, remark, _INT.pack(len(ext)), ext))


def _decode_binary(data: bytes, body: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_size = BINARY_HEAD.unpack_from(data)
        remark_end = BINARY_HEAD.size + _bounded(remark_size, data, BINARY_HEAD.size)
        (ext_size,) = _INT.unpack_from(data, remark_end)
    except struct.error:
        raise RemotingDecodeError(f"the header ends after {len(data)} bytes, too early") from None
    begin = remark_end + _INT.size
    end = begin + _bounded(ext_size, data, begin)
    return RemotingCommand(
        _WHOLE_CODES.get(code, code),
        opaque,
        flag,
        data[BINARY_HEAD.size : remark_end].decode("utf-8", "replace") if remark_size else None,
        _decode_entries(data[begin:end]) if ext_size else None,
        body,
        SerializeType.ROCKETMQ,
        LanguageCode(language) if language <= max(LanguageCode) else LanguageCode.OTHER,
        version,
    )


def _decode_entries(data: bytes) -> dict[str, str]:
    """The fields of a binary header; a name or a value without bytes is none, as for RocketMQ."""
    fields: dict[str, str] = {}
    position = 0
    try:
        while position < len(data):
            (size,) = _SHORT.unpack_from(data, position)
            position += _SHORT.size
            end = position + _bounded(size, data, position)
            name = data[position:end].decode("utf-8", "replace")
            (size,) = _INT.unpack_from(data, end)
            position = end + _INT.size
            end = position + _bounded(size, data, position)
            if len(fields) > MAX_FIELDS:
                raise RemotingDecodeError(f"a header of more than {MAX_FIELDS} fields")
            if name and size:
                fields[name] = data[position:end].decode("utf-8", "replace")
            position = end
    except struct.error:
        raise RemotingDecodeError(f"the header's fields end after {len(data)} bytes, too early") from None
    return fields


def _bounded(size: int, data: bytes, begin: int) -> int:
    """A size that was read from a header, if as many bytes follow."""
    if not 0 <= size <= len(data) - begin:
        raise RemotingDecodeError(f"a text of {size} bytes in the header, {len(data) - begin} bytes before its end")
    return size
