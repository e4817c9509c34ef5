"""Compare `topics.json` with the topics that reput has recorded: the file has no checksum that shows a wrong bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from reput.counts import counted
from reput.errors import CorruptMetadataError
from reput.files import DISK
from reput.formats.fastjson import decode_fastjson
from reput.formats.java_bean import decode_bean
from reput.formats.metadata import Topics
from reput.formats.shutdown import as_json, recorded_topics
from reput.jobs.findings import Finding
from reput.log.metadata import metadata_path, read_shutdown

_CODE = "config-changed"


def topic_findings(root: str) -> Iterator[Finding]:
    """Findings of recorded topics with other settings in `topics.json`, or missing there, in the same data version.

    Every change by RocketMQ raises the data version (`TopicConfigManager.updateDataVersion`). Without a change a broker
    writes the file anew, in its own order, with its system topics (`init`), and with members that only its version has
    (5.5.0: `liteTopicExpiration`). So only recorded topics are compared, member by member. An unknown member may be of
    another version, or a recorded member under a wrong name: then the recorded member is missing.
    """
    path, shutdown = metadata_path(root, Topics), read_shutdown(root, DISK)
    if shutdown is None or shutdown.topics is None:
        return
    data = DISK.read_bytes(path) if DISK.exists(path) else b""
    try:
        plain = decode_fastjson(data) if data else {}
        topics = decode_bean(Topics, plain)
    except CorruptMetadataError:
        return  # another finding reports it
    recorded = recorded_topics(shutdown, topics.data_version if data else None)
    if recorded is None:
        return
    if not data:
        expected_topics = counted(len(recorded.topic_config_table), "topic")
        yield Finding(_CODE, path, f"expected {expected_topics}, found no file, or nothing in it")
        return
    expected, found = as_json(recorded.topic_config_table), as_json(topics.topic_config_table)
    written = {str(name): members for name, members in plain.get("topicConfigTable", {}).items()}
    for name, members in expected.items():
        text = "expected this topic, found none of its name"
        if name in found:
            text = _difference(members, found[name], written[name])
        if text:
            yield Finding(_CODE, path, f"{name}: {text}", topic=name)


def _difference(expected: Mapping[str, Any], found: Mapping[str, Any], written: Mapping[Any, Any]) -> str:
    """Text of a topic's differences; empty without any. `found` has defaults for members that are not `written`."""
    texts = [
        f"{name}: expected {json.dumps(value)}, found {json.dumps(found.get(name))}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    missing, unknown = sorted(expected.keys() - written.keys()), sorted(found.keys() - expected.keys())
    if not texts and missing and unknown:
        texts = [f"expected {', '.join(missing)}, found {', '.join(unknown)}"]
    return "; ".join(texts)


def with_recorded_topics(root: str, topics: Topics) -> Topics:
    """Topics with the recorded topics in their recorded form, and the recorded data version.

    A recorded topic under a wrong name is left out.
    """
    recorded = recorded_topics(read_shutdown(root, DISK))
    if recorded is None:
        return topics
    table = recorded.topic_config_table
    others = {name: topic for name, topic in topics.topic_config_table.items() if topic.topic_name not in table}
    return replace(topics, topic_config_table=others | dict(table), data_version=recorded.data_version)
