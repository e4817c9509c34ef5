"""Limits of request bodies: RocketMQ takes any that fits into a frame, and its threads hold up nobody.

Here one loop takes them all: a body is parsed there if it is small, else beside the loop, and there are few codes whose
bodies may be large. A body of 1 MiB has 7,000 acks or 10,000 queues of one client.
"""

from __future__ import annotations

from reput.formats.remoting import MAX_FRAME_SIZE
from reput.remoting.codes import RequestCode as Code

#: Bytes of a body that is parsed in the loop at the most, but for what operators send.
LARGE_BODY = 2 << 10
_MOST = 32 << 10
_MOST_OF = {
    # Messages, which are not parsed: the store knows how large they may be.
    **dict.fromkeys(
        (
            Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE,
            Code.SEND_REPLY_MESSAGE_V2,
        ),
        MAX_FRAME_SIZE,
    ),
    Code.REGISTER_BROKER: MAX_FRAME_SIZE,
    **dict.fromkeys(
        (
            Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.BATCH_ACK_MESSAGE,
            Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        ),
        1 << 20,
    ),
}  # fmt: skip


def most_body(code: int) -> int:
    """Bytes that the body of a request of this code has at the most."""
    return _MOST_OF.get(code, _MOST)  # type: ignore[call-overload, no-any-return]
