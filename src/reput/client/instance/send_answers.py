"""SendAnswers: decodes answers to sends by the form of those before, which differ in four numbers (pure).

A broker's answer is `{"code":0,"extFields":{"msgId":"...","queueId":"3","queueOffset":"17",...},...,"opaque":5,...}`.
All else is as in its other answers. `decode_command` and `decode_header` take three times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from reput.errors import RemotingCommandError
from reput.formats.remoting import FRAME_HEAD, FRAME_HEAD_SIZE, LENGTH_SIZE, RESPONSE_FLAG
from reput.remoting.codes import LanguageCode, ResponseCode, SerializeType
from reput.remoting.command import RemotingCommand, decode_command
from reput.remoting.header import decode_header
from reput.remoting.send_headers import SendMessageResponseHeader

#: Forms that are known: one for each broker's version and region. Of a peer whose answers all differ, no more are made.
_MOST_FORMS = 8
#: The longest header that becomes a form.
_LONGEST_HEADER = 1024
#: What differs, and what it may be. Longer numbers are decoded, as they may be too large.
_FIELDS = {"msgId": "[0-9A-Za-z]{1,64}", "queueId": "[0-9]{1,9}", "queueOffset": "[0-9]{1,18}"}
_OPAQUE = "0|[1-9][0-9]{0,8}"


class _Form(NamedTuple):
    """Common parts of the answers of one form.

    Attributes:
        pattern: Of a whole header.
        groups: Numbers of the pattern's groups for `_FIELDS` and opaque.
        fields: The fields in their order; those that differ are of one answer.
        language, version: Of the sender.
    """

    pattern: re.Pattern[str]
    groups: tuple[int, int, int, int]
    fields: dict[str, str]
    language: LanguageCode
    version: int


class SendAnswers:
    """Decoder of the frames that a client gets; it learns the forms of its brokers' answers."""

    def __init__(self) -> None:
        self._forms: list[_Form] = []

    def decode(self, frame: memoryview) -> RemotingCommand:
        """The command of one whole frame; one of a known form has its `cached_header`. Raises as `decode_command`."""
        _, word = FRAME_HEAD.unpack_from(frame)
        if word != len(frame) - FRAME_HEAD_SIZE or word > _LONGEST_HEADER:  # no JSON, or a body
            return decode_command(frame)
        header = str(frame[FRAME_HEAD_SIZE:], "latin-1")
        for form in self._forms:
            match = form.pattern.fullmatch(header)
            if match is not None:
                return _answer(form, match)
        command = decode_command(frame)
        if len(self._forms) < _MOST_FORMS and (learned := _form_of(header, command)):
            self._forms.append(learned)
        return command


def _answer(form: _Form, match: re.Match[str]) -> RemotingCommand:
    msg_id, queue_id, queue_offset, opaque = match.group(*form.groups)
    fields = form.fields.copy()
    fields["msgId"], fields["queueId"], fields["queueOffset"] = msg_id, queue_id, queue_offset
    return RemotingCommand(
        0, int(opaque), RESPONSE_FLAG, None, fields, b"", SerializeType.JSON, form.language, form.version,
        SendMessageResponseHeader(msg_id, int(queue_id), int(queue_offset)),
    )  # fmt: skip


def _form_of(header: str, command: RemotingCommand) -> _Form | None:
    """The form of an answer; None if it is none to a send, or more of it may differ from send to send."""
    fields = command.ext_fields or {}
    is_plain = command.code == ResponseCode.SUCCESS and command.flag == RESPONSE_FLAG and command.remark is None
    if not is_plain or not header.isascii() or not _FIELDS.keys() <= fields.keys():
        return None
    try:
        known = decode_header(SendMessageResponseHeader, fields)
    except RemotingCommandError:
        return None
    if known != SendMessageResponseHeader(known.msg_id, known.queue_id, known.queue_offset):
        return None  # a transaction's, or with a handle
    places = [(f'"{name}":"', fields[name], '"', pattern) for name, pattern in _FIELDS.items()]
    places.append(('"opaque":', str(command.opaque), ",", _OPAQUE))
    # An answer to a batch ends here: it has an id for each message.
    if any(not re.fullmatch(pattern, value) or header.count(a + value + b) != 1 for a, value, b, pattern in places):
        return None
    begins = [header.index("".join(place[:3])) + len(place[0]) for place in places]
    others = ["1" if value == "0" else "0" for _, value, _, _ in places]
    whole = other = ""
    at = 0
    for begin, (_, value, _, pattern), instead in sorted(zip(begins, places, others, strict=True)):
        whole += f"{re.escape(header[at:begin])}({pattern})"
        other += header[at:begin] + instead
        at = begin + len(value)
    if not _is_decoded_as(other + header[at:], command, others):
        return None  # a name stands there twice, or in another object: another place counts
    first, second, third, last = (1 + sorted(begins).index(begin) for begin in begins)
    form = _Form(
        re.compile(whole + re.escape(header[at:])), (first, second, third, last), fields, command.language,
        command.version,
    )  # fmt: skip
    match = form.pattern.fullmatch(header)
    return form if match is not None and _answer(form, match) == command else None


def _is_decoded_as(header: str, command: RemotingCommand, values: Sequence[str]) -> bool:
    """Whether a header is one of a command with these values in the places of those that differ."""
    *texts, opaque = values
    fields = {**(command.ext_fields or {}), **dict(zip(_FIELDS, texts, strict=True))}
    data = header.encode()
    frame = FRAME_HEAD.pack(len(data) + FRAME_HEAD_SIZE - LENGTH_SIZE, len(data)) + data
    return decode_command(frame) == replace(command, opaque=int(opaque), ext_fields=fields)
