"""Frames of pulls and of their answers, without the general way through JSON: a broker takes thousands a second."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

from reput.errors import RemotingCommandError, RemotingDecodeError
from reput.formats.java import INT32_MAX
from reput.formats.remoting import FRAME_HEAD, LENGTH_SIZE
from reput.remoting.codes import VERSION
from reput.remoting.command import RemotingCommand, decode_command
from reput.remoting.header import decode_header
from reput.remoting.pull_headers import PullMessageRequestHeader, PullMessageResponseHeader

#: The numbers in which the pulls of a consumer differ. A number of JSON begins with no zero, text may.
_NUMBERS = re.compile(rb'("(?:queueOffset":"|commitOffset":"|opaque":(?!0[0-9])))([0-9]{1,18})')
_OF_PULLS = b'"queueOffset":"'
_PARTS = 10
#: Numbers that prove a form; no header with escapes or with one of these has a known form.
_PROOF = [b"1000000001", b"1000000002", b"1000000003"]
#: Forms that a decoder knows, and the bytes of the longest header.
_MOST_FORMS, _LONGEST_HEADER = 4096, 1024
#: Pulls of other forms, for each known form, after which the known ones are forgotten.
_PASSED_OVER = 16
#: Where the two offsets stand in a header.
_QUEUE_OFFSET, _COMMIT_OFFSET = 3, 6

_FOUND = (
    '{"code":0,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d",'
    '"topicSysFlag":"%d","groupSysFlag":"%d"},"flag":1,"language":"JAVA","opaque":%d,"remark":"FOUND",'
    f'"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
).encode()


K = TypeVar("K")
F = TypeVar("F")


class KnownForms(dict[K, F | None]):
    """Forms of pulls that were learned; None of one that is to be taken in full.

    To learn a form takes as long as several pulls, so that many consumers in turn must not forget each other's forms.
    Where there is no room for another form its pulls are taken in full. All forms are forgotten only after many such
    pulls: some may be of consumers that are gone.

    Args:
        most: Forms that are known at once.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._passed_over = 0

    def may_learn(self, key: K) -> bool:
        """Whether a form is to be learned: it is known and has changed, or there is room."""
        if len(self) < self._most or key in self:
            return True
        self._passed_over += 1
        if self._passed_over < _PASSED_OVER * self._most:
            return False
        self._passed_over = 0
        self.clear()
        return True


@dataclass(slots=True)
class PullForm:
    """A pull that was decoded once, and which of its three numbers are queueOffset, commitOffset and opaque."""

    command: RemotingCommand
    fields: dict[str, str]
    header: list[Any]
    places: tuple[int, int, int]


class PullDecoder:
    """Decodes pulls: the first one of a consumer as `decode_command` does, the next ones in a third of the time.

    The pulls of a consumer from one queue have the same header but for queueOffset, commitOffset and opaque. What is
    left of a header without the digits of these numbers is its form. A new form is decoded with three numbers that it
    has nowhere else, which proves where each stands; a pull of a known form is the same command with other numbers.
    """

    def __init__(self) -> None:
        self._forms = KnownForms[tuple[bytes, ...], PullForm](_MOST_FORMS)

    def decode(self, frame: memoryview) -> RemotingCommand:
        """The command of a whole frame, as `decode_command` gives it; with its `cached_header` if its form is known.

        Raises RemotingDecodeError as `decode_command`.
        """
        size = len(frame) - FRAME_HEAD.size
        if size > _LONGEST_HEADER or int.from_bytes(frame[LENGTH_SIZE : FRAME_HEAD.size]) != size:
            return decode_command(frame)  # it is binary, or has a body
        header = bytes(frame[FRAME_HEAD.size :])
        if _OF_PULLS not in header:  # looking for three numbers takes as long as a third of the rest
            return decode_command(frame)
        parts = _NUMBERS.split(header)  # text, name, number, text, name, number, ..., text
        if len(parts) != _PARTS:
            return decode_command(frame)  # it is no pull
        numbers = parts[2::3]
        del parts[2::3]
        texts = tuple(parts)
        if texts not in self._forms:
            if self._forms.may_learn(texts):
                pieces = [b"".join(texts[at : at + 2]) for at in range(0, len(texts), 2)]
                self._forms[texts] = prove_form(pieces)
            return decode_command(frame)
        form = self._forms[texts]
        if form is None:
            return decode_command(frame)
        offset_at, commit_at, opaque_at = form.places
        opaque = int(numbers[opaque_at])
        if opaque > INT32_MAX:
            return decode_command(frame)
        fields, values, command = form.fields.copy(), form.header.copy(), form.command
        fields["queueOffset"] = offset = numbers[offset_at].decode()
        fields["commitOffset"] = commit_offset = numbers[commit_at].decode()
        values[_QUEUE_OFFSET], values[_COMMIT_OFFSET] = int(offset), int(commit_offset)
        return RemotingCommand(
            command.code, opaque, command.flag, command.remark, fields, b"", command.serialize_type, command.language,
            command.version, PullMessageRequestHeader(*values),
        )  # fmt: skip


def prove_form(texts: Sequence[bytes]) -> PullForm | None:
    """The form of the headers with these four texts around three numbers, if each number is one of the three."""
    around = b"".join(texts)
    if b"\\" in around or any(number in around for number in _PROOF):
        return None
    header = b"".join(map(b"".join, zip(texts, [*_PROOF, b""], strict=True)))
    try:
        command = decode_command(FRAME_HEAD.pack(LENGTH_SIZE + len(header), len(header)) + header)
        found = decode_header(PullMessageRequestHeader, command.ext_fields, is_fast=True)
    except (RemotingDecodeError, RemotingCommandError):
        return None
    numbers = [str(number).encode() for number in (found.queue_offset, found.commit_offset, command.opaque)]
    if sorted(numbers) != _PROOF:
        return None
    assert command.ext_fields is not None
    offset_at, commit_at, opaque_at = map(_PROOF.index, numbers)
    return PullForm(command, command.ext_fields, list(astuple(found)), (offset_at, commit_at, opaque_at))


def encode_found(opaque: int, header: PullMessageResponseHeader, records: bytes) -> bytes:
    """The frame of an answer with messages to the pull with this opaque, as `encode_command` writes it.

    records: with the header at most `MAX_FRAME_SIZE` bytes.
    """
    text = _FOUND % (
        header.suggest_which_broker_id, header.next_begin_offset, header.min_offset, header.max_offset,
        header.topic_sys_flag, header.group_sys_flag, opaque,
    )  # fmt: skip
    size = FRAME_HEAD.size + len(text) + len(records)
    return b"".join((FRAME_HEAD.pack(size - LENGTH_SIZE, len(text)), text, records))


def found_texts(suggested: int, topic_sys_flag: int, group_sys_flag: int) -> list[bytes]:
    """The five texts of `encode_found`'s header around nextBeginOffset, minOffset, maxOffset and opaque."""
    first, after, low, high, tail, between, opaque, last = _FOUND.split(b"%d")
    flags = b"%b%d%b%d%b" % (tail, topic_sys_flag, between, group_sys_flag, opaque)
    return [b"%b%d%b" % (first, suggested, after), low, high, flags, last]
