"""Frames of acks and of their answers, without the general way through JSON: a group acks each message that it pops."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from reput.errors import RemotingCommandError, RemotingDecodeError
from reput.formats.java import INT32_MAX
from reput.formats.remoting import FRAME_HEAD, LENGTH_SIZE
from reput.remoting.codes import VERSION, RequestCode
from reput.remoting.command import decode_command
from reput.remoting.extra_info import ExtraInfo, decode_extra_info
from reput.remoting.header import decode_header
from reput.remoting.pop_headers import AckMessageRequestHeader, PopKey

#: How most clients begin the header of an ack.
ACK_BEGIN = b'{"code":%d,' % RequestCode.ACK_MESSAGE
#: In what the acks of a group from one queue differ. A header with an escape is not looked at.
_VALUES = re.compile(rb'("offset":"|"extraInfo":"|"opaque":)([^"\\,}\x00-\x1f]{1,400})')
_PARTS = 10
_NAMES = [b'"extraInfo":"', b'"offset":"', b'"opaque":']
#: Values that prove a form: extraInfo, offset and opaque.
_PROOF = [b"1000000001", b"1000000002", b"1000000003"]
#: Forms and handles that are kept, and the bytes of the longest header.
_MOST_FORMS, _MOST_HANDLES, _LONGEST_HEADER = 4096, 4096, 1024
_MOST_DIGITS, _ZERO = 18, ord("0")

#: The header of the answer to an ack that was taken, around opaque, as `encode_command` writes it.
TAKEN = (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":',
    b',"serializeTypeCurrentRPC":"JSON","version":%d}' % VERSION,
)


class AckFrame(NamedTuple):
    """A request that acks one message by its queue offset and the handle `info`.

    Attributes:
        texts: The header around its three numbers: offset, opaque, and the handle's last word. The acks of other
            messages with this handle have the same texts.
        numbers: Which of these is the offset, and which is opaque.
    """

    queue: PopKey
    info: ExtraInfo
    offset: int
    opaque: int
    texts: tuple[bytes, ...]
    numbers: tuple[int, int]


class _Form(NamedTuple):
    """A header but for its three values, and where these are: extraInfo, offset and opaque."""

    queue: PopKey
    places: tuple[int, int, int]


def decode_plain_ack(frame: memoryview) -> AckFrame | None:
    """The ack of a whole frame; None if it is none, or `decode_command` has to look at it.

    The first ack of a group from a queue takes as long as there, the next ones a tenth. They have the same header but
    for offset, extraInfo and opaque: what is left of it without these values is its form. A new form is decoded with
    three values that it has nowhere else, which proves where each stands. The handles of one pop's messages differ in
    the last word, the offset, which nobody reads.
    """
    size = len(frame) - FRAME_HEAD.size
    if size > _LONGEST_HEADER or int.from_bytes(frame[LENGTH_SIZE : FRAME_HEAD.size]) != size:
        return None  # it is binary, or has a body
    parts = _VALUES.split(bytes(frame[FRAME_HEAD.size :]))  # text, name, value, text, name, value, ..., text
    if len(parts) != _PARTS:
        return None
    values = parts[2::3]
    del parts[2::3]
    form = _form(tuple(parts))
    if form is None:
        return None
    queue, (info_at, offset_at, opaque_at) = form
    digits, number = values[offset_at], values[opaque_at]
    if not (digits.isdigit() and number.isdigit() and len(digits) <= _MOST_DIGITS and len(number) <= _MOST_DIGITS):
        return None
    opaque = int(number)
    if opaque > INT32_MAX or (number[0] == _ZERO and len(number) > 1):  # the latter is no JSON
        return None
    handle = values[info_at].rpartition(b" ")[0]
    info = _info(handle)
    if info is None:
        return None
    texts = [parts[0] + parts[1], parts[2] + parts[3], parts[4] + parts[5], parts[6]]
    texts[info_at] += handle + b" "
    return AckFrame(queue, info, int(digits), opaque, tuple(texts), (offset_at, opaque_at))


@lru_cache(_MOST_FORMS)
def _form(texts: tuple[bytes, ...]) -> _Form | None:
    """The form with these texts around its values; None if it is no plain ack."""
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
    return _Form(queue, (extra_info_at, offset_at, opaque_at))


@lru_cache(_MOST_HANDLES)
def _info(handle: bytes) -> ExtraInfo | None:
    """A handle without its last word; None if that leaves too little, or the words are not of their kinds."""
    try:
        return decode_extra_info(handle.decode())
    except (RemotingCommandError, UnicodeDecodeError):
        return None
