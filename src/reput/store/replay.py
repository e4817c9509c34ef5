"""Former name of `reput.store.sinks.replay`, kept for one release."""

from reput.store.sinks.replay import replay

__all__ = ["replay"]
