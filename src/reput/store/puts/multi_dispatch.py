"""Puts of messages that name light message queues: each gets the next offset of each (RocketMQ's LmqDispatch).

The offsets stand in the record's own properties, so its size depends on them. They are given out under the append
lock: in each light queue, as in the log, the earlier message has the smaller offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reput.errors import MessageIllegalError
from reput.formats.multi_dispatch import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    LMQ_PREFIX,
    LMQ_QUEUE_ID,
    SEPARATOR,
    split_names,
    takes_part,
)
from reput.formats.paths import topic_folder_name
from reput.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, decode_properties
from reput.formats.property_crc import PROPERTY_CRC_SIZE
from reput.formats.record_layout import MAX_PROPERTIES_SIZE, SysFlag
from reput.store.log.commit_log import CommitLog
from reput.store.log.pending import Append, PendingRecord
from reput.store.puts.append_record import append_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from reput.config.message_store import MessageStoreConfig

_MARK = INNER_MULTI_DISPATCH.encode() + NAME_VALUE_SEPARATOR
_OFFSETS = INNER_MULTI_QUEUE_OFFSET.encode() + NAME_VALUE_SEPARATOR
#: Digits of the greatest queue offset.
_MAX_DIGITS = 19
_NO_QUEUE = SysFlag.TRANSACTION_PREPARED  # set in the flags of prepared and of rolled back messages


class MultiDispatch:
    """Stands before a CommitLog if enableLmq and enableMultiDispatch are on.

    Args:
        log: The log; its `queue_offsets` count light queues too.
        config: The store's; its `max_message_size` bounds the whole record of a message that names light queues.
        record_size: Bytes of a record once it has its place.
    """

    def __init__(self, log: CommitLog, config: MessageStoreConfig, record_size: Callable[[PendingRecord], int]) -> None:
        self._log = log
        self._max_message_size = config.max_message_size
        self._any_topic = config.dispatch_rules.multi_dispatches_any_topic
        self._record_size = record_size
        self._reserved = PROPERTY_CRC_SIZE if config.enabled_append_prop_crc else 0

    def check(self, record: PendingRecord) -> list[str]:
        """The light queues that a record names; none for one that takes no part.

        The offsets count with their greatest width, so that it is known before what is accepted.

        Raises:
            MessageIllegalError: A name that is no light queue's, or too much with the offsets.
        """
        properties = record.properties
        if _MARK not in properties or record.sys_flag & _NO_QUEUE:
            return []
        if not (self._any_topic or takes_part(record.key[0])):
            return []
        value = decode_properties(properties).get(INNER_MULTI_DISPATCH, "")
        if not value or value.isspace():
            return []
        names = split_names(value)
        for name in names:
            if not name.startswith(LMQ_PREFIX) or topic_folder_name(name.encode()) is None:
                raise MessageIllegalError(
                    f"{INNER_MULTI_DISPATCH}={value!r}: {name!r} is no light queue: its name begins with {LMQ_PREFIX}, "
                    "has no slash, and at most 255 bytes"
                )
        widest = self._with_offsets(properties, [10**_MAX_DIGITS - 1] * len(names))
        if len(widest) > MAX_PROPERTIES_SIZE:
            raise MessageIllegalError(
                f"properties take up to {len(widest)} bytes with {INNER_MULTI_QUEUE_OFFSET}; "
                f"a record holds {MAX_PROPERTIES_SIZE}"
            )
        size = self._record_size(record._replace(properties=widest))
        if size > self._max_message_size:
            raise MessageIllegalError(
                f"the record takes up to {size} bytes; one that names light queues may take {self._max_message_size} "
                "(maxMessageSize)"
            )
        self._log.check_size(size)
        return names

    def append(self, record: PendingRecord, clock_s: float) -> Append:
        """Append one record, with the next offset of each light queue in it; errors of `check` too."""
        names = self.check(record)
        if not names:
            return append_record(self._log, record, clock_s, reserved=self._reserved)
        queues = [(name, LMQ_QUEUE_ID) for name in names]
        counters = self._log.queue_offsets

        def complete(record: PendingRecord, _: int) -> PendingRecord:
            return record._replace(properties=self._with_offsets(record.properties, list(map(counters.get, queues))))

        return append_record(
            self._log, record, clock_s, reserved=self._reserved, light_queues=queues, complete=complete
        )

    def _with_offsets(self, properties: bytes, offsets: list[int]) -> bytes:
        """The properties text with INNER_MULTI_QUEUE_OFFSET, in place of one that is there, before a CRC's bytes."""
        text = properties[: len(properties) - self._reserved]
        pairs = [pair for pair in text.split(PROPERTY_SEPARATOR) if pair and not pair.startswith(_OFFSETS)]
        value = SEPARATOR.join(map(str, offsets)).encode()
        pairs.append(_OFFSETS + value)
        return b"".join(pair + PROPERTY_SEPARATOR for pair in pairs) + bytes(self._reserved)
