"""TimerCopy: how far a master's timers are, kept for the day on which the slave becomes master."""

from __future__ import annotations

from reput.files import FileLayer
from reput.formats.timer_checkpoint import TimerCheckpoint
from reput.store.recovery.log_state import without_units


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
        without_units(self._root, self._files, master, end)
        self._written = master.last_read_time_ms, end
