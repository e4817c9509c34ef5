"""Streams of frames that send messages, drawn by a seed: plain ones, and odd ones of every kind between them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from reput import Message
from reput.formats.message_batch import encode_batch
from reput.formats.remoting import FRAME_HEAD, ONE_WAY_FLAG
from reput.remoting.codes import RequestCode, SerializeType
from reput.remoting.command import RemotingCommand, encode_command
from reput.remoting.send_headers import V2_NAMES

#: (topic, queues) of the topics that a stream sends to.
TOPICS = (("orders", 4), ("payments", 2))
_ODD_PROPERTIES = (
    *(
        "DELAY\x01+1\x02",
        "TIMER_DELAY_MS\x01-5\x02",
        "TIMER_DELAY_MS\x011000\x02REAL_TOPIC\x01t\x02",
        "TIMER_DELAY_SEC\x0110\x02TIMER_DEL_UNIQKEY\x01orders+u\x02",
        "DELAY\x0101\x02",
        "DELAY\x012\x02REAL_QID\x017\x02",
        "x\x01\x02",
        "\x02",
        "TRAN_MSG\x01false\x02",
        "CLUSTER\x01c\x02",
        "KEYS\x01twice\x02",
        "no-value",
        "INNER_NUM\x012\x02",
    ),
)
#: What lets a message wait: levels, and times that are soon, long ago, in the slot that has begun, too far away.
_WAITS = {
    "DELAY": ("0", "1", "3", "18", "99"),
    "TIMER_DELAY_SEC": ("0", "1", "60", "90000000"),
    "TIMER_DELAY_MS": ("1", "60000", "1700"),
    "TIMER_DELIVER_MS": ("1700000060000", "1600000000000", "1700000000124", "1", "9" * 18),
}
_ODD_FIELDS = (
    *(("e", "7"), ("e", "-1"), ("e", "x"), ("e", "+1"), ("g", "9" * 19), ("f", "4"), ("b", "unknown")),
    ("h", "5000000000"),
)


def send_stream(seed: int, frames: int) -> Iterator[bytes]:
    """Frames of a client that nobody would write by hand."""
    rng = random.Random(seed)
    for opaque in range(frames):
        yield _frame(rng, opaque)


def _frame(rng: random.Random, opaque: int) -> bytes:
    if rng.random() < 0.05:
        return encode_command(
            RemotingCommand(RequestCode.GET_MAX_OFFSET, opaque, ext_fields={"topic": "orders", "queueId": "0"})
        )
    code, body = RequestCode.SEND_MESSAGE_V2, rng.randbytes(rng.choice([1, 10, 128, 3000]))
    fields = _fields(rng, opaque)
    if rng.random() < 0.2:
        messages = [Message("orders", rng.randbytes(20), tags="x") for _ in range(rng.randrange(1, 9))]
        code, body, fields["m"] = RequestCode.SEND_BATCH_MESSAGE, encode_batch(messages), "true"
    if rng.random() < 0.05:
        fields.pop(rng.choice(list(fields)))
    if rng.random() < 0.05:
        fields |= (rng.choice(_ODD_FIELDS),)
    if rng.random() < 0.05:
        fields["i"] = fields.get("i", "") + rng.choice(_ODD_PROPERTIES)
    if rng.random() < 0.2:
        code, fields = RequestCode.SEND_MESSAGE, {V2_NAMES[name]: value for name, value in fields.items()}
    flag = ONE_WAY_FLAG if rng.random() < 0.2 else 0
    kind = rng.choice(list(SerializeType))
    command = RemotingCommand(code, opaque, flag, ext_fields=fields, body=body, serialize_type=kind)
    return _as_node_writes_it(rng, command) if rng.random() < 0.2 else encode_command(command)


def _fields(rng: random.Random, opaque: int) -> dict[str, str]:
    topic, queues = rng.choice(TOPICS)
    pairs = [("KEYS", f"k{opaque}"), ("TAGS", "a"), ("UNIQ_KEY", f"{opaque:032X}"), ("WAIT", "true")]
    pairs += [("名", "日本"), ("y", 'z\\q"t\n')]
    chosen = rng.sample(pairs, rng.randrange(len(pairs)))
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
        name, values = rng.choice(list(_WAITS.items()))
        chosen.insert(rng.randrange(len(chosen) + 1), (name, rng.choice(values)))
    properties = "".join(f"{name}\x01{value}\x02" for name, value in chosen)
    if rng.random() < 0.3:
        properties = properties.removesuffix("\x02")
    return {
        "a": "group", "b": topic, "c": "TBW102", "d": "4", "e": str(rng.randrange(queues)),
        "f": rng.choice(["0", "1", "769"]), "g": str(1_700_000_000_000 + opaque), "h": str(rng.choice([0, -1, 3])),
        "i": properties, "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip


def _as_node_writes_it(rng: random.Random, command: RemotingCommand) -> bytes:
    """JSON with numbers and booleans, other orders of members, perhaps with blanks."""
    fields = {name: _plain(value) for name, value in (command.ext_fields or {}).items()}
    members = {
        "code": int(command.code), "language": "JAVA", "opaque": command.opaque, "flag": command.flag, "version": 121,
        "extFields": fields,
    }  # fmt: skip
    separators = (",", ":") if rng.random() < 0.7 else (", ", ": ")
    header = json.dumps(members, separators=separators, ensure_ascii=rng.random() < 0.5).encode()
    return FRAME_HEAD.pack(4 + len(header) + len(command.body), len(header)) + header + command.body


def _plain(value: str) -> object:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.removeprefix("-").isdigit() else value
