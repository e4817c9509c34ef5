"""What docs/admin.md says of mqadmin's commands is what broker and name server do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reput.remoting.codes import ResponseCode
from tests.support.broker import Client, serving_broker
from tests.support.mqadmin import commands_of_the_page


async def test_requests_of_commands_that_work_are_known_and_those_of_others_are_not(tmp_path: Path) -> None:
    rows = set(commands_of_the_page().values())
    assert {row.is_there for row in rows} == {True, False}

    async with serving_broker(tmp_path / "store") as served:
        host, _, port = served.controller.namesrv.rpartition(":")
        clients = [await served.client(), Client(*await asyncio.open_connection(host, int(port)))]
        for row in rows:
            for code in row.codes:
                answers = [(await client.ask(code)).code for client in clients]
                is_known = set(answers) != {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
                assert is_known == row.is_there, (code, answers)
