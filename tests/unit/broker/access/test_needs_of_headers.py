"""The gate asks for what the processor takes: needs and decoded header of each request, with all names at once."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from reput.formats.access import ResourceType
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.service.access.needs import needs_of
from tests.support.broker import serving_broker
from tests.support.header_table import every_field

#: Fields that name topics and groups of which nothing is asked, as by RocketMQ: templates, and who produces.
_NO_RIGHTS = {"default_topic", "producer_group"}
_UNKNOWN = 32_000


def named(header: Any) -> set[str]:
    """The topics and groups of a header."""
    return {
        getattr(header, one.name)
        for one in fields(header)
        if (one.name.endswith(("topic", "group", "group_name", "topic_list", "filter_groups")))
        and one.name not in _NO_RIGHTS
        and getattr(header, one.name) is not None
    }


@pytest.mark.parametrize("is_short_first", [False, True])
async def test_needs_are_the_topics_and_groups_of_the_header_that_the_processor_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_short_first: bool
) -> None:
    taken: list[Any] = []

    def decode(*arguments: Any, **more: Any) -> Any:
        taken.append(decode_header(*arguments, **more))
        return taken[-1]

    given, seen = every_field(), set()
    if is_short_first:
        given = dict(reversed(given.items()))
    async with serving_broker(tmp_path, authenticationMetadataProvider="local") as served:
        client = await served.client()
        for name, module in list(sys.modules.items()):
            if name.startswith(("reput.broker", "reput.remoting.send_headers")) and hasattr(module, "decode_header"):
                monkeypatch.setattr(module, "decode_header", decode)
        for code in RequestCode:
            taken.clear()
            # Not all are answered; when the one behind it is, its handler has begun.
            await client.begin_all([RemotingCommand(code, ext_fields=dict(given)), RemotingCommand(_UNKNOWN)])[1]
            headers = [one for one in taken if named(one)]
            needs = needs_of(code, given, b"{}", "c")
            if headers and needs is not None:
                seen.add(code)
                found = {one.name for one in needs if one.resource_type is not ResourceType.CLUSTER}
                assert found == {name for one in headers for name in named(one)}, code
    assert len(seen) > 40
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.END_TRANSACTION, RequestCode.POP_MESSAGE} <= seen
