"""Which topics are looked at when one of them changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.broker.sends.kernel_topics import KernelTopics
from reput.formats.metadata import TopicConfig
from tests.support.broker import serving_broker, with_topic


async def test_a_change_of_topics_is_no_new_look_at_those_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    takes = KernelTopics._takes

    def told(topics: KernelTopics, config: TopicConfig) -> bool:
        looked_at.append(config.topic_name)
        return takes(topics, config)

    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        known = [f"topic-{number}" for number in range(5)]
        for topic in known * 2:
            assert (await client.send_message(topic)).code == 0
        monkeypatch.setattr(KernelTopics, "_takes", told)
        for topic in ("new", *known):
            assert (await client.send_message(topic)).code == 0
        assert {*looked_at} <= {"new"}
        await with_topic(client, "topic-0", 1)
        assert (await client.send_message("topic-0", queueId=3)).code != 0
