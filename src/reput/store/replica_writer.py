"""ReplicaWriter: appends the bytes of a master's log to a store, each record proven before anybody can read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt

from reput.config.message_store import MessageStoreConfig
from reput.errors import CorruptRecordError, StoreStateError
from reput.formats.record_layout import BLANK_SIZE, MAGIC_CODE, MagicCode
from reput.kernels.records.columns import RecordColumns, RecordStatus, ScanStop
from reput.kernels.records.record_scan import RecordScanner, ScanLevel
from reput.store.dispatch.check import check_queue_offsets
from reput.store.writer_services import WriterServices

_MAX_ROWS = 65_536
_BLANK_MAGIC = int(MagicCode.BLANK).to_bytes(4, "big", signed=True)
_BAD = RecordStatus.BAD_BODY_CRC | RecordStatus.BAD_PROPERTY_CRC
_STOPS = {
    ScanStop.BAD_MAGIC: "neither a message nor a blank record begins here",
    ScanStop.BAD_SIZE: "the record's lengths do not add up",
    ScanStop.OFFSET_MISMATCH: "the record says that it lies at another offset",
}


class ReplicaWriter:
    """Appends a master's bytes at the end of a store's log. `MessageStore.replica_writer` makes one; for one thread.

    A record becomes readable, and is dispatched, when all of it has come and has proven itself: lengths, own offset,
    CRC of the body, and of the whole record, if it has one or forceVerifyPropCRC asks for it. Counters of queues do
    not move: a store that follows takes no puts, and the start of a promoted one finds the counters in its log.

    Args:
        writer: Of the store.
        on_unknown_topic: Called before an inner batch of a topic that the store's `config/topics.json` does not have:
            the topic's settings say which kind of queues its records are dispatched to.

    Attributes:
        unknown_topics: Topics of appended records that `config/topics.json` did not have then; the owner clears it.
    """

    def __init__(self, writer: WriterServices, on_unknown_topic: Callable[[], None] | None) -> None:
        self._writer = writer
        self._on_unknown_topic = on_unknown_topic
        self._log = writer.parts.log
        self.unknown_topics: set[str] = set()
        self._scanner = RecordScanner(_MAX_ROWS, level=ScanLevel.QUEUES)
        self._require_property_crc = writer.reader.config.force_verify_prop_crc
        #: Bytes of a blank record that are still to come.
        self._blank_left = 0

    @property
    def end_offset(self) -> int:
        """Commit log offset of the next byte to append."""
        return self._log.max_offset

    @property
    def is_empty(self) -> bool:
        """Whether the log has no file yet."""
        return not self._log.queue.mapped_files

    @property
    def last_store_timestamp(self) -> int:
        """Store time of the last record (ms); 0 if there is none."""
        return self._log.last_store_timestamp

    def last_bytes(self, size: int) -> bytes:
        """The last bytes of the log, `size` of them."""
        begin, parts = self.end_offset - size, []
        while begin < self.end_offset:
            file = self._log.queue.find(begin)
            assert file is not None
            position = begin - file.start_offset
            end, mapping = min(file.size, self.end_offset - file.start_offset), file.mapping
            mapping.ask(position, end)
            parts.append(bytes(mapping.view[position:end]))
            begin += len(parts[-1])
        return b"".join(parts)

    def take_file_size(self, size: str) -> bool:
        """Let log files have the size of the master's, in bytes, if the log has none and the store was given no size.

        Returns whether they have it. Raises ConfigError for a text that is no size of a log file.
        """
        queue, reader = self._log.queue, self._writer.reader
        if size == str(queue.file_size):
            return True
        if not (self.is_empty and self._writer.may_size_log):
            return False
        reader.config = MessageStoreConfig.from_mapping({"mappedFileSizeCommitLog": size}, reader.config)
        queue.file_size = reader.config.mapped_file_size_commit_log
        reader.getting.log_files_have(queue.file_size)
        return True

    def copy_deleted_topics(self, topics: Collection[str], begins: Mapping[str, int]) -> None:
        """Delete topics that the master has no more; `begins`: its `Topics.begin_offset_table`."""
        self._writer.copy_deleted_topics(topics, begins)

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin at an offset, the start of a file.

        Raises:
            StoreStateError: The log is not empty, or no file of this store's size can start there.
        """
        size = self._log.queue.file_size
        if not offset and not self.is_empty and not self.end_offset:  # its one file is there, without a byte
            return
        if self._log.queue.mapped_files or offset % size:
            raise StoreStateError(
                f"{self._writer.reader.path}: a log cannot begin at {offset}: it has messages, or its files of {size} "
                "bytes (mappedFileSizeCommitLog) do not start there"
            )
        with self._writer.reput.between_passes:
            self._log.queue.first_offset = offset
            self._writer.reput.reput_from_offset = offset
        self._log.flushed_offset = offset

    def append(self, data: npt.NDArray[np.uint8]) -> int:
        """Append the whole records at the start of the bytes that follow the log's end.

        Args:
            data: uint8[n], contiguous, under 2 GiB: what the master has sent from `end_offset` on.

        Returns:
            How many bytes were taken; the others begin a record that is not complete.

        Raises:
            CorruptRecordError: Bytes that are no record of this place. What precedes them is appended.
            StoreBusyError, StoreFullError, StorePoisonedError, StoreStateError: As of `MessageStore.put_messages`.
        """
        taken = 0
        try:
            while taken < data.size:
                step = self._append_some(data[taken:])
                taken += step
                if not step:
                    break
        finally:
            if taken:
                self._writer.flush.nudge()
                self._writer.reput.wake_if_idle()
        return taken

    def flush(self) -> None:
        """Sync all that was appended; waits for the disk.

        Raises:
            StorePoisonedError: The sync failed, now or before.
        """
        sync = self._writer.flush.sync
        with sync.lock:
            sync.run()

    def _append_some(self, data: npt.NDArray[np.uint8]) -> int:
        """Append what is of one file, and of one scan."""
        begin, size = self.end_offset, self._log.queue.file_size
        data = data[: size - begin % size]
        if self._blank_left:
            return self._append_blank(data[: self._blank_left])
        columns = self._scanner.scan(data, begin, check_crc=True, require_property_crc=self._require_property_crc)
        good = self._proven(columns)
        end = columns.next_offset - begin
        if good < columns.rows:
            end = int(columns["position"][good])
        if self._on_unknown_topic is not None and self._writer.parts.queues.types.undeclared(columns):
            self._on_unknown_topic()
        if end:
            self._log.append_copies(data[:end].data, int(columns["store_timestamp"][good - 1]))
            self._note_unknown_topics(columns)
        if good < columns.rows:
            raise self._damage(begin + end, "the body, or the record, does not fit its CRC")
        if data[end + MAGIC_CODE : end + BLANK_SIZE].tobytes() == _BLANK_MAGIC:
            return end + self._begin_blank(data[end:], begin + end)
        self._check_rest(columns, data[end:])
        return end

    def _proven(self, columns: RecordColumns) -> int:
        """Number of rows that dispatch takes."""
        check_queue_offsets(columns, columns.rows, self._path(columns.base_offset))
        bad = np.flatnonzero(columns["status"] & _BAD)
        return int(bad[0]) if bad.size else columns.rows

    def _note_unknown_topics(self, columns: RecordColumns) -> None:
        known = self._writer.parts.topics.topics.topic_config_table
        names = {topic.decode("utf-8", "replace") for topic, _ in columns.queues()}
        self.unknown_topics.update(name for name in names if name not in known)

    def _begin_blank(self, data: npt.NDArray[np.uint8], offset: int) -> int:
        """Append the header of a blank record, which must end where this store's file ends."""
        size = int.from_bytes(data[:4].tobytes(), "big")
        left = self._log.queue.file_size - offset % self._log.queue.file_size
        if size != left:
            raise self._damage(
                offset,
                f"a file of the master ends {size} bytes on, and this store's file {left} bytes on: its files have "
                f"another size than {self._log.queue.file_size} (mappedFileSizeCommitLog)",
            )
        self._log.append_copies(data[:BLANK_SIZE].data, 0)
        self._blank_left = size - BLANK_SIZE
        return BLANK_SIZE

    def _append_blank(self, data: npt.NDArray[np.uint8]) -> int:
        """Append zeros of a blank record."""
        if data.any():
            raise self._damage(self.end_offset, "bytes that are not zero in the blank record that fills the file")
        self._log.append_copies(data.data, 0)
        self._blank_left -= data.size
        return data.size

    def _check_rest(self, columns: RecordColumns, rest: npt.NDArray[np.uint8]) -> None:
        """Refuse the bytes after the last whole record if no further byte can make them one."""
        offset = columns.next_offset
        reason = _STOPS.get(columns.stop)
        if reason is None and rest.size >= 4 and columns.stop is ScanStop.END_OF_BUFFER:
            size = int.from_bytes(rest[:4].tobytes(), "big")
            if size > self._log.max_record_size - offset % self._log.queue.file_size:
                reason = f"a record of {size} bytes does not fit into its file"
        if reason is not None and rest.size >= 8:
            raise self._damage(offset, reason)

    def _damage(self, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            self._path(offset), offset, f"{reason}; the master sent it, and nothing of it was appended"
        )

    def _path(self, offset: int) -> str:
        return self._log.queue.path_of(offset)
