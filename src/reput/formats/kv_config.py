"""`kvConfig.json` of a name server (`KVConfigSerializeWrapper`): values by namespace and key (docs/namesrv.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reput.formats.fastjson import decode_fastjson
from reput.formats.java_bean import decode_bean

#: Below `config` of the store whose broker has a name server of its own.
KV_CONFIG_FILE = "kvConfig.json"
#: Values by namespace and key.
KVConfigTable = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Content:
    config_table: KVConfigTable = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)


def encode_kv_config(table: KVConfigTable) -> bytes:
    """Bytes of the file, on one line as RocketMQ writes it."""
    return json.dumps({"configTable": table}, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_kv_config(data: bytes) -> KVConfigTable:
    """The values of a file's bytes.

    Raises CorruptMetadataError (path '') if the bytes are no JSON, or hold anything but texts.
    """
    return decode_bean(_Content, decode_fastjson(data)).config_table
