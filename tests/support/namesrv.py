"""Brokers as a name server sees them, and a name server that is asked over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from reput.config.namesrv import NamesrvConfig
from reput.formats.metadata import DataVersion, TopicConfig
from reput.namesrv.name_server import NameServer
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import encode_header
from reput.remoting.namesrv_headers import RegisterBrokerRequestHeader, UnRegisterBrokerRequestHeader
from reput.remoting.route_bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from reput.transport.client import RemotingClient

CLUSTER = "DefaultCluster"


def broker_header(name: str = "broker-a", broker_id: int = 0, address: str = "", **more: Any) -> Any:
    """Header of a registration; without an address each broker has its own."""
    cluster = more.pop("cluster_name", CLUSTER)
    address = address or f"{name}-{broker_id}:10911"
    return RegisterBrokerRequestHeader(name, address, cluster, f"ha-of-{address}", broker_id, **more)


def leaving(name: str = "broker-a", broker_id: int = 0, address: str = "") -> UnRegisterBrokerRequestHeader:
    header = broker_header(name, broker_id, address)
    return UnRegisterBrokerRequestHeader(name, header.broker_addr, header.cluster_name, broker_id)


def topics_body(
    *names: str, version: int = 1, state_version: int = 0, perm: int = 6, queues: int = 4, **more: Any
) -> RegisterBrokerBody:
    """Body of a registration."""
    table = {name: TopicConfig(name, queues, queues, perm, topic_sys_flag=more.get("flag", 0)) for name in names}
    mappings = more.get("mappings", {})
    return RegisterBrokerBody(
        TopicConfigSerializeWrapper(table, DataVersion(version, state_version, 1000 + version), mappings),
        more.get("filter_servers", ()),
    )


class Asked(NamedTuple):
    """A name server, and how it is asked: `ask(code, header, body)`, or `ask(command)`."""

    server: NameServer
    port: int
    ask: Callable[..., Awaitable[RemotingCommand]]
    client: RemotingClient

    def connect(self) -> RemotingClient:
        """Another client; it must be closed."""
        return RemotingClient()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def asked_name_server(folder: Path, now_ms: Callable[[], int] = lambda: 0, **keys: Any) -> AsyncIterator[Asked]:
    """A name server on a free port, with its files in a folder and a clock that stands still."""
    files = {"kv_config_path": str(folder / "ns/kvConfig.json"), "config_store_path": str(folder / "ns/namesrv.conf")}
    server = NameServer(NamesrvConfig.from_mapping(files | keys), now_ms=now_ms)
    port = await server.start("127.0.0.1", 0)
    client = RemotingClient()

    async def ask(what: int | RemotingCommand, header: Any = None, body: bytes = b"", **fields: str) -> RemotingCommand:
        if isinstance(what, RemotingCommand):
            return await client.call(f"127.0.0.1:{port}", what)
        fields |= {} if header is None else encode_header(header)
        return await client.call(f"127.0.0.1:{port}", RemotingCommand(RequestCode(what), ext_fields=fields, body=body))

    try:
        yield Asked(server, port, ask, client)
    finally:
        client.close()
        await server.stop()
