"""Clusters and their brokers, as an operator sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reput.admin.admin_client import AdminClient, gather
from reput.client.instance.name_servers import no_broker
from reput.client.instance.topic_route import MASTER_ID, nobody_there, together
from reput.errors import MQBrokerError, MQClientError, RemotingError
from reput.remoting.codes import RequestCode

#: In place of the ids and addresses of a broker name that has none.
_NOBODY: list[tuple[int | None, str | None]] = [(None, None)]


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """One broker that is registered, or was and is lost; None for what nobody tells.

    Attributes:
        broker_id, address: None for a broker name of which nobody is there.
        in_tps, out_tps: Messages a second, of the last ten seconds.
        disk_ratio: How full the log's disk is, 0 to 1.
    """

    cluster: str
    broker: str
    broker_id: int | None
    address: str | None
    version: str | None
    in_tps: float | None
    out_tps: float | None
    disk_ratio: float | None


async def brokers(client: AdminClient) -> list[RegisteredBroker]:
    """All brokers of all clusters; `client.silent` names those that do not answer, by broker name and id.

    Raises MQClientError if no broker is registered.
    """
    info = await client.cluster()
    asked = [
        (one.cluster, one.broker_name, broker_id, address)
        for one in sorted(info.broker_addr_table.values(), key=lambda one: (one.cluster, one.broker_name))
        for broker_id, address in sorted(one.broker_addrs.items()) or _NOBODY
    ]

    async def look(one: tuple[str, str, int | None, str | None]) -> RegisteredBroker:
        _, name, broker_id, address = one
        if address is None:
            client.silent[name] = nobody_there([name])
            return RegisteredBroker(*one, None, None, None, None)
        try:
            table = (await client.ask_json(address, RequestCode.GET_BROKER_RUNTIME_INFO)).get("table", {})
        except MQBrokerError:
            raise
        except RemotingError as error:
            client.silent[f"{name}, id {broker_id}"] = str(error)
            return RegisteredBroker(*one, None, None, None, None)
        out = table.get("getTransferredTps") or table.get("getTransferedTps")  # the second one before 5.0
        ratio = table.get("commitLogDiskRatio")
        return RegisteredBroker(
            *one, table.get("brokerVersionDesc"), _rate(table.get("putTps")), _rate(out), _rate(ratio)
        )

    found = await gather(look, asked)
    for one in info.broker_addr_table.values():
        if one.broker_addrs and MASTER_ID not in one.broker_addrs:
            client.slaves[one.broker_name] = f"the master of {one.broker_name} is away"
    return found


def _rate(text: Any) -> float | None:
    """The first number of a text of some; None if there is none."""
    try:
        return float(str(text).split()[0])
    except (ValueError, IndexError):
        return None


async def forget_broker(client: AdminClient, name: str) -> list[str]:
    """Let name servers forget a broker that is lost; returns the addresses of those that remembered it.

    Raises MQClientError, with nothing changed, for a broker of which a name server has an address, or that none of them
    remembers; also if one of them does not answer: the broker may be there for it.
    """
    try:
        found = await client.name_servers.brokers_of_each()
    except MQClientError as error:
        raise MQClientError(f"nothing was changed: {error}") from error
    brokers = together(data for one in found.values() for data in one.values())
    if name not in brokers:
        there = f"there are {', '.join(brokers)}" if brokers else no_broker(list(found))
        raise MQClientError(f"nothing was changed: no name server remembers a broker {name!r}; {there}")
    if addresses := brokers[name].broker_addrs:
        raise MQClientError(
            f"nothing was changed: {name} is registered at {' and '.join(addresses.values())}: only a broker that is "
            "lost, with its slaves, can be forgotten"
        )
    told = {address: address for address, one in found.items() if name in one}
    await client.change_each(told, lambda _, address: client.name_servers.forget_broker(address, name))
    return list(told)
