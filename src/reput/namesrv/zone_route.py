"""Zones: a client that asks for its zone gets the brokers of the zone alone (`ZoneRouteRPCHook`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from reput.namesrv.route_tables import MASTER_ID
from reput.remoting.route_bodies import TopicRouteData

#: Fields of a request: the zone of a broker or a client, and whether a client wants its zone alone.
ZONE_NAME, ZONE_MODE = "__ZONE_NAME", "__ZONE_MODE"


def filter_by_zone(route: TopicRouteData, fields: Mapping[str, str]) -> TopicRouteData:
    """The part of a route that a client's fields ask for; of other zones, brokers without a master are kept."""
    zone = fields.get(ZONE_NAME, "")
    if fields.get(ZONE_MODE, "").lower() != "true" or not zone.strip():
        return route
    removed = [
        data
        for data in route.broker_datas
        if MASTER_ID in data.broker_addrs and (data.zone_name or "").lower() != zone.lower()
    ]
    names = {data.broker_name for data in removed}
    addresses = {address for data in removed for address in data.broker_addrs.values()}
    return replace(
        route,
        broker_datas=tuple(data for data in route.broker_datas if data.broker_name not in names),
        queue_datas=tuple(data for data in route.queue_datas if data.broker_name not in names),
        filter_server_table={at: one for at, one in route.filter_server_table.items() if at not in addresses},
    )
