from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from reput.errors import ConfigError, CorruptMetadataError, StoreFullError
from reput.files.layer import FileLayer
from reput.formats.kv_config import encode_kv_config
from reput.namesrv.kv_config_manager import KVConfigManager


class WaitingFiles(FileLayer):
    """Writes wait until they may; then they fail, if they shall."""

    def __init__(self) -> None:
        self.begun, self.may_write = threading.Event(), threading.Event()
        self.error: Exception | None = None

    def write_atomically(self, path: str, data: Any) -> None:
        self.begun.set()
        self.may_write.wait(60)
        if self.error:
            raise self.error
        super().write_atomically(path, data)


def loaded(path: Path) -> KVConfigManager:
    manager = KVConfigManager(str(path))
    manager.load()
    return manager


async def test_values_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "kvConfig.json"

    manager = loaded(path)
    await manager.put("NS", "k", "v")
    await manager.put("NS", "Ключ", 'ä "中"')
    await manager.put("OTHER", "k", "w")
    await manager.put("NS", "k", "v2")
    await manager.delete("OTHER", "k")
    await manager.delete("OTHER", "unknown")
    again = loaded(path)
    assert again.get("NS", "k") == "v2"
    assert again.namespace("NS") == {"k": "v2", "Ключ": 'ä "中"'}
    assert again.namespace("OTHER") == {}
    assert again.namespace("unknown") is None
    assert again.get("unknown", "k") is None
    assert path.read_text() == '{"configTable":{"NS":{"k":"v2","Ключ":"ä \\"中\\""},"OTHER":{}}}'


async def test_a_value_is_answered_once_it_is_durable_and_the_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    files = WaitingFiles()
    manager = KVConfigManager(str(tmp_path / "kvConfig.json"), files)
    writing = [asyncio.create_task(manager.put("NS", key, "v")) for key in ("k1", "k2")]
    await asyncio.to_thread(files.begun.wait, 60)
    assert manager.get("NS", "k1") is None
    assert not any(task.done() for task in writing)
    files.may_write.set()
    await asyncio.gather(*writing)
    assert manager.namespace("NS") == {"k1": "v", "k2": "v"}


async def test_a_value_that_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    files = WaitingFiles()
    files.may_write.set()
    manager = KVConfigManager(str(tmp_path / "kvConfig.json"), files)
    await manager.put("NS", "k", "v")
    files.error = StoreFullError("full")
    with pytest.raises(StoreFullError):
        await manager.put("NS", "k", "w")
    with pytest.raises(StoreFullError):
        await manager.delete("NS", "k")
    assert manager.get("NS", "k") == "v"


def test_the_file_of_apache_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"t1":"broker-a:4;broker-b:4"},"NSX":{"a":"b"}}}')
    manager = loaded(path)
    assert manager.namespace("ORDER_TOPIC_CONFIG") == {"t1": "broker-a:4;broker-b:4"}


@pytest.mark.parametrize("content", ["", "{", '{"configTable":{"NS":1}}', '{"configTable":{"NS":{"k":[]}}}', "[1]"])
def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text(content)
    with pytest.raises(CorruptMetadataError, match=r"kvConfig\.json.*restore the file"):
        loaded(path)
    assert path.read_text() == content


async def test_a_file_is_bounded_and_values_of_a_larger_one_can_be_deleted(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    manager = loaded(path)
    await manager.put("NS", "k", "v" * (1 << 20))
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"kvConfig.json would have .* bytes: 4194304 at most; delete other values"):
        await manager.put("NS", "more", "v" * (3 << 20))
    assert (path.read_bytes(), manager.get("NS", "more")) == (before, None)

    path.write_bytes(encode_kv_config({"NS": dict.fromkeys(("a", "b", "c"), "v" * (3 << 20))}))
    manager = loaded(path)
    with pytest.raises(ConfigError, match="at most"):
        await manager.put("NS", "a", "")
    await manager.delete("NS", "b")
    await manager.delete("NS", "c")
    await manager.put("NS", "k", "v")
    assert loaded(path).namespace("NS") == {"a": "v" * (3 << 20), "k": "v"}
