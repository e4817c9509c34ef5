"""Former name of `reput.store.sinks.import_sink`, kept for one release."""

from reput.store.sinks.import_sink import ImportSink

__all__ = ["ImportSink"]
