"""Connections of members: of groups of consumers and of producers (of `AdminBrokerProcessor`)."""

from __future__ import annotations

from reput.broker.admin.client_bodies import connections_body, subscription_body
from reput.broker.disk_work import DiskPools
from reput.broker.large_bodies import encode_beside, in_pieces
from reput.remoting.body import encode_body
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.command import RemotingCommand
from reput.remoting.header import decode_header
from reput.remoting.statistics_headers import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from reput.service.consumer_manager import ConsumerManager
from reput.service.producer_manager import ProducerManager
from reput.transport.channel import Channel
from reput.transport.requests import Answer, Handler


class ConnectionProcessor:
    """Takes requests for the connections of groups."""

    def __init__(
        self, pools: DiskPools, consumers: ConsumerManager[Channel], producers: ProducerManager[Channel]
    ) -> None:
        self._pools, self._consumers, self._producers = pools, consumers, producers

    def handlers(self) -> dict[int, Handler]:
        """The requests that it takes."""
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def consumer_connections(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The members of a group, and what they subscribe to."""
        name = decode_header(GetConsumerConnectionListRequestHeader, command.ext_fields).consumer_group
        info = self._consumers.consumer_group_info(name)
        if info is None:
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = {
            "connectionSet": connections_body(self._consumers.channels(name).values()),
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": {topic: subscription_body(one) for topic, one in info.subscription_table.items()},
        }
        return command.response(body=encode_body(body))

    def producer_connections(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The members of a group of producers."""
        name = decode_header(GetProducerConnectionListRequestHeader, command.ext_fields).producer_group
        members = self._producers.channels(name)
        if not members:
            return command.response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        return command.response(body=encode_body({"connectionSet": connections_body(members.values())}))

    async def all_producers(self, connection: Channel, command: RemotingCommand) -> Answer:
        """The members of all groups of producers."""
        producers = self._producers
        data: dict[str, list[dict[str, object]]] = {}
        async for groups in in_pieces(producers.groups()):
            data |= {
                group: [
                    {
                        "clientId": one.client_id, "language": one.language, "lastUpdateTimestamp": one.last_update_ms,
                        "remoteIP": one.channel.remote, "version": one.version,
                    }
                    for one in producers.channels(group).values()
                ]
                for group in groups
            }  # fmt: skip
        return command.response(body=await encode_beside(self._pools, connection, encode_body, {"data": data}))
