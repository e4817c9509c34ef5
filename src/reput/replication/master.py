"""A master as its followers ask it over the remoting protocol, before and while they follow its log."""

from __future__ import annotations

from typing import NamedTuple

from reput.client.instance.mq_client_api import checked
from reput.client.instance.session_credentials import SessionCredentials
from reput.config.properties import parse_properties
from reput.errors import CorruptMetadataError, RemotingError
from reput.formats.metadata import Topics, decode_metadata
from reput.remoting.body import decode_json
from reput.remoting.codes import RequestCode
from reput.remoting.command import RemotingCommand
from reput.transport.blocking_client import BlockingConnection
from reput.transport.client import host_and_port
from reput.transport.tls import ClientTls

_ANSWER_S = 3.0


class MasterLog(NamedTuple):
    """A master's log at one moment: commit log offsets of its first byte, and after its last one."""

    min_offset: int
    max_offset: int


def master_log(address: str, runtime_info: bytes) -> MasterLog:
    """Offsets at which a broker's log begins and ends, by its answer to GET_BROKER_RUNTIME_INFO.

    Raises RemotingError if that does not tell it.
    """
    table = decode_json(runtime_info)
    try:
        values = table["table"]
        return MasterLog(int(values["commitLogMinOffset"]), int(values["commitLogMaxOffset"]))
    except (KeyError, TypeError, ValueError):
        raise RemotingError(f"{address}: its runtime info does not have the ends of its log") from None


class Master:
    """A broker by its address; asks by a connection of its own, made again after an error. For one thread.

    Every method raises RemotingError if the broker cannot be asked, and MQBrokerError if it refuses,
    AccessDeniedError among these.

    Args:
        address: "host:port".
        tls: How to talk TLS; None for the plain protocol.
        credentials: Sign each request; None for none.
    """

    def __init__(
        self, address: str, *, tls: ClientTls | None = None, credentials: SessionCredentials | None = None
    ) -> None:
        self.address, self._tls, self._credentials = address, tls, credentials
        self._connection: BlockingConnection | None = None

    def log(self) -> MasterLog:
        """Offsets at which its log begins and ends."""
        return master_log(self.address, self._ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)

    def config(self) -> dict[str, str]:
        """Its configuration, by RocketMQ's keys."""
        return parse_properties(self._ask(RequestCode.GET_BROKER_CONFIG).body.decode(errors="replace"), self.address)

    def topics(self) -> Topics:
        """Its topics, with their settings."""
        body = self._ask(RequestCode.GET_ALL_TOPIC_CONFIG).body
        try:
            return decode_metadata(Topics, body)
        except CorruptMetadataError as error:
            raise RemotingError(f"{self.address}: its topics cannot be read: {error.reason}") from None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, code: int) -> RemotingCommand:
        command = RemotingCommand(code)
        if self._credentials is not None:
            self._credentials.sign(command)
        try:
            if self._connection is None:
                self._connection = BlockingConnection(self.address, self._tls)
            [opaque] = self._connection.send(command, timeout_s=_ANSWER_S)
            return checked(self.address, self._connection.answer(opaque, _ANSWER_S))
        except RemotingError:
            self.close()
            raise


def ha_address(address: str, config: dict[str, str]) -> str:
    """Address at which a broker of this configuration serves its log: `haListenPort`, or the port after its own.

    Raises RemotingError if the key has no number.
    """
    host, port = host_and_port(address)
    given = config.get("haListenPort") or "0"
    try:
        return f"{host}:{int(given) if int(given) > 0 else port + 1}"
    except ValueError:
        raise RemotingError(f"{address}: haListenPort={given[:100]!r} is no port") from None
