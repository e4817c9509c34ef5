"""A text of a request that is no UTF-8: a lone surrogate, which JSON can carry. It is refused, or nothing has it."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from reput.formats.java import INT64_MAX
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import header_fields
from reput.remoting.send_headers import V2_NAMES
from tests.support.broker import LONG_MS, Client, send_command, serving_broker
from tests.support.frames import frame_of
from tests.support.header_table import every_field, header_classes

#: All fields of all requests, as far as they can be meant together.
FIELDS = every_field(
    topic="orders",
    group="g",
    consumerGroup="g",
    producerGroup="p",
    maxNum="1",
    maxMsgNums="1",
    invisibleTime="10000",
    endTimestamp=str(INT64_MAX),
    key="k",
    expType="TAG",
    expressionType="TAG",
)
TEXTS = sorted({one.wire_name for kind in header_classes() for one in header_fields(kind) if one.kind is str})
KEYS = {"recallMessageEnable": True, "authenticationMetadataProvider": "local", "enablePropertyFilter": True}


def begin_all(client: Client, commands: list[RemotingCommand]) -> list[asyncio.Future[RemotingCommand]]:
    """Send requests whose headers have the texts as they are: the encoder writes question marks."""
    written = client.writer.write
    try:
        client.writer.write = lambda data: None  # type: ignore[assignment,method-assign]
        answers = client.begin_all(commands)
    finally:
        client.writer.write = written  # type: ignore[method-assign]
    headers = [{"code": one.code, "opaque": one.opaque, "extFields": one.ext_fields} for one in commands]
    written(b"".join(frame_of(json.dumps(header).encode()) for header in headers))
    return answers


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param([TEXTS, ["topic"], ["group", "consumerGroup"], ["key"]], id="few"),
        pytest.param([[name] for name in TEXTS], id="each", marks=pytest.mark.slow),
    ],
)
async def test_no_text_of_any_request_is_a_fault_of_broker_or_name_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cases: list[list[str]]
) -> None:
    """What a handler does not expect is SYSTEM_ERROR, and a trace in the log."""
    caplog.set_level(logging.WARNING)
    async with serving_broker(tmp_path / "store", **KEYS) as served:
        first = await served.client()
        (sent,) = first.begin_all([send_command("orders", properties={"KEYS": "k", "UNIQ_KEY": "u"})])
        assert (await sent).code == 0
        for address in (served.controller.address, served.controller.namesrv):
            for code in RequestCode:
                host, _, port = address.rpartition(":")
                client = Client(*await asyncio.open_connection(host, int(port)))
                odd = [
                    {one: "\ud800" if V2_NAMES.get(one, one) in names else text for one, text in FIELDS.items()}
                    for names in cases
                ]
                answers = begin_all(client, [RemotingCommand(code, ext_fields=fields) for fields in odd])
                if code == RequestCode.END_TRANSACTION:  # of what nobody has begun: no answer, as of RocketMQ
                    await client.round_trip()
                else:
                    await asyncio.wait_for(asyncio.gather(*answers), LONG_MS / 1000)
                assert [one.getMessage() for one in caplog.records if one.exc_info] == [], code
                await client.leave()


@pytest.mark.parametrize("odd", [{"key": "\ud800"}, {"topic": "\udfff"}, {"topic": "\ud800" * 600, "key": "a\ud800"}])
async def test_nothing_has_a_topic_or_a_key_with_a_lone_surrogate(tmp_path: Path, odd: dict[str, str]) -> None:
    async with serving_broker(tmp_path / "store") as served:
        client = await served.client()
        (sent,) = client.begin_all([send_command("orders", properties={"KEYS": "k a?"})])
        assert (await sent).code == 0
        for fields, code in ((FIELDS, 0), (FIELDS | odd, ResponseCode.QUERY_NOT_FOUND)):
            (answer,) = begin_all(client, [RemotingCommand(RequestCode.QUERY_MESSAGE, ext_fields=fields)])
            assert (await answer).code == code
