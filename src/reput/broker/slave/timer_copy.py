"""TimerCopy: how far a master's timers are, kept for the day on which the slave becomes master."""

from __future__ import annotations

from reput.files import FileLayer
from reput.formats.paths import TIMER_CHECK, TIMER_LOG, TIMER_WHEEL
from reput.formats.timer_checkpoint import FILE_SIZE, TimerCheckpoint, encode_timer_checkpoint


class TimerCopy:
    """Writes the slave's `config/timercheck`: no message has a unit here, and the master has delivered some.

    A promoted slave then gives a slot to each message of the queue that the master had not delivered
    (`TimerMessageStore.copied_to`).

    Args:
        root: The slave's store directory.
        files: The file layer.
    """

    def __init__(self, root: str, files: FileLayer) -> None:
        self._root, self._files = root, files
        self._written = (-1, -1)

    def write(self, master: TimerCheckpoint, max_offset: int) -> None:
        """Keep the master's checkpoint, durably; waits for the disk.

        Units of a life as master are removed: they may be of records that the log does not have any more.

        Args:
            master: Its checkpoint.
            max_offset: The end of the slave's queue of messages with a time.
        """
        end = min(master.master_timer_queue_offset, max_offset)
        if (master.last_read_time_ms, end) == self._written:
            return
        for name in (TIMER_LOG, TIMER_WHEEL):
            path = f"{self._root}/{name}"
            if self._files.exists(path):
                remove = self._files.remove_tree if self._files.is_directory(path) else self._files.unlink
                remove(path)
        kept = master._replace(last_timer_log_flush_pos=0, last_timer_queue_offset=0, master_timer_queue_offset=end)
        self._files.make_directories(f"{self._root}/{TIMER_CHECK}".rpartition("/")[0])
        self._files.write_atomically(
            f"{self._root}/{TIMER_CHECK}", encode_timer_checkpoint(kept).ljust(FILE_SIZE, b"\0")
        )
        self._written = master.last_read_time_ms, end
