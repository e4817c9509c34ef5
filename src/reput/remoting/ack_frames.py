"""Frames of acks and of their answers, without the general way through JSON: a group acks each message that it pops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from reput.errors import RemotingCommandError, RemotingDecodeError
from reput.formats.java import INT32_MAX
from reput.formats.remoting import FRAME_HEAD, LENGTH_SIZE
from reput.remoting.codes import VERSION, RequestCode
from reput.remoting.command import decode_command
from reput.remoting.extra_info import ExtraInfo
from reput.remoting.header import decode_header
from reput.remoting.pop_headers import AckMessageRequestHeader, PopKey

#: How most clients begin the header of an ack.
ACK_BEGIN = b'{"code":%d,' % RequestCode.ACK_MESSAGE
#: In what the acks of a group from one queue differ. A header with an escape is not looked at.
_VALUES = re.compile(rb'("offset":"|"extraInfo":"|"opaque":)([^"\\,}\x00-\x1f]{1,400})')
_PARTS = 10
_NAMES = [b'"extraInfo":"', b'"offset":"', b'"opaque":']
#: A handle: start offset, pop time, invisible time, revive queue, words that the handles of a queue share, a last word.
_HANDLE = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,18}) ([0-9]{1,10})( [^ ]* [^ ]* (?:.* )?)[0-9]+")
#: Values that prove a form: extraInfo, offset and opaque.
_PROOF = [b"1000000001", b"1000000002", b"1000000003"]
#: Forms that are kept, and the bytes of the longest header.
_MOST_FORMS, _LONGEST_HEADER = 4096, 1024
_MOST_DIGITS, _ZERO = 18, ord("0")

#: The header of the answer to an ack that was taken, around opaque, as `encode_command` writes it.
TAKEN = (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":',
    b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
)


@dataclass(frozen=True, slots=True, eq=False)
class AckHeaderForm:
    """Common parts of the acks of one group from one queue.

    Attributes:
        queue: What they ack messages of.
        broker_name: Of the broker that popped.
        texts: A header around its seven numbers.
        numbers: Which of these is start offset, pop time, invisible time, revive queue, offset, opaque; one is none of
            these: the handle's last word.
    """

    queue: PopKey
    broker_name: str
    texts: tuple[bytes, ...]
    numbers: tuple[int, ...]


class AckFrame(NamedTuple):
    """A request that acks one message by its queue offset and the handle `info`."""

    form: AckHeaderForm
    info: ExtraInfo
    offset: int
    opaque: int


class _Header(NamedTuple):
    """A header but for its three values, and where these are: extraInfo, offset and opaque."""

    queue: PopKey
    places: tuple[int, int, int]


def decode_plain_ack(frame: memoryview) -> AckFrame | None:
    """The ack of a whole frame; None if it is none, or `decode_command` has to look at it.

    The first ack of a group from a queue takes as long as there, the next ones a tenth. They have the same header but
    for offset, opaque, and the numbers of extraInfo, the handle: what is left of it without these values is its form. A
    new form is decoded with three values that it has nowhere else, which proves where each stands.
    """
    size = len(frame) - FRAME_HEAD.size
    if size > _LONGEST_HEADER or int.from_bytes(frame[LENGTH_SIZE : FRAME_HEAD.size]) != size:
        return None  # it is binary, or has a body
    parts = _VALUES.split(bytes(frame[FRAME_HEAD.size :]))  # text, name, value, text, name, value, ..., text
    if len(parts) != _PARTS:
        return None
    values = parts[2::3]
    del parts[2::3]
    header = _header(tuple(parts))
    if header is None:
        return None
    info_at, offset_at, opaque_at = header.places
    digits, number, handle = values[offset_at], values[opaque_at], _HANDLE.fullmatch(values[info_at])
    if handle is None or not (digits.isdigit() and number.isdigit() and max(len(digits), len(number)) <= _MOST_DIGITS):
        return None
    *words, rest = handle.groups()
    opaque, (start, pop_time, invisible_time, revive_qid) = int(number), map(int, words)
    if max(opaque, revive_qid) > INT32_MAX or (number[0] == _ZERO and len(number) > 1):  # the latter is no JSON
        return None
    form = _form(tuple(parts), rest)
    if form is None:
        return None
    return AckFrame(form, ExtraInfo(start, pop_time, invisible_time, revive_qid, form.broker_name), int(digits), opaque)


@lru_cache(_MOST_FORMS)
def _form(texts: tuple[bytes, ...], rest: bytes) -> AckHeaderForm | None:
    """The form with these texts around its values, and this one behind the first four words of its handle."""
    header = _header(texts)
    assert header is not None
    try:
        broker_name = rest.split(b" ")[2].decode()
    except UnicodeDecodeError:
        return None
    info_at, offset_at, opaque_at = header.places
    around = [texts[0] + texts[1], texts[2] + texts[3], texts[4] + texts[5], texts[6]]
    in_handle = [b" ", b" ", b" ", rest]
    words = range(info_at, info_at + len(in_handle))
    after = len(in_handle)  # what stands behind the handle comes after so many more numbers
    places = (at + after if at > info_at else at for at in (offset_at, opaque_at))
    return AckHeaderForm(
        header.queue, broker_name, (*around[: info_at + 1], *in_handle, *around[info_at + 1 :]), (*words, *places)
    )


@lru_cache(_MOST_FORMS)
def _header(texts: tuple[bytes, ...]) -> _Header | None:
    """The header with these texts around its values; None if it is no plain ack."""
    around, names = b"".join(texts), list(texts[1::2])
    if b"\\" in around or sorted(names) != _NAMES or any(value in around for value in _PROOF):
        return None
    values = [_PROOF[_NAMES.index(name)] for name in names]
    header = b"".join([part for three in zip(texts[::2], names, values, strict=False) for part in three]) + texts[-1]
    try:
        command = decode_command(FRAME_HEAD.pack(LENGTH_SIZE + len(header), len(header)) + header)
        ack = decode_header(AckMessageRequestHeader, command.ext_fields)
    except (RemotingDecodeError, RemotingCommandError):
        return None
    if (command.code, command.flag) != (RequestCode.ACK_MESSAGE, 0):
        return None
    if [ack.extra_info.encode(), b"%d" % ack.offset, b"%d" % command.opaque] != _PROOF:
        return None
    queue = PopKey(ack.topic, ack.consumer_group, ack.queue_id)
    extra_info_at, offset_at, opaque_at = (names.index(name) for name in _NAMES)
    return _Header(queue, (extra_info_at, offset_at, opaque_at))
