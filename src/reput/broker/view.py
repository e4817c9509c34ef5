"""BrokerView: what a broker is to others: its keys, and its address."""

from __future__ import annotations

from reput.config.broker import BrokerConfig


class BrokerView:
    """Configuration and address of one broker.

    Args:
        config: The broker's keys.
        address: "host:port" that clients get.

    Attributes:
        config: The keys as they are now: an operator changes some while the broker runs.
        address: As given.
    """

    def __init__(self, config: BrokerConfig, address: str) -> None:
        self.config = config
        self.address = address

    @property
    def ip(self) -> str:
        """The address without its port, for remarks."""
        return self.address.rpartition(":")[0]
