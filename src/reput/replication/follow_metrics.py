"""FollowMetrics: how far followers are, for Prometheus."""

from __future__ import annotations

from math import nan
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from reput.errors import RemotingError
from reput.formats.hosts import THIS_MACHINE
from reput.replication.follower import FollowState


class FollowMetrics:
    """The metrics of all followers of a process, by broker."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

        def gauge(name: str, meaning: str) -> Gauge:
            return Gauge(f"reput_follow_{name}", meaning, ["broker"], registry=self._registry)

        self._lag_bytes = gauge("lag_bytes", "Bytes of the broker's log that the store lacks; NaN if not connected.")
        self._lag_seconds = gauge(
            "lag_seconds", "Age of the newest record, if bytes are missing; NaN if not connected."
        )
        self._end_offset = gauge("end_offset", "Commit log offset after the store's last record.")
        self._connected = gauge("connected", "1 while the connection stands; without messages, while it answers.")
        self._served: tuple[WSGIServer, Thread] | None = None

    def serve(self, port: int) -> str:
        """Serve the page /metrics, and return its "host:port"; RemotingError if the port is taken."""
        try:
            self._served = server, _ = start_http_server(port, THIS_MACHINE, self._registry)
        except (OSError, OverflowError) as error:
            raise RemotingError(f"{THIS_MACHINE}:{port}: the port of the metrics cannot be taken: {error}") from None
        return f"{THIS_MACHINE}:{server.server_port}"

    def note(self, broker: str, state: FollowState) -> None:
        """Tell how far the follower of a broker is."""
        lag_bytes, lag_ms = state.lag or (nan, nan)
        self._lag_bytes.labels(broker).set(lag_bytes)
        self._lag_seconds.labels(broker).set(lag_ms / 1000)
        self._end_offset.labels(broker).set(state.end_offset)
        self._connected.labels(broker).set(state.is_connected)

    def close(self) -> None:
        """Serve no more."""
        if self._served is not None:
            server, thread = self._served
            server.shutdown()
            server.server_close()
            thread.join()
