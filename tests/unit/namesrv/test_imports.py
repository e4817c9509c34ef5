"""A name server imports nothing of a store."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from reput.namesrv.name_server import NameServer
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.client import RemotingClient

async def main():
    server, client = NameServer(), RemotingClient()
    port = await server.start("127.0.0.1", 0)
    answer = await client.call(f"127.0.0.1:{port}", RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
    client.close()
    await server.stop()
    print(answer.code, *sorted(sys.modules.keys() & {"numpy", "numba", "pyarrow", "typer", "rich"}))

asyncio.run(main())
"""


def test_a_name_server_that_answers_has_imported_no_arrays() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout == "0\n"
