"""A broker for tests: started in less than a second on free ports, with a store that goes with it.

    with broker() as rocketmq:
        with Producer(rocketmq.namesrv, group="shop") as producer: ...
        rocketmq.wait_consumed("billing", "orders")

With pytest the fixture `reput_broker` is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reput.extras import require_store

if TYPE_CHECKING:
    from reput.testing.local_broker import LocalBroker, broker

__all__ = ["LocalBroker", "broker"]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use (PEP 562): if there is no store, an error says what to install."""
    if name not in __all__:
        raise AttributeError(f"module 'reput.testing' has no attribute {name!r}")
    require_store(f"reput.testing.{name}")
    from reput.testing import local_broker

    return getattr(local_broker, name)


def __dir__() -> list[str]:
    return sorted(__all__)
