"""Archives for tests: one log file alone becomes one, and comes back; and stores with sealed files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import reput
from reput.files import DISK
from reput.formats.archive import ArchivedFile
from reput.jobs.archive.write_file import WriteFile
from reput.jobs.archived_files import restore_file
from reput.log.directory import LogFile
from tests.support.faulty_files import FaultyFiles
from tests.support.invariants import SMALL

FILE_SIZE = 8192
OPTIONS: dict[str, Any] = SMALL | {"mapped_file_size_commit_log": FILE_SIZE}


def there_and_back(data: bytes, start_offset: int, folder: Path) -> ArchivedFile:
    """Archive the bytes as a log file, and restore them; returns the manifest. The bytes are the same, or it raises."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{start_offset:020}"
    path.write_bytes(data)
    archive = folder / "archive"
    archive.mkdir()
    written = WriteFile(str(archive), DISK)(LogFile(str(path), start_offset, len(data)))
    restored = folder / "restored"
    restore_file(str(archive), written.archived, str(restored), DISK)
    assert restored.read_bytes() == data
    return written.archived


def store_with_sealed_files(path: Path, messages: int = 130) -> Path:
    """A closed store whose log has several files, with topics and offsets of a group."""
    with reput.MessageStore.open(path, files=FaultyFiles(), **OPTIONS) as store:
        store.update_topic(reput.TopicConfig("orders"))
        for n in range(messages):
            message = reput.Message(
                "orders", b"%d " % n * (n % 90), tags=f"t{n % 3}", keys=(f"k-{n}", "all"), properties={"a": f"{n}"}
            )
            store.put_message(message, queue_id=n % 4)
    (path / "config/consumerOffset.json").write_bytes(b'{\n\t"offsetTable":{"orders@g":{0:999,1:7\n\t\t}\n\t}\n}')
    return path


def log_files(store: Path) -> dict[str, bytes]:
    """Bytes of the log files, by name."""
    return {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}
