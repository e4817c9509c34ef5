"""Tags that consumers cannot ask for: sent, as Java sends them, and told once."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reput.client import Message, Producer
from reput.client.producing.sent_tags import SentTags
from reput.remoting.subscription_data import build_subscription_data, is_tag_to_select
from tests.support.clients import cluster, stored

TAGS = ["paid", "a||b", "||", "a|b", " a", "a ", "a b", "*", "**", "größe", "\ta"]


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_can_be_asked_for_if_it_is_the_one_that_its_text_means(tag: str) -> None:
    try:
        found = build_subscription_data("orders", tag).tags
    except ValueError:
        found = frozenset()
    assert is_tag_to_select(tag) == (found == {tag})


def test_the_first_tag_that_nobody_can_ask_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tags = SentTags()
    with caplog.at_level(logging.WARNING, "reput.client"):
        tags.look_at([Message("orders", b"x"), Message("orders", b"x", tags="paid")])
        assert caplog.messages == []
        for _ in range(3):
            tags.look_at([Message("orders", b"x", tags="paid"), Message("orders", b"x", tags="a||b")])
    (line,) = caplog.messages
    assert line.startswith("no consumer can ask for this tag: || separates tags")
    assert line.endswith("topic=orders tags=a||b")


@pytest.mark.parametrize("way", ["send", "send_batch", "send_oneway", "auto_batch"])
async def test_each_way_to_send_tells_and_sends(way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "reput.client"):
        message = Message("orders", b"x", tags="a||b")
        async with cluster(tmp_path, "a") as (namesrv, brokers):
            async with Producer(namesrv.address, group="p", auto_batch=way == "auto_batch") as producer:
                if way == "send_batch":
                    await producer.send_batch([message])
                elif way == "send_oneway":
                    await producer.send_oneway(message)
                    await producer.send(Message("orders", b"y"))
                else:
                    await producer.send(message)
            found = await stored(brokers["a"], "orders", queues=4)
            assert [one.tags for one in found if one.body == b"x"] == ["a||b"]
    assert [line.partition(":")[0] for line in caplog.messages] == ["no consumer can ask for this tag"]
